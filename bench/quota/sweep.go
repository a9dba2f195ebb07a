package quota

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/virtual"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// sweep is the measurement on one data set.
type sweep struct {
	cfg      *Config
	ctx      context.Context
	model    *virtual.Softmax
	data     string
	progress *bench.Countdown
	mu       sync.Mutex // guards clocks
	clocks   map[clockKey][]float64
}

// situation is the distribution of times, and the policy of busy workers.
type situation struct {
	alpha float64
	busy  kintsugi.Busy
	slow  bool // half of the workers become slower during the run
}

// clockKey identifies a run without a model, for the release times of its steps.
type clockKey struct {
	situation
	quota int
	seed  uint64
}

// workload is a batch size and a learning rate, with the number of steps of each fixed quota to the
// target.
type workload struct {
	problem       *virtual.Softmax
	batch         int
	rate, target  float64
	steps, scaled map[int][]float64 // by quota, by seed: first the seeds to judge on, then those to choose on
}

const lossEvery = 4 // steps between two losses; the loss is interpolated linearly between them

// seed returns the i-th seed: first those to judge on, then those to choose the fixed quota on.
func (s *sweep) seed(i int) uint64 { return uint64(1 + i) }

func schedule(rate float64) conductor.Schedule {
	return conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: rate}
}

// workload determines the target, and the steps of all fixed quotas to it.
func (s *sweep) workload(batch int, rate float64) (*workload, error) {
	w := &workload{problem: s.model.WithBatch(batch), batch: batch, rate: rate, steps: make(map[int][]float64), scaled: make(map[int][]float64)}
	n := s.cfg.Workers
	ends := make([]float64, 2*s.cfg.Seeds)
	err := bench.Each(s.ctx, s.cfg.Parallel, s.cfg.Seeds, func(_ context.Context, i int) error {
		r, err := virtual.Train(virtual.Training{
			Seed: s.seed(s.cfg.Seeds + i), Workers: n, Consistency: agg.Config{Busy: kintsugi.Wait}, Schedule: schedule(rate), Steps: s.cfg.Steps,
			Problem: w.problem, Times: exponential(0), Ranked: true,
		})
		ends[i] = w.problem.Loss(r.Params)
		return err
	})
	if err != nil {
		return nil, err
	}
	w.target = bench.Mean(ends[:s.cfg.Seeds])
	type job struct {
		quota, seed int
		scaled      bool
	}
	var jobs []job
	for _, k := range s.cfg.Quotas {
		w.steps[k], w.scaled[k] = make([]float64, 2*s.cfg.Seeds), make([]float64, 2*s.cfg.Seeds)
		for i := range 2 * s.cfg.Seeds {
			jobs = append(jobs, job{k, i, false})
			if scaledQuota(k, n) {
				jobs = append(jobs, job{k, i, true})
			}
		}
	}
	return w, bench.Each(s.ctx, s.cfg.Parallel, len(jobs), func(_ context.Context, i int) error {
		j := jobs[i]
		rate, limit, to := w.rate, 4*s.cfg.Steps, w.steps
		if j.scaled {
			part := float64(j.quota) / float64(n)
			rate, limit, to = rate*part, kintsugi.Step(float64(3*s.cfg.Steps)/part), w.scaled
		}
		steps, err := s.stepsTo(w, j.quota, rate, limit, s.seed(j.seed))
		to[j.quota][j.seed] = steps
		return err
	})
}

// scaledQuota reports whether a quota is also measured at a learning rate proportional to it: each
// quarter of the workers. Small quotas would take too many steps.
func scaledQuota(k, n int) bool { return 4*k%n == 0 }

// stepsTo returns the number of steps of a fixed quota to the target, or +Inf if more than limit.
func (s *sweep) stepsTo(w *workload, quota int, rate float64, limit kintsugi.Step, seed uint64) (float64, error) {
	cross := crossings{target: w.target, before: w.problem.Loss(make([]float32, w.problem.Values())), at: math.Inf(1)}
	_, err := virtual.Train(virtual.Training{
		Seed: seed, Workers: quota, Consistency: agg.Config{Busy: kintsugi.Wait}, Schedule: schedule(rate), Steps: limit,
		Problem: w.problem, Times: exponential(0), Ranked: true,
		Each: func(e kintsugi.StepEvent, params []float32) bool {
			return e.Step%lossEvery != 0 || !cross.add(float64(e.Step), w.problem.Loss(params))
		},
	})
	return cross.at, err
}

// exponential returns times with mean one second, of which the share alpha is exponentially
// distributed.
func exponential(alpha float64) virtual.Times {
	t, err := virtual.ParseTimes(fmt.Sprintf("exp:%g", alpha), 1)
	if err != nil {
		panic(fmt.Sprintf("bench: alpha %v: %v", alpha, err)) // the caller must check its configuration
	}
	return t
}

// crossings finds where a linearly interpolated loss first reaches a target.
type crossings struct {
	target, before, when, at float64
}

// add adds the loss at a time, and reports whether it has reached the target.
func (c *crossings) add(when, loss float64) bool {
	if loss <= c.target {
		c.at = c.when + (c.before-c.target)/(c.before-loss)*(when-c.when)
		return true
	}
	c.before, c.when = loss, when
	return false
}

// clock returns the release times of the steps with a fixed quota.
func (s *sweep) clock(key clockKey, steps int) ([]float64, error) {
	s.mu.Lock()
	known := s.clocks[key]
	s.mu.Unlock()
	if len(known) >= steps {
		return known, nil
	}
	steps += steps / 2
	at := make([]float64, 1, steps+1)
	t := s.under(key.situation)
	t.Seed, t.Schedule, t.Steps, t.Problem = key.seed, schedule(0.1), kintsugi.Step(steps), virtual.NewNoisy(1, 0)
	t.Consistency = agg.Config{Quota: key.quota, Lead: kintsugi.Infinite, Busy: key.busy}
	t.Each = func(e kintsugi.StepEvent, _ []float32) bool {
		at = append(at, e.Time.Sub(virtual.Epoch()).Seconds())
		return true
	}
	_, err := virtual.Train(t)
	s.mu.Lock()
	s.clocks[key] = at
	s.mu.Unlock()
	return at, err
}

const askSeconds = 0.05 // of Pull: round trip to a server, in mean times of a gradient

// under returns a Training for a situation, with the other fields unset.
func (s *sweep) under(x situation) virtual.Training {
	t := virtual.Training{Workers: s.cfg.Workers, Times: exponential(x.alpha), Ask: askSeconds}
	if x.slow {
		t.Slow = []virtual.Slowdown{{Factor: slowFactor, Last: s.cfg.Workers/2 - 1, From: slowFrom}}
	}
	return t
}

// fixed returns the seconds of a fixed quota to the target, by seed.
func (s *sweep) fixed(steps map[int][]float64, quota int, x situation) ([]float64, error) {
	seconds := make([]float64, 2*s.cfg.Seeds)
	for i, n := range steps[quota] {
		if math.IsInf(n, 1) || n == 0 {
			seconds[i] = math.Inf(1)
			continue
		}
		at, err := s.clock(clockKey{x, quota, s.seed(i)}, int(n)+2)
		if err != nil {
			return nil, err
		}
		lo := int(n)
		seconds[i] = at[lo] + (n-float64(lo))*(at[lo+1]-at[lo])
	}
	return seconds, nil
}

// best chooses the fixed quota that is fastest on the seeds to choose on, and returns its time on
// the seeds to judge on.
func (s *sweep) best(steps map[int][]float64, x situation) (quota int, seconds float64, err error) {
	least := math.Inf(1)
	seconds = math.Inf(1)
	for _, k := range s.cfg.Quotas {
		t, err := s.fixed(steps, k, x)
		if err != nil {
			return 0, 0, err
		}
		if m := bench.Mean(t[s.cfg.Seeds:]); m < least {
			quota, least, seconds = k, m, bench.Mean(t[:s.cfg.Seeds])
		}
	}
	return quota, seconds, nil
}
