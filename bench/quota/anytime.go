package quota

import (
	"context"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/virtual"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

// Question: should a step also count the parts of gradients that interrupted workers have by then,
// weighted by the examples they have processed? The claim that would make it worth building: with
// the best fixed quota, a run reaches the same loss earlier by a fifth or more than with the best
// fixed quota without parts, although requesting and receiving the parts takes a tenth of a
// gradient's time in each step.
//
// Gradients are real and time is virtual. Workers process a batch at a constant rate. A part costs
// only the time in the row; its use of the network and the servers is ignored, so the gain is an
// upper bound.

// AnytimeConfig configures Anytime.
type AnytimeConfig struct {
	Set      *data.Set
	Examples int
	Workers  int
	Batches  []int
	Alphas   []float64 // exponential share of a gradient's time; its mean is one second
	Costs    []float64 // seconds per step for requesting parts
	Rate     float64   // learning rate
	Quotas   []int
	Seeds    int
	Steps    kintsugi.Step // the target is the loss after this many steps that count all workers
	Parallel int
	Progress io.Writer
}

// AnytimeRow is one way to count in one cell, at its best quota.
type AnytimeRow struct {
	Name    string        `json:"name"`
	Batch   int           `json:"batch"`
	Alpha   float64       `json:"alpha"`
	Target  float64       `json:"target_loss"`
	Partial bool          `json:"partial"`
	Cost    float64       `json:"cost_seconds"` // with Partial
	Preset  string        `json:"preset"`       // dbw, or the best fixed quota
	Quota   float64       `json:"quota"`        // the best, or the mean of dbw's quotas
	Seconds record.Number `json:"seconds"`      // to the target, mean over the seeds; null: no quota reached it
	Ratio   record.Number `json:"ratio"`        // how many times faster than without parts, with the same preset
}

// anytimeWay is a way to count.
type anytimeWay struct {
	partial bool
	cost    float64
	dynamic bool
}

// Anytime compares the ways to count.
func Anytime(ctx context.Context, cfg AnytimeConfig) ([]AnytimeRow, error) {
	model, err := virtual.NewSoftmax(cfg.Set, cfg.Examples, 4, 1)
	if err != nil {
		return nil, err
	}
	ways := []anytimeWay{{}, {dynamic: true}}
	for _, c := range cfg.Costs {
		ways = append(ways, anytimeWay{partial: true, cost: c}, anytimeWay{partial: true, cost: c, dynamic: true})
	}
	var rows []AnytimeRow
	for _, batch := range cfg.Batches {
		m := model.WithBatch(batch)
		target := 0.0
		r, err := cfg.train(m, anytimeWay{}, cfg.Workers, 0, 1, nil)
		if err != nil {
			return nil, err
		}
		target = m.Loss(r.Params)
		for _, alpha := range cfg.Alphas {
			base := len(rows)
			for _, w := range ways {
				row, err := cfg.best(ctx, m, w, alpha, target)
				if err != nil {
					return nil, err
				}
				row.Name = fmt.Sprintf("anytime/batch=%d/alpha=%g/%s/partial=%v/cost=%g", batch, alpha, row.Preset, w.partial, w.cost)
				row.Batch, row.Ratio = batch, 1
				if w.partial {
					without := rows[base]
					if w.dynamic {
						without = rows[base+1]
					}
					row.Ratio = without.Seconds / row.Seconds
				}
				rows = append(rows, row)
			}
			fmt.Fprintf(cfg.Progress, "batch %d, alpha %g: done\n", batch, alpha)
		}
	}
	return rows, nil
}

// best returns the row of a way to count at the quota that reaches the target earliest on average.
func (cfg *AnytimeConfig) best(ctx context.Context, m *virtual.Softmax, w anytimeWay, alpha, target float64) (AnytimeRow, error) {
	quotas, row := cfg.Quotas, AnytimeRow{Alpha: alpha, Target: target, Partial: w.partial, Cost: w.cost, Preset: "fixed", Seconds: record.Unknown()}
	if w.dynamic {
		quotas, row.Preset = []int{0}, "dbw"
	}
	seconds, chosen := make([]float64, len(quotas)), make([]float64, len(quotas))
	var mu sync.Mutex
	err := bench.Each(ctx, cfg.Parallel, len(quotas)*cfg.Seeds, func(_ context.Context, i int) error {
		at, mean, steps := math.Inf(1), 0.0, 0.0
		q := i / cfg.Seeds
		_, err := cfg.train(m, w, quotas[q], alpha, uint64(1+i%cfg.Seeds), func(e kintsugi.StepEvent, params []float32) bool {
			mean, steps = mean+float64(e.Quota), steps+1
			if m.Loss(params) <= target {
				at = e.Time.Sub(virtual.Epoch()).Seconds()
				return false
			}
			return true
		})
		mu.Lock()
		defer mu.Unlock()
		seconds[q] += at / float64(cfg.Seeds)
		chosen[q] += mean / steps / float64(cfg.Seeds)
		return err
	})
	if err != nil {
		return row, err
	}
	for q, s := range seconds {
		if !math.IsInf(s, 1) && (!row.Seconds.Known() || s < float64(row.Seconds)) {
			row.Seconds, row.Quota = record.Number(s), chosen[q]
		}
	}
	return row, nil
}

// anytimeLimit limits the steps of a run, as a multiple of the steps with all workers.
const anytimeLimit = 40

func (cfg *AnytimeConfig) train(m *virtual.Softmax, w anytimeWay, quota int, alpha float64, seed uint64, each func(kintsugi.StepEvent, []float32) bool) (virtual.Trained, error) {
	times, err := virtual.ParseTimes(fmt.Sprintf("exp:%g", alpha), 1)
	if err != nil {
		return virtual.Trained{}, err
	}
	t := virtual.Training{
		Seed: seed, Workers: cfg.Workers, Steps: cfg.Steps, Problem: m, Times: times, Apply: 0.001, Ranked: true, Each: each,
		Schedule: conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: cfg.Rate},
	}
	if each != nil {
		t.Steps *= anytimeLimit
	}
	if w.partial {
		t.Anytime = &w.cost
	}
	preset := "bsp"
	if w.dynamic {
		preset = "dbw"
	} else if quota < cfg.Workers {
		preset = fmt.Sprintf("backup:%d", cfg.Workers-quota)
	}
	if t.Consistency, err = agg.Preset(preset); err != nil {
		return virtual.Trained{}, err
	}
	return virtual.Train(t)
}
