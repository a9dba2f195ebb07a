package quota

import (
	"context"
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/virtual"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// cells measures controllers on a workload, for each spread of times.
func (s *sweep) cells(w *workload, busy kintsugi.Busy, controllers []string) ([]Row, error) {
	rows := make([]Row, len(s.cfg.Alphas)*len(controllers))
	err := bench.Each(s.ctx, s.cfg.Parallel, len(rows), func(_ context.Context, i int) (err error) {
		x := situation{alpha: s.cfg.Alphas[i/len(controllers)], busy: busy}
		rows[i], err = s.cell(w, x, controllers[i%len(controllers)])
		return err
	})
	return rows, err
}

// cell measures one controller in one situation.
func (s *sweep) cell(w *workload, x situation, controller string) (Row, error) {
	r := Row{
		Name: fmt.Sprintf("dbw/%s/%s/batch=%d/rate=%g/alpha=%g/%s", s.data, busyNames[x.busy], w.batch, w.rate, x.alpha, controller), Data: s.data,
		Busy: busyNames[x.busy], Batch: w.batch, Rate: w.rate, Alpha: x.alpha, Target: w.target, Controller: controller,
		Workers: s.cfg.Workers, Seeds: s.cfg.Seeds,
	}
	quota, best, err := s.best(w.steps, x)
	if err != nil {
		return r, err
	}
	_, scaled, err := s.best(w.scaled, x)
	if err != nil {
		return r, err
	}
	all, err := s.fixed(w.steps, s.cfg.Workers, x)
	if err != nil {
		return r, err
	}
	seconds, quotas := make([]float64, s.cfg.Seeds), make([]float64, s.cfg.Seeds)
	for seed := range seconds {
		if seconds[seed], quotas[seed], err = s.run(w, controller, x, s.seed(seed)); err != nil {
			return r, err
		}
	}
	r.BestQuota, r.Best, r.Scaled, r.All = quota, record.Number(best), record.Number(scaled), record.Number(bench.Mean(all[:s.cfg.Seeds]))
	r.Seconds, r.Quota = record.Number(bench.Mean(seconds)), bench.Mean(quotas)
	r.Ratio = r.Seconds / r.Best
	return r, nil
}

var busyNames = map[kintsugi.Busy]string{kintsugi.Interrupt: "interrupt", kintsugi.Wait: "wait", kintsugi.Pull: "pull"}

// run trains with a controller up to the target, and returns the seconds and the mean quota.
func (s *sweep) run(w *workload, controller string, x situation, seed uint64) (seconds, quota float64, err error) {
	quotas, steps := 0.0, 0.0
	seconds, err = s.follow(w, controller, x, seed, func(e kintsugi.StepEvent, _ float64) {
		quotas, steps = quotas+float64(e.Quota), steps+1
	})
	return seconds, quotas / max(1, steps), err
}

// follow trains with a controller up to the target and returns the seconds, or +Inf after more than
// eight times the steps of all workers. look is called for each step, with the loss after every
// fourth step and NaN after the others.
func (s *sweep) follow(w *workload, controller string, x situation, seed uint64, look func(e kintsugi.StepEvent, loss float64)) (seconds float64, err error) {
	cross := crossings{target: w.target, before: w.problem.Loss(make([]float32, w.problem.Values())), at: math.Inf(1)}
	t, err := s.training(w, controller, x, seed)
	if err != nil {
		return 0, err
	}
	t.Each = func(e kintsugi.StepEvent, params []float32) bool {
		if e.Step%lossEvery != 0 {
			look(e, math.NaN())
			return true
		}
		loss := w.problem.Loss(params)
		look(e, loss)
		return !cross.add(e.Time.Sub(virtual.Epoch()).Seconds(), loss)
	}
	_, err = virtual.Train(t)
	return cross.at, err
}

// training returns the Training for a controller.
func (s *sweep) training(w *workload, controller string, x situation, seed uint64) (virtual.Training, error) {
	c, err := agg.Preset(controller)
	c.Busy = x.busy
	t := s.under(x)
	t.Seed, t.Consistency, t.Schedule, t.Steps, t.Problem, t.Ranked = seed, c, schedule(w.rate), 8*s.cfg.Steps, w.problem, true
	return t, err
}
