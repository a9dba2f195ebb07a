package partial

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/page"
	"github.com/kintsugi-ml/kintsugi/recovery/ledger"
)

// Bound is the cost of perturbations of a quadratic, beside the bounds on it.
type Bound struct {
	Perturbations int     `json:"perturbations"`
	Undisturbed   float64 `json:"undisturbed"` // steps until the distance to x* is below epsilon
	Contraction   float64 `json:"contraction"`

	// Perturbations that cost more than the published bound, and by how many steps the worst one
	// exceeded it; and those that cost more than the posterior bound, which is impossible.
	AbovePaper     int     `json:"above_paper"`
	WorstAbove     float64 `json:"worst_above_paper"`
	AbovePosterior int     `json:"above_posterior"`
	MeanCost       float64 `json:"mean_cost"`
	MeanPaper      float64 `json:"mean_paper_bound"`
	MeanPosterior  float64 `json:"mean_posterior_bound"`

	Points []Point `json:"points"` // a selection
	Lost   []Norm  `json:"lost"`
}

// Point is a perturbation: its size in the bound, c^−T·‖δ‖/‖x⁰−x*‖, and the steps that it cost.
type Point struct {
	Size float64 `json:"size"`
	Cost float64 `json:"cost"`
}

// Norm compares the mean of ‖δ′‖² with p‖δ‖², where δ′ is the perturbation if a random share p
// of equal blocks goes back and the others do not.
type Norm struct {
	Share  float64 `json:"share"`
	Ratio  float64 `json:"ratio"`  // of the mean to p‖δ‖²
	Sigmas float64 `json:"sigmas"` // distance of Ratio from 1, in standard errors
}

// FindBound perturbs gradient descent on a quadratic of 20 values, the given number of times: at
// random steps, in random directions, and with random sizes over three orders of magnitude. A
// quarter of the perturbations point directly away from the optimum.
func FindBound(perturbations int, seed uint64) Bound {
	const values, shown = 20, 400
	rng := rand.New(rand.NewPCG(seed, 20))
	shrink, start := make([]float64, values), make([]float64, values)
	b := Bound{Perturbations: perturbations}
	for i := range shrink {
		shrink[i], start[i] = 0.95-0.5*float64(i)/(values-1), rng.NormFloat64()
		b.Contraction = math.Max(b.Contraction, shrink[i])
	}
	epsilon := 1e-3
	b.Undisturbed = float64(descend(append([]float64(nil), start...), shrink, epsilon))
	x, delta := make([]float64, values), make([]float64, values)
	for n := range perturbations {
		at := rng.IntN(int(b.Undisturbed))
		for i := range x {
			x[i] = start[i] * math.Pow(shrink[i], float64(at))
			delta[i] = rng.NormFloat64()
			if n%4 == 0 {
				delta[i] = x[i]
			}
		}
		distance := norm(x)
		scale := math.Pow(10, 3*rng.Float64()-2) / norm(delta)
		for i := range x {
			delta[i] *= scale
			x[i] += delta[i]
		}
		p := ledger.Perturbed{Step: float64(at), Norm: norm(delta)}
		paper := ledger.PaperBound(b.Contraction, norm(start), p)
		posterior := ledger.PosteriorBound(b.Contraction, epsilon, b.Undisturbed, distance, p)
		cost := float64(at+descend(x, shrink, epsilon)) - b.Undisturbed
		b.add(cost, paper, posterior)
		if n < shown {
			b.Points = append(b.Points, Point{Size: math.Expm1(-paper * math.Log(b.Contraction)), Cost: cost})
		}
	}
	for _, share := range []float64{0.25, 0.5, 0.75} {
		b.Lost = append(b.Lost, normOf(rng, share, perturbations))
	}
	return b
}

func (b *Bound) add(cost, paper, posterior float64) {
	n := float64(b.Perturbations)
	b.MeanCost, b.MeanPaper, b.MeanPosterior = b.MeanCost+cost/n, b.MeanPaper+paper/n, b.MeanPosterior+posterior/n
	if cost > paper+1 { // both are rounded to whole steps
		b.AbovePaper++
		b.WorstAbove = math.Max(b.WorstAbove, cost-paper)
	}
	if cost > posterior {
		b.AbovePosterior++
	}
}

// normOf draws the lost blocks of one uneven δ many times.
func normOf(rng *rand.Rand, share float64, draws int) Norm {
	squares, all := make([]float64, 64), 0.0
	for i := range squares {
		squares[i] = math.Exp(2 * rng.NormFloat64())
		all += squares[i]
	}
	ratios := make([]float64, draws)
	for d := range ratios {
		for _, i := range rng.Perm(len(squares))[:int(share*float64(len(squares)))] {
			ratios[d] += squares[i] / (share * all)
		}
	}
	mean, deviation := bench.MeanDeviation(ratios)
	return Norm{Share: share, Ratio: mean, Sigmas: (mean - 1) / float64(deviation) * math.Sqrt(float64(draws))}
}

// boundView is the figure of the bounds.
type boundView struct {
	Text  string
	X, Y  []page.Tick
	Marks []boundMark
	Curve string
}

type boundMark struct {
	X, Y  float64
	Above bool
}

func newBoundView(b *Bound) *boundView {
	if b == nil {
		return nil
	}
	v := &boundView{Text: fmt.Sprintf("%d perturbations of gradient descent on a quadratic of 20 values, which contracts by %.2f a step and is undisturbed after %.0f steps. "+
		"%d of them (%.1f %%) cost over a step more than the published bound, the worst %.1f steps more; %d cost more than the posterior bound. On average they cost %.1f steps, "+
		"the bounds say %.1f and %.1f. The mean of ‖δ′‖² over p‖δ‖², when a random share p is lost:", b.Perturbations, b.Contraction, b.Undisturbed, b.AbovePaper,
		100*float64(b.AbovePaper)/float64(b.Perturbations), b.WorstAbove, b.AbovePosterior, b.MeanCost, b.MeanPaper, b.MeanPosterior)}
	for _, l := range b.Lost {
		v.Text += fmt.Sprintf(" %.4f for %s (%+.1f σ)", l.Ratio, Share(l.Share), l.Sigmas)
	}
	v.Text += "."
	lo, hi, most, least := math.Inf(1), 0.0, 0.0, 0.0
	bound := func(size float64) float64 { return math.Log1p(size) / -math.Log(b.Contraction) }
	for _, p := range b.Points {
		lo, hi, most, least = math.Min(lo, p.Size), math.Max(hi, p.Size), math.Max(most, math.Max(p.Cost, bound(p.Size))), math.Min(least, p.Cost)
	}
	x := page.LogScale(lo/1.2, hi*1.2, page.PlotLeft, page.PlotRight)
	y := func(steps float64) float64 {
		return page.PlotBottom + (steps-least)/(most-least)*(page.PlotTop-page.PlotBottom)
	}
	for _, t := range page.Ticks(lo/1.2, hi*1.2, []float64{1}) {
		v.X = append(v.X, page.Tick{At: x(t), Label: fmt.Sprintf("%.4g", t)})
	}
	for steps := math.Ceil(least/20) * 20; steps <= most; steps += 20 {
		v.Y = append(v.Y, page.Tick{At: y(steps), Label: whole(steps)})
	}
	for _, p := range b.Points {
		v.Marks = append(v.Marks, boundMark{x(p.Size), y(p.Cost), p.Cost > bound(p.Size)+1})
	}
	for i := range 101 {
		size := lo * math.Pow(hi/lo, float64(i)/100)
		v.Curve += fmt.Sprintf("%c%.1f %.1f", "ML"[min(i, 1)], x(size), y(bound(size)))
	}
	return v
}

func norm(x []float64) float64 {
	s := 0.0
	for _, v := range x {
		s += v * v
	}
	return math.Sqrt(s)
}

// descend returns the number of steps until x is within epsilon of the optimum, 0.
func descend(x, shrink []float64, epsilon float64) (steps int) {
	for ; norm(x) >= epsilon; steps++ {
		for i := range x {
			x[i] *= shrink[i]
		}
	}
	return steps
}
