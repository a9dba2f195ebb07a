package cluster

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/internal/process"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Question: what do local steps save, and what do they cost? The claims that could be false: with H
// local steps, H times fewer bytes travel, a run is no slower, and the model is about as good after
// as many gradients.

// LocalConfig configures Local.
type LocalConfig struct {
	Models   []string
	Steps    []int    // local steps to compare; those of the first are the yardstick
	Outer    []string // as train's --outer, where there is more than one local step
	Seeds    int      // runs of each, with the seeds 1, 2, …
	Binary   string
	Flags    []string // for train, in addition to the above
	Progress io.Writer
}

// LocalRow is one model with one number of local steps.
type LocalRow struct {
	Name    string `json:"name"`
	Model   string `json:"model"`
	Steps   int    `json:"local_steps"`
	Outer   string `json:"outer"`
	Measure string `json:"measure"`
	Seeds   int    `json:"seeds"`

	Mean      float64       `json:"mean"`      // quality on the test half
	Deviation record.Number `json:"deviation"` // sample standard deviation; unknown for one seed

	// The means of a run.
	Gradients float64 `json:"gradients"` // batches that counted
	Bytes     float64 `json:"bytes"`     // of gradients pushed and parameters pulled
	PerSecond float64 `json:"gradients_per_second"`

	Smaller float64 `json:"smaller"` // bytes for a gradient: those of the first row of the model, divided by these
	Faster  float64 `json:"faster"`  // gradients per second, divided by those of the first row
}

// Local trains each model with each number of local steps.
func Local(ctx context.Context, cfg LocalConfig) ([]LocalRow, error) {
	var rows []LocalRow
	for _, model := range cfg.Models {
		first := len(rows)
		for _, steps := range cfg.Steps {
			outers := cfg.Outer
			if steps == 1 {
				outers = []string{""}
			}
			for _, outer := range outers {
				row, err := cfg.row(ctx, model, steps, outer)
				if err != nil {
					return rows, err
				}
				than := append(rows, row)[first]
				row.Smaller, row.Faster = (than.Bytes/than.Gradients)/(row.Bytes/row.Gradients), row.PerSecond/than.PerSecond
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

func (cfg *LocalConfig) row(ctx context.Context, model string, steps int, outer string) (LocalRow, error) {
	row := LocalRow{Name: fmt.Sprintf("local/%s/%d", model, steps), Model: model, Steps: steps, Outer: outer, Measure: MeasureOf(model), Seeds: cfg.Seeds}
	var qualities []float64
	for seed := range cfg.Seeds {
		flags := []string{"--model", model, "--seed", strconv.Itoa(seed + 1), "--local-steps", strconv.Itoa(steps)}
		if outer != "" {
			flags = append(flags, "--outer", outer)
		}
		run, err := process.Train(ctx, cfg.Binary, append(flags, cfg.Flags...))
		if err != nil {
			return row, err
		}
		s := &run.Summary
		if len(run.Steps) < 2 {
			return row, fmt.Errorf("%w: a run of %s with %d local steps has %d steps; use fewer local steps, or more --steps", kintsugi.ErrUsage, model, steps, len(run.Steps))
		}
		q, share := quality(row.Measure, float64(s.FinalTestLoss), float64(s.FinalAccuracy)), 1/float64(cfg.Seeds)
		qualities = append(qualities, q)
		gradients := float64(s.UsefulGradients) * float64(steps)
		row.Gradients += share * gradients
		row.Bytes += share * float64(s.BytesPushed+s.BytesPulled)
		// The first step also waits for the processes.
		from, to := run.Steps[0], run.Steps[len(run.Steps)-1]
		row.PerSecond += share * (gradients - float64(len(from.Counted)*steps)) / (to.Seconds - from.Seconds)
		fmt.Fprintf(cfg.Progress, "%s %s, seed %d: %s %.4f after %.0f gradients and %.1f s\n", model, strings.Join(flags[4:], " "), seed+1, row.Measure, q, gradients, s.WallSeconds)
	}
	row.Mean, row.Deviation = bench.MeanDeviation(qualities)
	return row, nil
}
