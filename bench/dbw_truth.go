package bench

import (
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/sim"
	"github.com/kintsugi-ml/kintsugi/server/dbw"
)

// DBWEstimate compares an estimate of dbw with the truth, over steps ten apart.
type DBWEstimate struct {
	Alpha    float64       `json:"alpha"`
	Estimate string        `json:"estimate"`
	Looks    int           `json:"looks"`
	Bias     record.Number `json:"bias"`  // mean of the estimates over that of the truths, less 1
	Error    record.Number `json:"error"` // median of the relative errors
}

// estimates runs dbw beside the truth about the gradient, which the whole set gives.
func (s *sweep) estimates(w *workload) ([]DBWEstimate, error) {
	var all []DBWEstimate
	for _, alpha := range s.cfg.Alphas {
		var square, variance, wait pairs
		var choice dbw.Choice
		t, err := s.training(w, "dbw", alpha, s.cfg.Busy, s.seed(0))
		if err != nil {
			return nil, err
		}
		t.Steps = 2 * s.cfg.Steps
		grads := make([]float32, w.problem.Values())
		t.Chosen = func(c dbw.Choice) { choice = c }
		t.Each = func(e kintsugi.StepEvent, params []float32) bool {
			if choice.Estimate.Rate > 0 && choice.Expected > 0 {
				wait.add(choice.Expected, e.Wait.Seconds())
			}
			if e.Step%10 == 0 && choice.Estimate.Rate > 0 {
				s, v := w.problem.Moments(params, grads)
				square.add(choice.Estimate.Square, s)
				variance.add(choice.Estimate.Variance, v)
			}
			return true
		}
		if _, err := sim.Train(t); err != nil {
			return nil, err
		}
		all = append(all, square.row(alpha, "squared gradient"), variance.row(alpha, "variance"), wait.row(alpha, "seconds of a step"))
	}
	return all, nil
}

// pairs are estimates beside truths.
type pairs struct {
	estimates, truths float64
	errors            []float64
}

func (p *pairs) add(estimate, truth float64) {
	p.estimates += estimate
	p.truths += truth
	p.errors = append(p.errors, math.Abs(estimate-truth)/max(truth, 1e-12))
}

func (p *pairs) row(alpha float64, name string) DBWEstimate {
	return DBWEstimate{Alpha: alpha, Estimate: name, Looks: len(p.errors), Bias: record.Number(p.estimates/p.truths - 1), Error: record.Number(middle(p.errors))}
}

// DBWSlowdown is a run in which half of the workers become five times slower.
type DBWSlowdown struct {
	Controller string        `json:"controller"`
	Seconds    record.Number `json:"seconds"` // to the target
	Before     float64       `json:"quota_before"`
	After      float64       `json:"quota_after"`
	Settled    record.Number `json:"steps_to_settle"` // until five quotas in a row were no more than half of the workers
}

// DBWTracedQuota is a step of dbw in it.
type DBWTracedQuota struct {
	Seconds float64 `json:"seconds"`
	Quota   uint32  `json:"quota"`
	Reason  string  `json:"reason,omitempty"`
}

// slowdown slows half of the workers while the run is under way. Times do not spread, so that before it all are worth
// waiting for, and after it one half.
func (s *sweep) slowdown(w *workload) ([]DBWSlowdown, []DBWTracedQuota, error) {
	const at, alpha = 30.0, 0.0
	n := s.cfg.Workers
	var rows []DBWSlowdown
	var trace []DBWTracedQuota
	for _, name := range []string{"dbw", "bsp", fmt.Sprintf("backup:%d", n/2)} {
		t, err := s.training(w, name, alpha, s.cfg.Busy, s.seed(0))
		if err != nil {
			return nil, nil, err
		}
		t.Slow = []sim.Slowdown{{Factor: 5, Last: n/2 - 1, From: at}}
		cross := crossings{target: w.target, before: math.Inf(1), at: math.Inf(1)}
		var before, after []float64
		settled, few := math.NaN(), 0
		t.Each = func(e kintsugi.StepEvent, params []float32) bool {
			now := e.Time.Sub(sim.Epoch()).Seconds()
			if name == "dbw" {
				trace = append(trace, DBWTracedQuota{Seconds: now, Quota: e.Quota, Reason: e.Reason})
			}
			if now < at {
				before = append(before, float64(e.Quota))
			} else {
				after = append(after, float64(e.Quota))
				if few++; int(e.Quota) > n/2 {
					few = 0
				}
				if few == 5 && math.IsNaN(settled) {
					settled = float64(len(after) - 5)
				}
			}
			return e.Step%lossEvery != 0 || !cross.add(now, w.problem.Loss(params))
		}
		if _, err := sim.Train(t); err != nil {
			return nil, nil, err
		}
		rows = append(rows, DBWSlowdown{Controller: name, Seconds: record.Number(cross.at), Before: middle(before), After: middle(after), Settled: record.Number(settled)})
	}
	return rows, trace, nil
}
