package partial

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// rows combines the trials of the jobs.
func (cfg *Config) rows(p Problem, jobs []*job) []Row {
	var rows []Row
	for i, lost := range cfg.Lost {
		for _, period := range cfg.Periods {
			pick := func(strategy string) (c outcome) {
				n := 0
				c.rework, c.predicted = make([][]float64, 1), make([][]float64, 1)
				for _, j := range jobs {
					if j.period != period || j.strategy != strategy {
						continue
					}
					n++
					c.bytes += j.cell.bytes
					if j.cell.missing != "" {
						c.missing = j.cell.missing
					} else {
						c.rework[0] = append(c.rework[0], j.cell.rework[i]...)
						c.predicted[0] = append(c.predicted[0], j.cell.predicted[i]...)
					}
				}
				c.bytes /= float64(max(1, n))
				return c
			}
			full, replica := pick("full"), pick("replica")
			path := jobs[0].path
			for _, s := range cfg.Strategies {
				r := Row{
					Name: fmt.Sprintf("scar/%s/%s/lost=%g/C=%d/%s", p.Name, p.Data, lost, period, s), Workload: p.Name, Data: p.Data,
					Values: path.values, Blocks: len(path.blocks), Steps: path.last(), Lost: lost, Period: period, Strategy: s, Paper: published(lost, s),
				}
				r.fill(pick(s), full, replica)
				rows = append(rows, r)
			}
		}
	}
	return rows
}

// fill computes the results of a cell. The baseline and the replica had the same failures.
func (r *Row) fill(cell, full, replica outcome) {
	if r.Missing = cell.missing; r.Missing != "" {
		return
	}
	rework := cell.rework[0]
	r.Trials, r.Bytes = len(rework), cell.bytes
	r.Rework, _ = bench.MeanDeviation(rework)
	r.Predicted = record.Unknown()
	if known := slices.DeleteFunc(cell.predicted[0], math.IsNaN); len(known) > 0 {
		mean, _ := bench.MeanDeviation(known)
		r.Predicted = record.Number(mean)
	}
	if baseline := full.rework[0]; full.missing == "" && len(baseline) == len(rework) {
		r.Baseline, _ = bench.MeanDeviation(baseline)
		r.Reduction = reduction(rework, baseline, nil)
		r.Low, r.High = bootstrap(rework, baseline)
		for i := range rework {
			if rework[i] > baseline[i] {
				r.Worse += 1 / float64(len(rework))
			}
		}
		if least := replica.rework[0]; replica.missing == "" && len(least) == len(rework) {
			mean, _ := bench.MeanDeviation(least)
			r.Avoidable = (r.Baseline - r.Rework) / (r.Baseline - mean)
		}
	}
}

// reduction returns 1 − Σrework/Σbaseline over the trials at indices, or over all trials if indices
// is nil.
func reduction(rework, baseline []float64, indices []int) float64 {
	var a, b float64
	if indices == nil {
		for i := range rework {
			a, b = a+rework[i], b+baseline[i]
		}
		return 1 - a/b
	}
	for _, i := range indices {
		a, b = a+rework[i], b+baseline[i]
	}
	return 1 - a/b
}

// bootstrap returns the 95 % interval of the reduction, by resampling trials together with their
// baselines.
func bootstrap(rework, baseline []float64) (low, high float64) {
	const draws = 2000
	rng := rand.New(rand.NewPCG(1, 2))
	list, indices := make([]float64, draws), make([]int, len(rework))
	for d := range list {
		for i := range indices {
			indices[i] = rng.IntN(len(indices))
		}
		list[d] = reduction(rework, baseline, indices)
	}
	slices.Sort(list)
	at := func(p float64) float64 { return list[int(math.Round(p*(draws-1)))] }
	return at(0.025), at(0.975)
}

// published returns the reductions published by Qiao et al. (2019), over their models, when half of
// the parameters are lost: for partial recovery alone, and for SCAR with eighths chosen by
// priority.
func published(lost float64, strategy string) string {
	switch {
	case strategy == "partial" && lost == 0.25:
		return "59–89 %"
	case strategy == "partial" && lost == 0.5:
		return "31–62 %"
	case strategy == "partial" && lost == 0.75:
		return "12–42 %"
	case strings.HasPrefix(strategy, "priority:1/8") && lost == 0.5:
		return "78–95 %"
	}
	return ""
}
