package dbw

import (
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/fade"
)

// paper is DBW as published: the curvature from differences of losses, averages over five steps,
// all members in the first step, and never a smaller quota than before while the loss rises.
type paper struct {
	timing
	moments   moments
	curvature lossCurvature
	loss      fade.Mean
	before    float64 // smoothed loss of the step before
	steps     int
}

func newPaper(interrupt bool) *paper {
	p := &paper{
		timing:    newTiming(paperMemory, interrupt),
		moments:   moments{variance: fade.NewMean(paperMemory), square: fade.NewMean(paperMemory)},
		curvature: lossCurvature{mean: fade.NewMean(paperMemory)}, loss: fade.NewMean(paperMemory),
	}
	p.durations.own = true
	return p
}

// Name implements Controller.
func (p *paper) Name() string { return "dbw:paper" }

// Released implements Controller.
func (p *paper) Released(o Outcome) {
	p.timing.Released(o)
	square, ok := p.moments.add(o)
	if !ok {
		return
	}
	p.steps++
	p.curvature.add(o, square, max(0, p.moments.variance.Value()))
	p.before = p.loss.Value()
	p.loss.Add(o.loss())
}

// Choose implements Controller.
func (p *paper) Choose(r Release) Choice {
	before := p.quota
	p.begin(r)
	n := r.Members
	if p.steps < 2 || p.curvature.mean.Weight() == 0 || !p.durations.known() {
		return p.chosen(r, n, fmt.Sprintf("all %d: nothing is known yet", n))
	}
	e := Estimate{Variance: max(0, p.moments.variance.Value()), Square: max(0, p.moments.square.Value()), Curvature: p.curvature.mean.Value(), Rate: float64(r.Optimizer.LearningRate) / (1 - persistence(r.Optimizer))}
	k := p.best(n, func(k int) float64 { return e.At(r.part(k)).Gain(k) / p.expect(k) })
	e = e.At(r.part(k))
	reason := fmt.Sprintf("%d of %d: gains %.3g in %.3g s", k, n, e.Gain(k), p.expect(k))
	if e.Gain(k) <= 0 {
		k, reason = n, fmt.Sprintf("all %d: no quota gains anything", n)
	}
	if p.loss.Value() > p.before+lossRose*math.Abs(p.before) && k <= before { // the paper's factor of 1.01, also for losses below zero
		k = min(n, before+1)
		reason = fmt.Sprintf("%d of %d: one more than before, since the loss rises", k, n)
	}
	c := p.chosen(r, k, reason)
	c.Estimate = e
	return c
}

// lossCurvature estimates the curvature in the form of the paper: the descent inequality solved for
// L, with the means of the losses in the tickets.
//
//	L̂ = 2·(F₊ − F + η·S)/(η²·(S + V/k))
type lossCurvature struct {
	mean    fade.Mean
	loss    float64
	descent float64 // η·S
	scale   float64 // η²·(S + V/k)/2
	step    kintsugi.Step
	pending bool
}

func (l *lossCurvature) add(o Outcome, square, variance float64) {
	loss := o.loss()
	if l.pending && o.Step == l.step+1 && finite(loss) && l.scale > 0 {
		l.mean.Add((loss - l.loss + l.descent) / l.scale)
	}
	square = max(0, square)
	eta := float64(o.Optimizer.LearningRate) / (1 - persistence(o.Optimizer))
	l.loss, l.descent, l.step = loss, eta*square, o.Step
	l.scale = eta * eta * (square + variance/float64(max(1, len(o.Gradients)))) / 2
	l.pending = finite(loss) && l.scale > 0
}
