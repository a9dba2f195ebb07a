package cluster

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/kintsugi-ml/kintsugi/bench/internal/process"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Question: what does each way of counting gradients cost and save? The claim that could be false:
// every preset trains the model to the target, and with a slow worker, presets that do not wait
// reach it earlier than bsp.

// ConsistencyConfig configures Consistency.
type ConsistencyConfig struct {
	Presets  []string
	Target   float64 // test accuracy
	Seed     int
	Every    int    // steps between evaluations
	Fault    string // such as "slow worker/0 x5 from step 1"; empty: none
	Binary   string
	Flags    []string // for train, in addition to the above
	Progress io.Writer
}

// ConsistencyRow is the result of one preset.
type ConsistencyRow struct {
	Name     string        `json:"name"`
	Preset   string        `json:"preset"`
	Fault    string        `json:"fault"`
	Steps    record.Number `json:"steps_to_target"`   // interpolated between evaluations; null: not reached
	Seconds  record.Number `json:"seconds_to_target"` // since the first step
	P50      float64       `json:"staleness_p50_steps"`
	P99      float64       `json:"staleness_p99_steps"`
	Late     uint64        `json:"late_gradients"`
	Accuracy record.Number `json:"final_accuracy"`
	AllSteps uint64        `json:"steps"`
}

// Consistency trains once with each preset. If a run diverges, its row does not reach the target.
func Consistency(ctx context.Context, cfg ConsistencyConfig) ([]ConsistencyRow, error) {
	var rows []ConsistencyRow
	for _, p := range cfg.Presets {
		flags := append([]string{"--consistency", p, "--seed", strconv.Itoa(cfg.Seed), "--eval-every", strconv.Itoa(cfg.Every)}, cfg.Flags...)
		if cfg.Fault != "" {
			flags = append(flags, "--fault", cfg.Fault)
		}
		run, err := process.Train(ctx, cfg.Binary, flags)
		if err != nil {
			return rows, err
		}
		row := ConsistencyRow{
			Name: "consistency/" + p, Preset: p, Fault: cfg.Fault, Accuracy: run.Summary.FinalAccuracy, AllSteps: run.Summary.Steps,
			P50: float64(run.Summary.StalenessP50), P99: float64(run.Summary.StalenessP99),
		}
		for _, s := range run.Steps {
			row.Late += uint64(s.Late)
		}
		row.Steps, row.Seconds = crossing(run, cfg.Target)
		if row.Steps.Known() {
			fmt.Fprintf(cfg.Progress, "%s: %.2f after %.0f steps and %.1f s\n", p, cfg.Target, float64(row.Steps), float64(row.Seconds))
		} else {
			fmt.Fprintf(cfg.Progress, "%s: not %.2f in %d steps\n", p, cfg.Target, row.AllSteps)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// crossing returns the step, and the seconds since the first step, at which the accuracy first
// reaches target. The accuracy is interpolated linearly between evaluations, from zero at the
// start.
func crossing(run *record.Run, target float64) (steps, seconds record.Number) {
	if len(run.Steps) == 0 {
		return record.Unknown(), record.Unknown()
	}
	start := run.Steps[0].Seconds
	var s0, t0, a0 float64
	for _, e := range run.Evaluations {
		s, t, a := float64(e.Step), e.Seconds-start, float64(e.Accuracy)
		if a >= target && !math.IsNaN(a) {
			x := (target - a0) / (a - a0)
			return record.Number(s0 + x*(s-s0)), record.Number(t0 + x*(t-t0))
		}
		s0, t0, a0 = s, t, a
	}
	return record.Unknown(), record.Unknown()
}
