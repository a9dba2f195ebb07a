// Package quota asks whether dynamic backup workers (DBW; Xu, Neglia and Sebastianelli, 2020) find
// the best number of gradients to wait for by themselves. The claims that could be false are those
// of judge: how close dbw comes to the best fixed quota, which is chosen on other seeds than it is
// judged on, and whether it beats its rivals.
//
// Gradients are real and time is virtual. With a fixed quota k, the model depends only on k and the
// seed (see virtual.Training.Ranked). So the loss after each step is computed once for all
// distributions of times and all policies of busy workers, and the times of the steps once for all
// models: the sweep over all quotas costs little more than the controllers.
package quota

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/virtual"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

// Config configures Run.
type Config struct {
	Sets        []*data.Set
	Examples    int // number of examples of each set to train on
	Workers     int
	Busy        kintsugi.Busy
	Batches     []int
	Rates       []float64     // learning rates
	Alphas      []float64     // exponential share of a gradient's time
	Quotas      []int         // fixed quotas to compare with
	Controllers []string      // the first is compared with the others
	Seeds       int           // number of seeds to judge on, and of seeds to choose on
	Steps       kintsugi.Step // the target is the loss after this many steps that count all workers
	Parallel    int
	Progress    io.Writer
}

// Row is one controller in one cell.
type Row struct {
	Name       string        `json:"name"`
	Data       string        `json:"data"`
	Busy       string        `json:"busy"`
	Batch      int           `json:"batch"`
	Rate       float64       `json:"learning_rate"`
	Alpha      float64       `json:"alpha"`
	Target     float64       `json:"target_loss"`
	BestQuota  int           `json:"best_quota"`          // fixed, at the same learning rate
	Best       record.Number `json:"best_seconds"`        // time to the target with it
	All        record.Number `json:"all_seconds"`         // time with a quota of all workers
	Scaled     record.Number `json:"best_scaled_seconds"` // with the best fixed quota at a learning rate proportional to the quota; null: not measured
	Controller string        `json:"controller"`
	Seconds    record.Number `json:"seconds"`
	Ratio      record.Number `json:"ratio"` // Seconds over Best
	Quota      float64       `json:"mean_quota"`
	Workers    int           `json:"workers"`
	Seeds      int           `json:"seeds"`
}

// Set is the result on one data set. Everything except the cells is for one batch size and
// learning rate in the middle.
type Set struct {
	Data      string     `json:"data"`
	Cells     []Row      `json:"cells"`
	Ways      []Row      `json:"ways_of_a_busy_worker"`
	Fixed     []Fixed    `json:"fixed_quotas"`
	Runs      []Trace    `json:"runs"`
	Estimates []Estimate `json:"estimates"`
	Slowdown  []Slowdown `json:"slowdown"`
}

// Result is the result of Run.
type Result struct {
	Sets   []Set   `json:"sets"`
	Cost   []Cost  `json:"cost_of_a_choice"`
	Claims []Claim `json:"claims"`
}

// Rows returns the rows of all cells.
func (r *Result) Rows() (rows []Row) {
	for _, s := range r.Sets {
		rows = append(rows, s.Cells...)
	}
	return rows
}

// Run makes all measurements.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	var r Result
	total := 0
	for _, batch := range cfg.Batches {
		total += 2 * len(cfg.Sets) * len(cfg.Rates) * effort(batch)
	}
	progress := bench.NewCountdown(cfg.Progress, total)
	progress.Share = true
	for _, set := range cfg.Sets {
		pool := 4
		if set.Shape[0] > 1 {
			pool = 8 // colour images have three inputs per pixel
		}
		model, err := virtual.NewSoftmax(set, cfg.Examples, pool, 1)
		if err != nil {
			return nil, err
		}
		s := &sweep{cfg: &cfg, ctx: ctx, model: model, data: set.Name, progress: progress, clocks: make(map[clockKey][]float64)}
		found, err := s.all()
		if err != nil {
			return nil, err
		}
		r.Sets = append(r.Sets, *found)
	}
	var err error
	if r.Cost, err = measureCost(); err != nil {
		return nil, err
	}
	r.Claims = judge(&r)
	return &r, nil
}

// effort is the work for a batch size, in the units of the progress report: gradients, and losses,
// whose work does not depend on the batch size.
func effort(batch int) int { return 50 + batch }

// all makes all measurements on one data set.
func (s *sweep) all() (*Set, error) {
	r := &Set{Data: s.data}
	cfg := s.cfg
	for _, batch := range cfg.Batches {
		for _, rate := range cfg.Rates {
			w, err := s.workload(batch, rate)
			if err != nil {
				return nil, err
			}
			s.progress.Advanced(effort(batch), fmt.Sprintf("%s, batch %d, learning rate %g: fixed quotas", s.data, batch, rate))
			rows, err := s.cells(w, cfg.Busy, cfg.Controllers)
			if err != nil {
				return nil, err
			}
			r.Cells = append(r.Cells, rows...)
			if batch == cfg.Batches[len(cfg.Batches)/2] && rate == cfg.Rates[len(cfg.Rates)-1] {
				if err := s.closer(w, r); err != nil {
					return nil, err
				}
			}
			s.progress.Advanced(effort(batch), fmt.Sprintf("%s, batch %d, learning rate %g: controllers", s.data, batch, rate))
		}
	}
	return r, nil
}

// closer makes the additional measurements on one workload.
func (s *sweep) closer(w *workload, r *Set) (err error) {
	compared := slices.DeleteFunc(slices.Clone(s.cfg.Controllers), func(name string) bool { return name == "dbw:joint" })
	for _, busy := range []kintsugi.Busy{kintsugi.Interrupt, kintsugi.Wait, kintsugi.Pull} {
		rows, err := s.cells(w, busy, compared[:min(3, len(compared))])
		if err != nil {
			return err
		}
		r.Ways = append(r.Ways, rows...)
	}
	if r.Fixed, err = s.oracle(w); err != nil {
		return err
	}
	if r.Runs, err = s.runs(w, compared); err != nil {
		return err
	}
	if r.Estimates, err = s.estimates(w); err != nil {
		return err
	}
	r.Slowdown, err = s.slowdown(w)
	return err
}
