package quota

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/virtual"
	"github.com/kintsugi-ml/kintsugi/server/dbw"
)

// Estimate compares an estimate of dbw with the true value.
type Estimate struct {
	Alpha    float64       `json:"alpha"`
	Estimate string        `json:"estimate"`
	Bias     record.Number `json:"bias"`  // mean of the estimates over that of the true values, minus 1
	Error    record.Number `json:"error"` // median of the relative errors
	Looks    []Look        `json:"looks"`
}

// Look is an estimate and the true value after one step.
type Look struct {
	Step     kintsugi.Step `json:"step"`
	Estimate float64       `json:"estimate"`
	Truth    float64       `json:"truth"`
}

const looksEvery = 5 // steps between two evaluations on the whole set

// estimates runs dbw with interrupted workers. It also computes the true values: the full gradient
// and its variance, and the mean of the order statistic that a step waits for.
func (s *sweep) estimates(w *workload) ([]Estimate, error) {
	all := make([][]Estimate, len(s.cfg.Alphas))
	err := bench.Each(s.ctx, s.cfg.Parallel, len(all), func(_ context.Context, i int) (err error) {
		all[i], err = s.estimated(w, s.cfg.Alphas[i])
		return err
	})
	return slices.Concat(all...), err
}

func (s *sweep) estimated(w *workload, alpha float64) ([]Estimate, error) {
	found := []Estimate{
		{Alpha: alpha, Estimate: "squared gradient"}, {Alpha: alpha, Estimate: "variance of a gradient"}, {Alpha: alpha, Estimate: "seconds of a step"},
	}
	t, err := s.training(w, "dbw", situation{alpha: alpha, busy: kintsugi.Interrupt}, s.seed(0))
	if err != nil {
		return nil, err
	}
	t.Steps = 2 * s.cfg.Steps
	grads := make([]float32, w.problem.Values())
	var choice dbw.Choice
	t.Chosen = func(c dbw.Choice) { choice = c }
	t.Each = func(e kintsugi.StepEvent, params []float32) bool {
		if e.Step%looksEvery == 0 && choice.Estimate.Rate > 0 && choice.Expected > 0 {
			square, variance := w.problem.Moments(params, grads)
			found[0].add(e.Step, choice.Estimate.Square, square)
			found[1].add(e.Step, choice.Estimate.Variance, variance)
			found[2].add(e.Step, choice.Expected, orderStatistic(choice.Quota, s.cfg.Workers, alpha))
		}
		return true
	}
	if _, err := virtual.Train(t); err != nil {
		return nil, err
	}
	for i := range found {
		found[i].conclude()
	}
	return found, nil
}

// orderStatistic returns the mean of the k-th smallest of n times, of which the share alpha is
// exponential.
func orderStatistic(k, n int, alpha float64) float64 {
	mean := 1 - alpha
	for i := range k {
		mean += alpha / float64(n-i)
	}
	return mean
}

func (e *Estimate) add(step kintsugi.Step, estimate, truth float64) {
	e.Looks = append(e.Looks, Look{step, estimate, truth})
}

// conclude computes the summary from the looks.
func (e *Estimate) conclude() {
	var estimates, truths float64
	var errors []float64
	for _, l := range e.Looks {
		estimates, truths = estimates+l.Estimate, truths+l.Truth
		errors = append(errors, math.Abs(l.Estimate-l.Truth)/max(l.Truth, 1e-12))
	}
	e.Bias, e.Error = record.Number(estimates/truths-1), record.Number(bench.Median(errors))
}

// Cost is the time of the controller per step, including its input.
type Cost struct {
	Members      int     `json:"members"`
	Microseconds float64 `json:"microseconds"`
}

// measureCost measures it as the minimum of three runs: other programs can only add to it.
func measureCost() ([]Cost, error) {
	var all []Cost
	for _, n := range []int{16, 1000} {
		best := math.Inf(1)
		for range 3 {
			took, err := perStep(n, 100)
			if err != nil {
				return nil, err
			}
			best = min(best, took.Seconds()*1e6)
		}
		all = append(all, Cost{n, best})
	}
	return all, nil
}

// perStep returns the controller's time per step with n workers, each of which finishes a gradient
// of every version.
func perStep(n, steps int) (time.Duration, error) {
	c, err := dbw.New("dbw", kintsugi.Wait)
	if err != nil {
		return 0, err
	}
	rng := rand.New(rand.NewPCG(7, 7))
	times := make([]float64, n)
	gradients := make([]dbw.Gradient, 0, n)
	optimizer := kintsugi.Optimizer{Rule: kintsugi.RuleSGD, LearningRate: 0.1}
	now, total := 0.0, time.Duration(0)
	for step := range kintsugi.Step(steps) {
		for i := range times {
			times[i] = rng.ExpFloat64()
		}
		slices.Sort(times)
		began := time.Now()
		k := c.Choose(dbw.Release{Version: step, At: now, Members: n, Optimizer: optimizer}).Quota
		gradients = gradients[:0]
		for i := range k {
			c.Arrived(dbw.Arrival{Slot: kintsugi.Slot(i), Version: step, At: now + times[i]})
			gradients = append(gradients, dbw.Gradient{Share: 1 / float64(k), SquaredNorm: 1 + 20*rng.Float64(), Loss: 1})
		}
		now += times[k-1]
		c.Committed(now)
		c.Released(dbw.Outcome{
			Step: step + 1, At: now, Gradients: gradients, Measured: true, SquaredNorm: 1 + 10/float64(k), Dot: -0.05 * rng.Float64(),
			SquaredDisplacement: 0.01, Optimizer: optimizer,
		})
		for i := k; i < n; i++ { // the others are late
			c.Arrived(dbw.Arrival{Slot: kintsugi.Slot(i), Version: step, At: now + times[i]})
		}
		total += time.Since(began)
	}
	return total / time.Duration(steps), nil
}
