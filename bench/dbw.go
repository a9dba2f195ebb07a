package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/sim"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

// Question: do dynamic backup workers find the best quota by themselves? The claims that could be false are those
// of Claims in dbw_claims.go: how near dbw comes to the best fixed quota, which is chosen on other seeds than it
// is judged on, and whether it beats its rivals.
//
// Gradients are real and time is virtual. With a fixed quota k the model depends on k and the seed alone (see
// sim.Training.Ranked), so that the loss after each step is computed once for all distributions of times and
// all ways of a busy worker, and the moments of the steps once for all models: the sweep over all quotas costs
// little more than the controllers.

// DBWConfig says what DBW measures.
type DBWConfig struct {
	Set         *data.Set
	Examples    int // of the set that are trained on
	Workers     int
	Busy        kintsugi.Busy
	Batches     []int
	Rates       []float64 // learning rates
	Alphas      []float64 // part of a gradient's time that is exponential
	Quotas      []int     // fixed quotas to compare with
	Controllers []string
	Seeds       int           // to judge on, and as many to choose on
	Steps       kintsugi.Step // after which a step of all workers has the loss that is the target
	Parallel    int
	Progress    io.Writer
}

// DBWRow is one controller in one cell.
type DBWRow struct {
	Name       string        `json:"name"`
	Busy       string        `json:"busy"`
	Batch      int           `json:"batch"`
	Rate       float64       `json:"learning_rate"`
	Alpha      float64       `json:"alpha"`
	Target     float64       `json:"target_loss"`
	BestQuota  int           `json:"best_quota"`          // fixed, at the same learning rate
	Best       record.Number `json:"best_seconds"`        // to the target with it
	All        record.Number `json:"all_seconds"`         // with a quota of all workers
	Scaled     record.Number `json:"best_scaled_seconds"` // with the best fixed quota at a rate proportional to it; null: not measured
	Controller string        `json:"controller"`
	Seconds    record.Number `json:"seconds"`
	Ratio      record.Number `json:"ratio"` // to Best
	Quota      float64       `json:"mean_quota"`
}

// DBWResult is what DBW found.
type DBWResult struct {
	Cells     []DBWRow         `json:"cells"`
	Ways      []DBWRow         `json:"ways_of_a_busy_worker"`
	Estimates []DBWEstimate    `json:"estimates"`
	Slowdown  []DBWSlowdown    `json:"slowdown"`
	Claims    []Claim          `json:"claims"`
	Trace     []DBWTracedQuota `json:"slowdown_quotas"`
}

// DBW measures it.
func DBW(ctx context.Context, cfg DBWConfig) (*DBWResult, error) {
	model, err := sim.NewSoftmax(cfg.Set, cfg.Examples, 4, 1)
	if err != nil {
		return nil, err
	}
	s := &sweep{cfg: &cfg, ctx: ctx, model: model, clocks: make(map[clockKey][]float64)}
	var r DBWResult
	for _, batch := range cfg.Batches {
		for _, rate := range cfg.Rates {
			w, err := s.workload(batch, rate)
			if err != nil {
				return nil, err
			}
			rows, err := s.cells(w, cfg.Busy, cfg.Alphas, cfg.Controllers)
			if err != nil {
				return nil, err
			}
			r.Cells = append(r.Cells, rows...)
			fmt.Fprintf(cfg.Progress, "batch %d, learning rate %g: done\n", batch, rate)
			if batch != cfg.Batches[len(cfg.Batches)/2] || rate != cfg.Rates[len(cfg.Rates)-1] {
				continue
			}
			for _, busy := range []kintsugi.Busy{kintsugi.Interrupt, kintsugi.Wait, kintsugi.Pull} {
				rows, err := s.cells(w, busy, cfg.Alphas, []string{"dbw"})
				if err != nil {
					return nil, err
				}
				r.Ways = append(r.Ways, rows...)
			}
			if r.Estimates, err = s.estimates(w); err != nil {
				return nil, err
			}
			if r.Slowdown, r.Trace, err = s.slowdown(w); err != nil {
				return nil, err
			}
		}
	}
	r.Claims = dbwClaims(&r)
	return &r, nil
}

// sweep is a measurement under way.
type sweep struct {
	cfg    *DBWConfig
	ctx    context.Context
	model  *sim.Softmax
	mu     sync.Mutex // guards clocks
	clocks map[clockKey][]float64
}

// clockKey names a run without a model: when each step is released.
type clockKey struct {
	alpha float64
	busy  kintsugi.Busy
	quota int
	seed  uint64
}

// workload is a batch size and a learning rate, and how many steps each fixed quota takes to the target.
type workload struct {
	problem       *sim.Softmax
	batch         int
	rate, target  float64
	steps, scaled map[int][]float64 // by quota, by seed: those to judge on, then those to choose on
}

const lossEvery = 4 // steps between two looks at the loss; between them it is a straight line

// seeds are those to judge on, and then those to choose the fixed quota on.
func (s *sweep) seed(i int) uint64 { return uint64(1 + i) }

func schedule(rate float64) conductor.Schedule {
	return conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: rate}
}

// workload finds the target and the steps of all fixed quotas to it.
func (s *sweep) workload(batch int, rate float64) (*workload, error) {
	w := &workload{problem: s.model.WithBatch(batch), batch: batch, rate: rate, steps: make(map[int][]float64), scaled: make(map[int][]float64)}
	n := s.cfg.Workers
	ends := make([]float64, 2*s.cfg.Seeds)
	err := each(s.ctx, s.cfg.Parallel, s.cfg.Seeds, func(_ context.Context, i int) error {
		r, err := sim.Train(sim.Training{
			Seed: s.seed(s.cfg.Seeds + i), Workers: n, Consistency: agg.Config{Busy: kintsugi.Wait}, Schedule: schedule(rate), Steps: s.cfg.Steps,
			Problem: w.problem, Times: constantTimes(), Ranked: true,
		})
		ends[i] = w.problem.Loss(r.Params)
		return err
	})
	if err != nil {
		return nil, err
	}
	w.target = mean(ends[:s.cfg.Seeds])
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
	return w, each(s.ctx, s.cfg.Parallel, len(jobs), func(_ context.Context, i int) error {
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

// scaledQuota reports whether a quota is also measured at a rate proportional to it: each quarter of the workers. A
// small one would take steps without end.
func scaledQuota(k, n int) bool { return 4*k%n == 0 }

// stepsTo returns how many steps a fixed quota takes to the target, +Inf for more than limit.
func (s *sweep) stepsTo(w *workload, quota int, rate float64, limit kintsugi.Step, seed uint64) (float64, error) {
	cross := crossings{target: w.target, before: w.problem.Loss(make([]float32, w.problem.Values())), at: math.Inf(1)}
	_, err := sim.Train(sim.Training{
		Seed: seed, Workers: quota, Consistency: agg.Config{Busy: kintsugi.Wait}, Schedule: schedule(rate), Steps: limit,
		Problem: w.problem, Times: constantTimes(), Ranked: true,
		Each: func(e kintsugi.StepEvent, params []float32) bool {
			return e.Step%lossEvery != 0 || !cross.add(float64(e.Step), w.problem.Loss(params))
		},
	})
	return cross.at, err
}

func constantTimes() sim.Times {
	t, err := sim.ParseTimes("constant", 1)
	if err != nil {
		panic(fmt.Sprintf("bench: constant times: %v", err)) // the spec is one that is read
	}
	return t
}

// crossings finds where a loss, drawn as straight lines, first meets a target.
type crossings struct {
	target, before, when, at float64
}

// add takes the loss at a moment and reports whether it has met the target.
func (c *crossings) add(when, loss float64) bool {
	if loss <= c.target {
		c.at = c.when + (c.before-c.target)/(c.before-loss)*(when-c.when)
		return true
	}
	c.before, c.when = loss, when
	return false
}

// clock returns when each step with a fixed quota is released.
func (s *sweep) clock(key clockKey, steps int) ([]float64, error) {
	s.mu.Lock()
	known := s.clocks[key]
	s.mu.Unlock()
	if len(known) >= steps {
		return known, nil
	}
	times, err := sim.ParseTimes(fmt.Sprintf("exp:%g", key.alpha), 1)
	if err != nil {
		return nil, err
	}
	steps += steps / 2
	at := make([]float64, 1, steps+1)
	_, err = sim.Train(sim.Training{
		Seed: key.seed, Workers: s.cfg.Workers, Schedule: schedule(0.1), Steps: kintsugi.Step(steps), Problem: sim.NewNoisy(1, 0), Times: times, Ask: askSeconds,
		Consistency: agg.Config{Quota: key.quota, Lead: kintsugi.Infinite, Busy: key.busy},
		Each: func(e kintsugi.StepEvent, _ []float32) bool {
			at = append(at, e.Time.Sub(sim.Epoch()).Seconds())
			return true
		},
	})
	s.mu.Lock()
	s.clocks[key] = at
	s.mu.Unlock()
	return at, err
}

const askSeconds = 0.05 // of Pull: the way to a server and back, in mean times of a gradient

// fixed returns the seconds to the target of a fixed quota, by seed.
func (s *sweep) fixed(steps map[int][]float64, quota int, alpha float64, busy kintsugi.Busy) ([]float64, error) {
	seconds := make([]float64, 2*s.cfg.Seeds)
	for i, n := range steps[quota] {
		if math.IsInf(n, 1) || n == 0 {
			seconds[i] = math.Inf(1)
			continue
		}
		at, err := s.clock(clockKey{alpha, busy, quota, s.seed(i)}, int(n)+2)
		if err != nil {
			return nil, err
		}
		lo := int(n)
		seconds[i] = at[lo] + (n-float64(lo))*(at[lo+1]-at[lo])
	}
	return seconds, nil
}

// best chooses the fixed quota that is fastest on the seeds to choose on, and returns what it takes on those to judge on.
func (s *sweep) best(steps map[int][]float64, alpha float64, busy kintsugi.Busy) (quota int, seconds float64, err error) {
	least := math.Inf(1)
	seconds = math.Inf(1)
	for _, k := range s.cfg.Quotas {
		t, err := s.fixed(steps, k, alpha, busy)
		if err != nil {
			return 0, 0, err
		}
		if m := mean(t[s.cfg.Seeds:]); m < least {
			quota, least, seconds = k, m, mean(t[:s.cfg.Seeds])
		}
	}
	return quota, seconds, nil
}

// cells measures controllers on a workload, for each spread of times.
func (s *sweep) cells(w *workload, busy kintsugi.Busy, alphas []float64, controllers []string) ([]DBWRow, error) {
	rows := make([]DBWRow, len(alphas)*len(controllers))
	err := each(s.ctx, s.cfg.Parallel, len(rows), func(_ context.Context, i int) (err error) {
		alpha, controller := alphas[i/len(controllers)], controllers[i%len(controllers)]
		r := DBWRow{
			Name: fmt.Sprintf("dbw/%s/batch=%d/rate=%g/alpha=%g/%s", busyNames[busy], w.batch, w.rate, alpha, controller),
			Busy: busyNames[busy], Batch: w.batch, Rate: w.rate, Alpha: alpha, Target: w.target, Controller: controller,
		}
		var best, scaled float64
		if r.BestQuota, best, err = s.best(w.steps, alpha, busy); err != nil {
			return err
		}
		if _, scaled, err = s.best(w.scaled, alpha, busy); err != nil {
			return err
		}
		all, err := s.fixed(w.steps, s.cfg.Workers, alpha, busy)
		if err != nil {
			return err
		}
		seconds, quotas := make([]float64, s.cfg.Seeds), make([]float64, s.cfg.Seeds)
		for seed := range seconds {
			if seconds[seed], quotas[seed], err = s.run(w, controller, alpha, busy, s.seed(seed)); err != nil {
				return err
			}
		}
		r.Best, r.Scaled, r.All = record.Number(best), record.Number(scaled), record.Number(mean(all[:s.cfg.Seeds]))
		r.Seconds, r.Quota = record.Number(mean(seconds)), mean(quotas)
		r.Ratio = r.Seconds / r.Best
		rows[i] = r
		return nil
	})
	return rows, err
}

var busyNames = map[kintsugi.Busy]string{kintsugi.Interrupt: "interrupt", kintsugi.Wait: "wait", kintsugi.Pull: "pull"}

// run trains with a controller to the target, and returns the seconds and the mean quota.
func (s *sweep) run(w *workload, controller string, alpha float64, busy kintsugi.Busy, seed uint64) (seconds, quota float64, err error) {
	cross := crossings{target: w.target, before: w.problem.Loss(make([]float32, w.problem.Values())), at: math.Inf(1)}
	quotas, steps := 0.0, 0.0
	t, err := s.training(w, controller, alpha, busy, seed)
	if err != nil {
		return 0, 0, err
	}
	t.Each = func(e kintsugi.StepEvent, params []float32) bool {
		quotas, steps = quotas+float64(e.Quota), steps+1
		return e.Step%lossEvery != 0 || !cross.add(e.Time.Sub(sim.Epoch()).Seconds(), w.problem.Loss(params))
	}
	_, err = sim.Train(t)
	return cross.at, quotas / max(1, steps), err
}

// training returns the run of a controller.
func (s *sweep) training(w *workload, controller string, alpha float64, busy kintsugi.Busy, seed uint64) (sim.Training, error) {
	times, err := sim.ParseTimes(fmt.Sprintf("exp:%g", alpha), 1)
	if err != nil {
		return sim.Training{}, err
	}
	c, err := agg.Preset(controller)
	c.Busy = busy
	return sim.Training{
		Seed: seed, Workers: s.cfg.Workers, Consistency: c, Schedule: schedule(w.rate), Steps: 8 * s.cfg.Steps,
		Problem: w.problem, Times: times, Ask: askSeconds, Ranked: true,
	}, err
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// middle returns the median.
func middle(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
