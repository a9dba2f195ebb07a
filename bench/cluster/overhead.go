package cluster

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/internal/process"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Question: what does the running checkpoint cost training? The same runs without it and with each
// fraction, on the disk and with a limit on the store, in interleaved rounds. The claims that could
// be false: steps never wait for the store, so that a slow store costs no more than a fast one; and
// every fraction saves the same number of bytes in C steps, if the store is fast enough.

// OverheadConfig configures Overhead.
type OverheadConfig struct {
	Model            string
	Fractions        []string // such as 1/8; off: no checkpoint except the last
	Limits           []string // values of train's --store-limit; "": none
	Period           int      // C
	Servers, Workers int
	Steps, Rounds    int
	Bytes            float64 // of the model and its optimizer's state
	Binary           string
	Flags            []string // for train, in addition to the above
	Progress         io.Writer
}

// OverheadRow is one fraction on one store: medians over the rounds.
type OverheadRow struct {
	Name     string  `json:"name"`
	Model    string  `json:"model"`
	Fraction string  `json:"fraction"`
	Limit    string  `json:"store_limit"`
	Steps    float64 `json:"steps_per_s"`
	Ratio    float64 `json:"ratio"` // to the run without a checkpoint in the same round
	P50      float64 `json:"step_p50_seconds"`
	P99      float64 `json:"step_p99_seconds"`
	Longest  float64 `json:"step_max_seconds"`
	Waited   float64 `json:"waited_share"`      // share of the steps' time spent waiting for the checkpoint
	Models   float64 `json:"models_in_c_steps"` // number of models' worth of bytes saved, on average
	Saves    float64 `json:"saves"`             // number per shard
	Took     float64 `json:"save_p50_seconds"`  // time until a save was durable
	Age      float64 `json:"mean_age_steps"`    // of saved chunks
	Rounds   int     `json:"rounds"`
}

// Overhead makes all runs in turn.
func Overhead(ctx context.Context, cfg OverheadConfig) ([]OverheadRow, error) {
	cells := cfg.cells()
	measured := make([][]OverheadRow, len(cells))
	for round := range cfg.Rounds {
		off := 0.0
		for i, c := range cells {
			run, err := cfg.run(ctx, c.fraction, c.limit)
			if err != nil {
				return nil, err
			}
			row := cfg.row(run, c.fraction, c.limit)
			if c.fraction == "off" {
				off = row.Steps
			}
			row.Ratio = row.Steps / off
			measured[i] = append(measured[i], row)
			fmt.Fprintf(cfg.Progress, "round %d of %d, %s, store %s: %.1f steps/s, %.2f of without\n", round+1, cfg.Rounds, c.fraction, orFree(c.limit), row.Steps, row.Ratio)
		}
	}
	var rows []OverheadRow
	for _, all := range measured {
		r := all[0]
		for _, field := range []func(*OverheadRow) *float64{
			func(r *OverheadRow) *float64 { return &r.Steps }, func(r *OverheadRow) *float64 { return &r.Ratio }, func(r *OverheadRow) *float64 { return &r.P50 },
			func(r *OverheadRow) *float64 { return &r.P99 }, func(r *OverheadRow) *float64 { return &r.Longest }, func(r *OverheadRow) *float64 { return &r.Waited },
			func(r *OverheadRow) *float64 { return &r.Models }, func(r *OverheadRow) *float64 { return &r.Saves }, func(r *OverheadRow) *float64 { return &r.Took },
			func(r *OverheadRow) *float64 { return &r.Age },
		} {
			var list []float64
			for i := range all {
				list = append(list, *field(&all[i]))
			}
			*field(&r) = bench.Median(list)
		}
		r.Rounds = len(all)
		rows = append(rows, r)
	}
	return rows, nil
}

// overheadCell is what one row measures.
type overheadCell struct{ fraction, limit string }

// cells returns what is measured in a round, in this order. The run without a running checkpoint
// comes first, whether it is named or not: the others are compared with it.
func (cfg *OverheadConfig) cells() []overheadCell {
	cells := []overheadCell{{"off", cfg.Limits[0]}} // without saves, the store does not matter
	for _, f := range cfg.Fractions {
		for _, limit := range cfg.Limits {
			if c := (overheadCell{f, limit}); f != "off" && !slices.Contains(cells, c) {
				cells = append(cells, c)
			}
		}
	}
	return cells
}

func orFree(limit string) string {
	if limit == "" {
		return "free"
	}
	return limit
}

func (cfg *OverheadConfig) run(ctx context.Context, fraction, limit string) (*record.Run, error) {
	args := []string{"--model", cfg.Model, "--steps", strconv.Itoa(cfg.Steps), "--servers", strconv.Itoa(cfg.Servers), "--workers", strconv.Itoa(cfg.Workers),
		"--eval-every", strconv.Itoa(2 * cfg.Steps), "--checkpoint-every", strconv.Itoa(2 * cfg.Steps), "--store-limit", limit}
	recovery := "none"
	if fraction != "off" {
		recovery = fmt.Sprintf("scar:%s,%d", fraction, cfg.Period)
	}
	return process.Train(ctx, cfg.Binary, append(append(args, "--recovery", recovery), cfg.Flags...))
}

// row extracts the results of a run, after its warm-up.
func (cfg *OverheadConfig) row(run *record.Run, fraction, limit string) OverheadRow {
	r := OverheadRow{Name: fmt.Sprintf("overhead/%s/%s/%s", cfg.Model, fraction, orFree(limit)), Model: cfg.Model, Fraction: fraction, Limit: orFree(limit)}
	first := int(warmUp * float64(len(run.Steps)))
	steps := run.Steps[first:]
	var pauses, took []float64
	for i := 1; i < len(steps); i++ {
		pauses = append(pauses, steps[i].Seconds-steps[i-1].Seconds)
		r.Waited += steps[i].SavingSeconds
	}
	slices.Sort(pauses)
	all := steps[len(steps)-1].Seconds - steps[0].Seconds
	r.Steps, r.Waited = float64(len(pauses))/all, r.Waited/all
	r.P50, r.P99, r.Longest = pauses[len(pauses)/2], pauses[len(pauses)*99/100], pauses[len(pauses)-1]
	bytes := 0.0
	for _, c := range run.Checkpoints {
		if c.Running && c.Error == "" && c.Step >= steps[0].Step {
			bytes += float64(c.Bytes)
			took = append(took, c.TookSeconds)
		}
	}
	r.Models, r.Saves = bytes/cfg.Bytes/float64(len(pauses))*float64(cfg.Period), float64(len(took))
	if len(took) > 0 {
		r.Took = bench.Median(took)
	}
	if len(run.Exposures) > 0 {
		sum, n := 0.0, 0
		for _, s := range run.Exposures[len(run.Exposures)-1].Servers {
			if s.MeanAge.Known() {
				sum, n = sum+float64(s.MeanAge), n+1
			}
		}
		r.Age = sum / float64(max(1, n))
	}
	return r
}
