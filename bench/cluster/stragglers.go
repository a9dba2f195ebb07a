package cluster

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/internal/process"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Question: what does one slow worker cost, with real processes and each way to count gradients?
// The claim that could be false: if one of four workers is five times slower, dbw makes at least
// three times as many steps per second as bsp, and reaches the same loss earlier.
//
// In each round, the target is the highest of the final losses of all runs: so all of them reach
// it, each in its own time. A loss is the mean over the counted gradients of the last 20 steps.
//
// The results depend on the number of cores. Workers that share a core slow each other down, and a
// slow worker computes before it waits. With fewer cores than workers, a step of bsp takes five
// times as long as a gradient among other workers; and a step that does not wait for the slow
// worker still shares its cores with the gradient that is given up. The column with the other
// workers' computing time shows this effect: with a core for each worker, no gradient takes longer
// because of another.

// StragglersConfig configures Stragglers.
type StragglersConfig struct {
	Presets          []string // the others are compared with the first
	Fault            string   // in all runs except the calm one
	Workers, Servers int
	Steps, Rounds    int
	Binary           string
	Flags            []string // for train, in addition to the above
	Progress         io.Writer
}

// StragglersRow is one way of counting over all rounds: medians, and ratios within a round with
// their ranges.
type StragglersRow struct {
	Name   string `json:"name"`
	Preset string `json:"preset"`
	Fault  string `json:"fault"` // empty: a calm run, for comparison
	Rounds int    `json:"rounds"`

	StepsPerSecond float64 `json:"steps_per_s"`
	Ratio          float64 `json:"steps_ratio"` // to the first preset with the fault
	RatioMin       float64 `json:"steps_ratio_min"`
	RatioMax       float64 `json:"steps_ratio_max"`

	Seconds  float64 `json:"seconds_to_loss"`
	Speed    float64 `json:"loss_ratio"` // how many times faster than the first preset
	SpeedMin float64 `json:"loss_ratio_min"`
	SpeedMax float64 `json:"loss_ratio_max"`

	Quota     float64       `json:"mean_quota"`
	Late      float64       `json:"late_per_step"`     // gradients that were finished but not counted
	GivenUp   float64       `json:"given_up_per_step"` // gradients that were not finished
	Computing float64       `json:"compute_ms"`        // median time of the gradients of workers that were not slowed down
	Accuracy  record.Number `json:"final_accuracy"`    // unknown for models without one
}

// straggled is the result of one run.
type straggled struct {
	rate, quota, late, given, computing, accuracy float64
	times, losses                                 []float64 // by step: seconds since the first step, and the smoothed loss
}

// Stragglers makes runs with each preset in turn, and with the first one without the fault, in
// rounds.
func Stragglers(ctx context.Context, cfg StragglersConfig) ([]StragglersRow, error) {
	rows := []StragglersRow{{Name: "stragglers/calm/" + cfg.Presets[0], Preset: cfg.Presets[0], Rounds: cfg.Rounds}}
	for _, p := range cfg.Presets {
		rows = append(rows, StragglersRow{Name: "stragglers/" + p, Preset: p, Fault: cfg.Fault, Rounds: cfg.Rounds})
	}
	rounds := make([][]straggled, cfg.Rounds)
	for i := range rounds {
		rounds[i] = make([]straggled, len(rows))
		for j := range rows {
			if i%2 == 1 { // forward and backward in turn, so that a machine that slows down slows all of them
				j = len(rows) - 1 - j
			}
			s, err := cfg.run(ctx, i, rows[j])
			if err != nil {
				return nil, err
			}
			rounds[i][j] = s
			fmt.Fprintf(cfg.Progress, "round %d of %d, %s: %.1f steps/s, quota %.1f, accuracy %.4f\n", i+1, cfg.Rounds, rows[j].Name, s.rate, s.quota, s.accuracy)
		}
	}
	for j := range rows {
		rows[j].fill(rounds, j)
	}
	return rows, nil
}

func (cfg *StragglersConfig) run(ctx context.Context, round int, row StragglersRow) (straggled, error) {
	flags := []string{
		"--consistency", row.Preset, "--seed", strconv.Itoa(round + 1), "--workers", strconv.Itoa(cfg.Workers), "--servers", strconv.Itoa(cfg.Servers),
		"--steps", strconv.Itoa(cfg.Steps), "--eval-every", strconv.Itoa(2 * cfg.Steps),
	}
	if row.Fault != "" {
		flags = append(flags, "--fault", row.Fault)
	}
	run, err := process.Train(ctx, cfg.Binary, append(flags, cfg.Flags...))
	if err != nil {
		return straggled{}, err
	}
	if len(run.Steps) < 10 {
		return straggled{}, fmt.Errorf("a run of %d steps is too short to measure", len(run.Steps))
	}
	return straggle(run), nil
}

// lossWindow is the number of steps that a loss is averaged over, as in the final loss of a
// summary.
const lossWindow = 20

// straggle extracts the results from a run.
func straggle(run *record.Run) straggled {
	s := straggled{accuracy: float64(run.Summary.FinalAccuracy)}
	slowed := make(map[uint32]bool)
	for _, f := range run.Faults {
		for slot := range uint32(run.Header.Workers) {
			slowed[slot] = slowed[slot] || f.Part == fmt.Sprintf("worker/%d", slot)
		}
	}
	var computing []float64
	sum, n := 0.0, float64(len(run.Steps))
	for i, e := range run.Steps {
		s.quota += float64(e.Quota) / n
		for _, t := range e.Times {
			switch {
			case t.Fate == kintsugi.GivenUp:
				s.given += 1 / n
				continue
			case t.Fate == kintsugi.Late:
				s.late += 1 / n
			}
			if !slowed[t.Slot] {
				computing = append(computing, t.Compute.Seconds())
			}
		}
		sum += float64(e.Loss)
		if i >= lossWindow {
			sum -= float64(run.Steps[i-lossWindow].Loss)
		}
		s.times = append(s.times, e.Seconds-run.Steps[0].Seconds)
		s.losses = append(s.losses, sum/float64(min(i+1, lossWindow)))
	}
	first := int(warmUp * n)
	s.rate = float64(len(run.Steps)-1-first) / (s.times[len(s.times)-1] - s.times[first])
	if len(computing) > 0 {
		s.computing = bench.Median(computing)
	}
	return s
}

// reaches returns when a run's loss reaches a target. The run must reach it.
func (s *straggled) reaches(target float64) float64 {
	i := slices.IndexFunc(s.losses, func(l float64) bool { return l <= target })
	return s.times[max(1, i)]
}

// fill computes row j from the rounds.
func (r *StragglersRow) fill(rounds [][]straggled, j int) {
	var rate, ratio, seconds, speed, quota, late, given, computing, accuracy []float64
	for _, round := range rounds {
		target := round[0].losses[len(round[0].losses)-1]
		for _, s := range round {
			target = max(target, s.losses[len(s.losses)-1])
		}
		s, base := round[j], round[1]
		took := s.reaches(target)
		rate, ratio = append(rate, s.rate), append(ratio, s.rate/base.rate)
		seconds, speed = append(seconds, took), append(speed, base.reaches(target)/took)
		quota, late, given = append(quota, s.quota), append(late, s.late), append(given, s.given)
		computing, accuracy = append(computing, 1e3*s.computing), append(accuracy, s.accuracy)
	}
	r.StepsPerSecond, r.Ratio, r.RatioMin, r.RatioMax = bench.Median(rate), bench.Median(ratio), slices.Min(ratio), slices.Max(ratio)
	r.Seconds, r.Speed, r.SpeedMin, r.SpeedMax = bench.Median(seconds), bench.Median(speed), slices.Min(speed), slices.Max(speed)
	r.Quota, r.Late, r.GivenUp = bench.Median(quota), bench.Median(late), bench.Median(given)
	r.Computing, r.Accuracy = bench.Median(computing), record.Number(bench.Median(accuracy))
}
