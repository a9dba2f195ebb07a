package dbw

import (
	"math"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// Of two losses in a row, the curvature is that of the descent inequality; a step between them that
// is not known, or a loss that is no number, tells nothing.
func TestTheCurvatureOfLosses(t *testing.T) {
	const eta, square, variance, k = 0.5, 8.0, 4.0, 2
	// A loss of 10 and then 7: 2·(7 − 10 + η·S)/(η²·(S + V/k)) = 2·(−3 + 4)/(0.25·10).
	const want = 0.8
	at := func(step kintsugi.Step, loss float64) Outcome {
		return Outcome{Step: step, Optimizer: kintsugi.Optimizer{Rule: kintsugi.RuleSGD, LearningRate: eta}, Gradients: []Gradient{{Share: 0.5, Loss: loss + 1}, {Share: 0.5, Loss: loss - 1}}}
	}
	still := at(4, 10) // of a learning rate of 0: there is no descent to compare with
	still.Optimizer.LearningRate = 0
	for name, c := range map[string]struct {
		steps []Outcome
		known float64 // values of the mean
	}{
		"two in a row":               {[]Outcome{at(4, 10), at(5, 7)}, 1},
		"after another step":         {[]Outcome{at(1, 0), at(4, 10), at(5, 7)}, 1},
		"a step between them":        {[]Outcome{at(4, 10), at(6, 7)}, 0},
		"the second is NaN":          {[]Outcome{at(4, 10), at(5, math.NaN())}, 0},
		"the first is +Inf":          {[]Outcome{at(4, math.Inf(1)), at(5, 7)}, 0},
		"one of no number, then two": {[]Outcome{at(3, math.NaN()), at(4, 10), at(5, 7)}, 1},
		"the first stands still":     {[]Outcome{still, at(5, 7)}, 0},
	} {
		l := newPaper(false).curvature
		for _, o := range c.steps {
			l.add(o, square, variance)
		}
		if got := l.mean.Weight(); got != c.known {
			t.Errorf("%s: %v values, want %v", name, got, c.known)
		}
		if got := l.mean.Value(); c.known > 0 && math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	l := newPaper(false).curvature
	o := at(4, 10)
	o.Optimizer.Rule, o.Optimizer.Momentum = kintsugi.RuleMomentum, 0.5 // goes twice as far
	l.add(o, square, variance)
	l.add(at(5, 7), square, variance)
	if got, want := l.mean.Value(), 2*(7-10+2*eta*square)/(4*eta*eta*10); math.Abs(got-want) > 1e-12 {
		t.Errorf("with momentum: %v, want %v", got, want)
	}
}

// While the loss rises, the paper waits for one more than before, and never for fewer. The rise comes
// with steps that nobody was told of: otherwise the curvature of the losses would rise as well, and
// no quota would seem to gain anything.
func TestWhileTheLossRisesOneMoreIsWaitedFor(t *testing.T) {
	const n = 6
	p := newPaper(true)
	now, loss, s := 0.0, 1000.0, kintsugi.Step(0)
	step := func(change float64) Choice {
		if s++; change > 0 {
			s++
		}
		c := p.Choose(Release{Version: s, At: now, Members: n, Optimizer: kintsugi.Optimizer{Rule: kintsugi.RuleSGD, LearningRate: 0.01}})
		took := 0.0
		for i := range c.Quota {
			if took = 1; i > 0 {
				took = 100 * float64(i) // the first alone is worth its time
			}
			p.Arrived(Arrival{Slot: kintsugi.Slot(i), Version: s, At: now + took})
		}
		now += took
		p.Committed(now)
		loss += change
		o := Outcome{Step: s, At: now, SquaredNorm: 1000, Optimizer: kintsugi.Optimizer{Rule: kintsugi.RuleSGD, LearningRate: 0.01}}
		for range c.Quota {
			o.Gradients = append(o.Gradients, Gradient{Share: 1 / float64(c.Quota), SquaredNorm: 1001, Loss: loss})
		}
		p.Released(o)
		return c
	}
	for range 10 {
		step(-9)
	}
	if c := step(-9); c.Quota != 1 {
		t.Fatalf("%d while the loss falls: %s", c.Quota, c.Reason)
	}
	step(200) // chosen before the loss has risen
	for _, want := range []int{2, 3} {
		c := step(100)
		if c.Quota != want || !strings.Contains(c.Reason, "one more than before, since the loss rises") {
			t.Errorf("%d, want %d: %s", c.Quota, want, c.Reason)
		}
	}
	for range 30 {
		step(-9)
	}
	if c := step(-9); c.Quota != 1 {
		t.Errorf("%d when the loss falls again: %s", c.Quota, c.Reason)
	}
}
