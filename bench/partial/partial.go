// Package partial asks how many steps the loss of a server costs, and how many of them partial
// recovery and prioritised checkpoints avoid (SCAR; Qiao et al., 2019). A training run loses a part
// of its model and continues with what its checkpoints restore, at equal numbers of saved bytes.
// Rework is how many steps later it reaches the final loss of the undisturbed run. The claims that
// could be false: restoring only what was lost costs less than going back to a checkpoint; saving
// what has moved furthest costs less than saving in turn, and saving at random costs more; and a
// shadow that is updated by small deltas costs less than all of them.
//
// Everything happens in one process. A trial is the recovered state and the steps after it; all
// trials of a workload share one undisturbed path. The failure happens after step T and before the
// save at T.
package partial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/recovery/ledger"
)

// Config configures Run.
type Config struct {
	Problems   []Problem
	Lost       []float64 // shares of the model's blocks that a failure destroys
	Periods    []int     // C: as many bytes as the model has are saved in C steps
	Strategies []string  // see Strategies
	Contiguous bool      // the lost blocks are contiguous, as with shards that are parts of layers, instead of random
	Trials     int       // number for each cell, over all seeds
	Seeds      int       // number of undisturbed paths
	Threads    int       // number of jobs at the same time; no result depends on it
	Progress   io.Writer
}

// Problem is an algorithm and its data.
type Problem struct {
	Name, Data string
	Steps      int // number in the undisturbed run

	// Open returns a workload that computes in one goroutine, for runs with one seed.
	Open func(seed uint64) (Workload, error)
}

// Workload is an algorithm that improves a state step by step. Each step is a function of the
// state and the number of the step, so going back to a version and repeating the steps gives the
// same bits.
type Workload interface {
	// Blocks returns the units of loss and saving. A state has values parameters, followed by
	// arrays−1 more arrays of the same length, such as the optimizer's. A block has the same range
	// in each of them.
	Blocks() (blocks []Block, values, arrays int)

	Init(state []float32) error
	Step(state []float32, version int) error // makes version + 1 from version
	Loss(state []float32) (float64, error)
	Close() error
}

// Block is the range [Lo, Hi) of each of a state's arrays.
type Block struct{ Lo, Hi int }

// distancer is a workload with another distance than the Euclidean.
type distancer interface {
	Distance(b Block, x, saved []float32) float64
}

// gradienter is a workload whose steps follow gradients.
type gradienter interface {
	// Gradient returns the gradient of the step that makes version + 1, without making that step.
	Gradient(state []float32, version int) ([]float32, error)

	// SquaredGradients returns the mean squares of the gradient's values, times any constant, if
	// the state has them, and otherwise nil.
	SquaredGradients(state []float32) []float32
}

// riser is a workload whose values are not points of a smooth curve, but which can still
// compute how much older saved values raise the loss, times any constant.
type riser interface {
	Rise(b Block, x, saved []float32) float64
}

// limiter is a workload whose values are integers below a limit.
type limiter interface{ Limit() int }

// toucher is a workload whose steps change only some blocks.
type toucher interface {
	// Touched calls touch for each change of a block in the step that makes version + 1.
	Touched(version int, touch func(block int))
}

// Row is one strategy with one kind of failure.
type Row struct {
	Name     string  `json:"name"`
	Workload string  `json:"workload"`
	Data     string  `json:"data"`
	Values   int     `json:"values"`
	Blocks   int     `json:"blocks"`
	Steps    int     `json:"steps"` // number in the undisturbed run
	Lost     float64 `json:"lost"`
	Period   int     `json:"period"`
	Strategy string  `json:"strategy"`
	Trials   int     `json:"trials"`

	Bytes     float64       `json:"bytes"`             // saved in C steps, relative to those of the model
	Baseline  float64       `json:"baseline_rework"`   // steps, mean: with full checkpoints and full restores
	Rework    float64       `json:"rework"`            // steps, mean
	Reduction float64       `json:"reduction"`         // 1 − Σrework/Σbaseline
	Low       float64       `json:"reduction_low"`     // bootstrap 95 % interval
	High      float64       `json:"reduction_high"`    //
	Predicted record.Number `json:"predicted_rework"`  // steps, mean of the known ones: by the ledger, from the loss right after the recovery
	Avoidable float64       `json:"avoidable_share"`   // share of what a replica avoids
	Worse     float64       `json:"worse"`             // share of trials that cost more than the baseline
	Paper     string        `json:"paper,omitempty"`   // the published reduction
	Missing   string        `json:"missing,omitempty"` // why there are no results
}

// failureTrial is one failure, the same for every strategy.
type failureTrial struct {
	failed int   // the failure is after this step
	order  []int // order of the blocks; the first ones are lost
}

// outcome is the result of one strategy in the trials with one period.
type outcome struct {
	bytes     float64
	rework    [][]float64 // by lost share, by trial
	predicted [][]float64
	missing   string
}

// Run measures all strategies.
func Run(ctx context.Context, cfg Config) ([]Row, error) {
	var rows []Row
	for _, p := range cfg.Problems {
		r, err := cfg.problem(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", p.Name, p.Data, err)
		}
		rows = append(rows, r...)
	}
	return rows, nil
}

// job is one strategy with one period on one path.
type job struct {
	seed     int
	path     *course
	period   int
	strategy string
	trials   []failureTrial
	cell     outcome
}

func (cfg *Config) problem(ctx context.Context, p Problem) ([]Row, error) {
	var jobs []*job
	for seed := range cfg.Seeds {
		path, err := newCourse(p, uint64(seed+1))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(cfg.Progress, "%s on %s, seed %d: %d steps, %d values in %d blocks; the loss falls from %.4g to %.4g at step %.2f\n",
			p.Name, p.Data, seed+1, p.Steps, path.values, len(path.blocks), path.loss[0], path.target, path.end)
		for _, period := range cfg.Periods {
			trials := path.trials(period, cfg.Trials*(seed+1)/cfg.Seeds-cfg.Trials*seed/cfg.Seeds, uint64(seed), cfg.Contiguous)
			for _, s := range cfg.Strategies {
				jobs = append(jobs, &job{seed: seed, path: path, period: period, strategy: s, trials: trials})
			}
		}
	}
	if err := cfg.all(ctx, p, jobs); err != nil {
		return nil, err
	}
	return cfg.rows(p, jobs), nil
}

// all makes the jobs, several at a time.
func (cfg *Config) all(ctx context.Context, p Problem, jobs []*job) error {
	progress := bench.NewCountdown(cfg.Progress, len(jobs))
	return bench.Each(ctx, cfg.Threads, len(jobs), func(ctx context.Context, i int) error {
		j := jobs[i]
		if err := j.run(ctx, p, cfg.Lost); err != nil {
			return fmt.Errorf("%s, C = %d: %w", j.strategy, j.period, err)
		}
		progress.Ended(fmt.Sprintf("%s on %s: %s, C = %d, seed %d", p.Name, p.Data, j.strategy, j.period, j.seed+1))
		return nil
	})
}

// run goes along the path with the strategy's saves, and recovers from each failure on the way.
func (j *job) run(ctx context.Context, p Problem, lost []float64) error {
	j.cell.rework, j.cell.predicted = make([][]float64, len(lost)), make([][]float64, len(lost))
	if j.path.end < float64(6*j.period) {
		j.cell.missing = fmt.Sprintf("the undisturbed run ends after %.0f steps, fewer than 6·C", j.path.end)
		return nil
	}
	w, err := p.Open(uint64(j.seed + 1))
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }() // it has nothing to lose
	keeper, err := newKeeper(j.strategy, j.path, w, j.period)
	if no, ok := errors.AsType[mismatch](err); ok {
		j.cell.missing = no.Error()
		return nil
	}
	if err != nil {
		return err
	}
	r := recovery{path: j.path, workload: w, keeper: keeper, book: ledger.New(10), x: make([]float32, len(j.path.states[0]))}
	for version, state := range j.path.states {
		r.book.Observe(ledger.Step{Step: kintsugi.Step(version), Loss: j.path.loss[version]})
		for _, trial := range j.trials {
			for i, share := range lost {
				if trial.failed != version {
					continue
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				rework, predicted, err := r.fail(version, trial.lost(share))
				if err != nil {
					return err
				}
				if math.IsInf(rework, 1) {
					j.cell.missing = fmt.Sprintf("after a failure at step %d it did not come back in %d steps", version, patience*j.path.last())
					return nil
				}
				j.cell.rework[i], j.cell.predicted[i] = append(j.cell.rework[i], rework), append(j.cell.predicted[i], predicted)
			}
		}
		if err := keeper.save(state, version); err != nil {
			return err
		}
	}
	j.cell.bytes = float64(keeper.bytes()) * float64(j.period) / float64(j.path.last()) / float64(j.path.bytes())
	return nil
}

// recovery is what is needed to recover from a failure.
type recovery struct {
	path     *course
	workload Workload
	keeper   keeper
	book     *ledger.Ledger
	x        []float32
}

// fail loses blocks at a version, recovers, and continues. rework is +Inf if the target is not
// reached. predicted is the ledger's prediction from the loss right after the recovery, or NaN if
// the ledger cannot predict.
func (r *recovery) fail(version int, lost []int) (rework, predicted float64, err error) {
	copy(r.x, r.path.states[version])
	back, err := r.keeper.restore(r.x, version, lost)
	if err != nil {
		return 0, 0, err
	}
	loss, err := r.workload.Loss(r.x)
	if err != nil {
		return 0, 0, err
	}
	predicted, ok := r.book.Steps(loss - r.path.loss[version])
	if !ok {
		predicted = math.NaN()
	}
	if back < version { // it repeats the same steps, to the bit
		return float64(version - back), predicted, nil
	}
	rework, ok, err = r.path.reworkFrom(r.workload, r.x, version, loss)
	if !ok {
		rework = math.Inf(1)
	}
	return rework, predicted, err
}

// lost returns the blocks that are lost.
func (t failureTrial) lost(share float64) []int {
	return t.order[:max(1, int(math.Round(share*float64(len(t.order)))))]
}

// trials draws failures, uniformly from step 2C to the end of the path.
func (p *course) trials(period, n int, seed uint64, contiguous bool) []failureTrial {
	rng := rand.New(rand.NewPCG(seed, uint64(period)))
	list := make([]failureTrial, n)
	for i := range list {
		last := max(2*period+1, int(math.Ceil(p.end)))
		list[i] = failureTrial{failed: 2*period + rng.IntN(last-2*period), order: rng.Perm(len(p.blocks))}
		if order := list[i].order; contiguous {
			for b, first := 0, order[0]; b < len(order); b++ {
				order[b] = (first + b) % len(order)
			}
		}
	}
	return list
}
