package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/recovery/ledger"
)

// Question: how many steps does the loss of a server cost, and how many of them need not be lost? A
// training run loses a part of its model and goes on with what its checkpoints give back, at equal
// bytes saved. Rework is how many steps later it reaches the loss that the undisturbed run ends
// with. The claims that could be false: restoring only what was lost costs less than going back to
// a checkpoint; saving what moved furthest costs less than saving in turn, and at random more; and
// a shadow that is sent small deltas costs less than all of them.
//
// Everything happens in one process: a trial is the recovered state and the steps behind it, and all trials of a
// workload share one undisturbed path. The failure strikes after step T and before what would be saved at T.

// ScarConfig says what Scar measures.
type ScarConfig struct {
	Problems   []ScarProblem
	Lost       []float64 // shares of the model's blocks that a failure takes
	Periods    []int     // C: the bytes of one model are saved in C steps
	Strategies []string  // see ScarStrategies
	Contiguous bool      // what is lost is a run of blocks, as with shards that are parts of layers, and not any blocks
	Trials     int       // for each cell, over all seeds
	Seeds      int       // undisturbed paths
	Threads    int       // jobs at the same time; no figure depends on it
	Progress   io.Writer
}

// ScarProblem is an algorithm and its data.
type ScarProblem struct {
	Name, Data string
	Steps      int // of the undisturbed run

	// Open returns what computes in one goroutine, for runs with one seed.
	Open func(seed uint64) (ScarWorkload, error)
}

// ScarWorkload is an algorithm that improves a state step by step. Each step is a function of the state and its
// number, so that going back to a version and repeating makes the same bits.
type ScarWorkload interface {
	// Blocks returns what is lost and saved as one. Values and arrays give the length of a state: values parameters,
	// and behind them arrays−1 more of the same length that a block has in the same places, such as an optimizer's.
	Blocks() (blocks []ScarBlock, values, arrays int)

	Init(state []float32) error
	Step(state []float32, version int) error // makes version + 1 of version
	Loss(state []float32) (float64, error)
	Close() error
}

// ScarBlock is the values [Lo, Hi) of a state's arrays.
type ScarBlock struct{ Lo, Hi int }

// scarDistancer is a workload whose values are not at a Euclidean distance.
type scarDistancer interface {
	Distance(b ScarBlock, x, saved []float32) float64
}

// scarGradienter is a workload whose steps go along gradients.
type scarGradienter interface {
	// Gradient returns that of the step that makes version + 1, which does not keep it.
	Gradient(state []float32, version int) ([]float32, error)

	// SquaredGradients returns the mean squares of the gradient's values, times any constant, where
	// the state has them; else nil.
	SquaredGradients(state []float32) []float32
}

// scarRiser is a workload whose values are no coordinates of a curve, and that knows all the same
// by how much saved ones lift the loss, times any constant.
type scarRiser interface {
	Rise(b ScarBlock, x, saved []float32) float64
}

// scarLimiter is a workload whose values are whole numbers below a limit.
type scarLimiter interface{ Limit() int }

// scarToucher is a workload whose steps change some blocks only.
type scarToucher interface {
	// Touched calls touch for each change of a block in the step that makes version + 1.
	Touched(version int, touch func(block int))
}

// ScarRow is one strategy under one kind of failure.
type ScarRow struct {
	Name     string  `json:"name"`
	Workload string  `json:"workload"`
	Data     string  `json:"data"`
	Values   int     `json:"values"`
	Blocks   int     `json:"blocks"`
	Steps    int     `json:"steps"` // of the undisturbed run
	Lost     float64 `json:"lost"`
	Period   int     `json:"period"`
	Strategy string  `json:"strategy"`
	Trials   int     `json:"trials"`

	Bytes     float64       `json:"bytes"`             // saved in C steps, over those of the model
	Baseline  float64       `json:"baseline_rework"`   // steps, mean: full checkpoint, full restore
	Rework    float64       `json:"rework"`            // steps, mean
	Reduction float64       `json:"reduction"`         // 1 − Σrework/Σbaseline
	Low       float64       `json:"reduction_low"`     // bootstrap 95 % interval
	High      float64       `json:"reduction_high"`    //
	Predicted record.Number `json:"predicted_rework"`  // steps, mean where it is known: by the ledger, from the loss right after the recovery
	Avoidable float64       `json:"avoidable_share"`   // of what a replica avoids
	Worse     float64       `json:"worse"`             // share of trials that cost more than the baseline
	Paper     string        `json:"paper,omitempty"`   // the published reduction
	Missing   string        `json:"missing,omitempty"` // why there are no figures
}

// scarTrial is one failure. It strikes every strategy alike.
type scarTrial struct {
	failed int   // after this step
	order  []int // of the blocks; the first ones are lost
}

// scarCell is what one strategy made of the trials with one period.
type scarCell struct {
	bytes     float64
	rework    [][]float64 // by share lost, by trial
	predicted [][]float64
	missing   string
}

// Scar measures all strategies.
func Scar(ctx context.Context, cfg ScarConfig) ([]ScarRow, error) {
	var rows []ScarRow
	for _, p := range cfg.Problems {
		r, err := cfg.problem(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", p.Name, p.Data, err)
		}
		rows = append(rows, r...)
	}
	return rows, nil
}

// scarJob is one strategy with one period on one path.
type scarJob struct {
	seed     int
	path     *scarPath
	period   int
	strategy string
	trials   []scarTrial
	cell     scarCell
}

func (cfg *ScarConfig) problem(ctx context.Context, p ScarProblem) ([]ScarRow, error) {
	var jobs []*scarJob
	for seed := range cfg.Seeds {
		path, err := newScarPath(p, uint64(seed+1))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(cfg.Progress, "%s on %s, seed %d: %d steps, %d values in %d blocks; the loss falls from %.4g to %.4g at step %.2f\n",
			p.Name, p.Data, seed+1, p.Steps, path.values, len(path.blocks), path.loss[0], path.target, path.end)
		for _, period := range cfg.Periods {
			trials := path.trials(period, cfg.Trials*(seed+1)/cfg.Seeds-cfg.Trials*seed/cfg.Seeds, uint64(seed), cfg.Contiguous)
			for _, s := range cfg.Strategies {
				jobs = append(jobs, &scarJob{seed: seed, path: path, period: period, strategy: s, trials: trials})
			}
		}
	}
	if err := cfg.all(ctx, p, jobs); err != nil {
		return nil, err
	}
	return cfg.rows(p, jobs), nil
}

// all does the jobs, several at a time.
func (cfg *ScarConfig) all(ctx context.Context, p ScarProblem, jobs []*scarJob) error {
	progress := newCountdown(cfg.Progress, len(jobs))
	return each(ctx, cfg.Threads, len(jobs), func(ctx context.Context, i int) error {
		j := jobs[i]
		if err := j.run(ctx, p, cfg.Lost); err != nil {
			return fmt.Errorf("%s, C = %d: %w", j.strategy, j.period, err)
		}
		progress.ended(fmt.Sprintf("%s on %s: %s, C = %d, seed %d", p.Name, p.Data, j.strategy, j.period, j.seed+1))
		return nil
	})
}

// run walks along the path with what the strategy keeps, and recovers from each failure on the way.
func (j *scarJob) run(ctx context.Context, p ScarProblem, lost []float64) error {
	j.cell.rework, j.cell.predicted = make([][]float64, len(lost)), make([][]float64, len(lost))
	if j.path.end < float64(6*j.period) {
		j.cell.missing = fmt.Sprintf("the undisturbed run ends after %.0f steps, fewer than 6·C", j.path.end)
		return nil
	}
	w, err := p.Open(uint64(j.seed + 1))
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }() // it holds nothing that could be lost
	keeper, err := newScarKeeper(j.strategy, j.path, w, j.period)
	if no, ok := errors.AsType[scarMismatch](err); ok {
		j.cell.missing = no.Error()
		return nil
	}
	if err != nil {
		return err
	}
	r := scarRecovery{path: j.path, workload: w, keeper: keeper, book: ledger.New(10), x: make([]float32, len(j.path.states[0]))}
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
					j.cell.missing = fmt.Sprintf("after a failure at step %d it did not come back in %d steps", version, scarPatience*j.path.last())
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

// scarRecovery is what a failure is recovered with.
type scarRecovery struct {
	path     *scarPath
	workload ScarWorkload
	keeper   scarKeeper
	book     *ledger.Ledger
	x        []float32
}

// fail loses blocks at a version, recovers and runs on. rework is +Inf if that does not come to an
// end; predicted is what the ledger says of the loss right after the recovery, NaN where it does
// not know.
func (r *scarRecovery) fail(version int, lost []int) (rework, predicted float64, err error) {
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
	if back < version { // it repeats its steps, to the bit
		return float64(version - back), predicted, nil
	}
	rework, ok, err = r.path.reworkFrom(r.workload, r.x, version, loss)
	if !ok {
		rework = math.Inf(1)
	}
	return rework, predicted, err
}

// lost returns the blocks that are lost.
func (t scarTrial) lost(share float64) []int {
	return t.order[:max(1, int(math.Round(share*float64(len(t.order)))))]
}

// trials draws failures, evenly from step 2C to the end of the path.
func (p *scarPath) trials(period, n int, seed uint64, contiguous bool) []scarTrial {
	rng := rand.New(rand.NewPCG(seed, uint64(period)))
	list := make([]scarTrial, n)
	for i := range list {
		last := max(2*period+1, int(math.Ceil(p.end)))
		list[i] = scarTrial{failed: 2*period + rng.IntN(last-2*period), order: rng.Perm(len(p.blocks))}
		if order := list[i].order; contiguous {
			for b, first := 0, order[0]; b < len(order); b++ {
				order[b] = (first + b) % len(order)
			}
		}
	}
	return list
}
