package dbw_test

import (
	"math"
	"math/rand/v2"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/dbw"
)

// world is a run in virtual time: a quadratic of which everything is known, workers with drawn
// times, and a controller that is told of both.
type world struct {
	rng     *rand.Rand
	n       int
	busy    kintsugi.Busy
	took    func(slot int) float64 // seconds that a gradient takes
	apply   float64
	rule    kintsugi.Optimizer
	part    func(k int) float64 // factor of the learning rate
	lambda  []float64           // curvature of each coordinate
	sigma   []float64           // standard deviation of one gradient's noise
	x, m, d []float64           // parameters, momentum, newest displacement
	state   []float64           // second moments of Adam
	lift    float64             // added to each loss

	now     float64
	step    kintsugi.Step
	working []job // by slot
	quotas  []int
	last    dbw.Choice
}

// job is what a worker does: a gradient on a version, ready at a time; +Inf: it waits.
type job struct {
	at      float64
	version kintsugi.Step
}

func newWorld(seed uint64, n, dim int) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 9)), n: n, busy: kintsugi.Wait, working: make([]job, n),
		rule: kintsugi.Optimizer{Rule: kintsugi.RuleSGD, LearningRate: 0.1},
		x:    make([]float64, dim), m: make([]float64, dim), d: make([]float64, dim), state: make([]float64, dim),
		lambda: make([]float64, dim), sigma: make([]float64, dim),
	}
	for i := range dim {
		w.lambda[i], w.sigma[i], w.x[i] = 0.1+3*w.rng.Float64(), 0.1, w.rng.NormFloat64()
	}
	for i := range w.working {
		w.working[i] = job{math.Inf(1), 0}
	}
	w.took = func(int) float64 { return 1 }
	return w
}

func (w *world) loss() float64 {
	f := w.lift
	for i, x := range w.x {
		f += w.lambda[i] * x * x / 2
	}
	return f
}

// gradient draws one and returns its squared norm.
func (w *world) gradient(sum []float64) float64 {
	norm := 0.0
	for i, x := range w.x {
		g := w.lambda[i]*x + w.sigma[i]*w.rng.NormFloat64()
		sum[i] += g
		norm += g * g
	}
	return norm
}

// run makes that many steps.
func (w *world) run(c dbw.Controller, steps int) {
	for range steps {
		w.last = c.Choose(dbw.Release{Version: w.step, At: w.now, Members: w.n, Optimizer: w.rule, Part: w.part})
		w.quotas = append(w.quotas, w.last.Quota)
		mean, o := w.gather(c)
		c.Committed(w.now)
		w.now += w.apply
		w.step++
		o.Step, o.At = w.step, w.now
		w.move(mean, &o)
		c.Released(o)
	}
}

// gather lets workers work until the quota is reached.
func (w *world) gather(c dbw.Controller) ([]float64, dbw.Outcome) {
	o := dbw.Outcome{Optimizer: w.rule, Measured: true}
	sum := make([]float64, len(w.x))
	released := w.now
	for i := range w.working {
		if math.IsInf(w.working[i].at, 1) || w.busy == kintsugi.Interrupt {
			w.working[i] = job{w.now + w.took(i), w.step}
		}
	}
	for len(o.Gradients) < w.last.Quota {
		i := 0
		for k, j := range w.working {
			if j.at < w.working[i].at {
				i = k
			}
		}
		done := w.working[i]
		if p := w.last.Patience; p > 0 && len(o.Gradients) > 0 && done.at > released+p {
			w.now = max(w.now, released+p)
			break
		}
		w.now = done.at
		c.Arrived(dbw.Arrival{Slot: kintsugi.Slot(i), Version: done.version, At: w.now})
		if done.version < w.step {
			w.working[i] = job{w.now + w.took(i), w.step}
			continue
		}
		w.working[i] = job{math.Inf(1), 0}
		norm := w.gradient(sum)
		o.Gradients = append(o.Gradients, dbw.Gradient{SquaredNorm: norm, Loss: w.loss()})
	}
	for i := range sum {
		sum[i] /= float64(len(o.Gradients))
	}
	for i := range o.Gradients {
		o.Gradients[i].Share = 1 / float64(len(o.Gradients))
	}
	return sum, o
}

// move applies a step.
func (w *world) move(mean []float64, o *dbw.Outcome) {
	eta, mu := float64(w.rule.LearningRate)*w.last.Rate, float64(w.rule.Momentum)
	if w.part != nil {
		eta *= w.part(len(o.Gradients))
	}
	o.Optimizer.LearningRate = float32(eta)
	for i, g := range mean {
		o.SquaredNorm += g * g
		o.Dot += g * w.d[i]
		switch w.rule.Rule {
		case kintsugi.RuleAdam:
			b1, b2 := float64(w.rule.Beta1), float64(w.rule.Beta2)
			w.m[i] = b1*w.m[i] + (1-b1)*g
			w.state[i] = b2*w.state[i] + (1-b2)*g*g
			t := float64(w.step)
			w.d[i] = -eta * w.m[i] / (1 - math.Pow(b1, t)) / (math.Sqrt(w.state[i]/(1-math.Pow(b2, t))) + 1e-8)
		default:
			w.m[i] = mu*w.m[i] + g
			w.d[i] = -eta * w.m[i]
		}
		w.x[i] += w.d[i]
		o.SquaredDisplacement += w.d[i] * w.d[i]
	}
}
