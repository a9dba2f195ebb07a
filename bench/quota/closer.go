package quota

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/virtual"
)

// Fixed is the time of a fixed quota to the target.
type Fixed struct {
	Alpha   float64       `json:"alpha"`
	Quota   int           `json:"quota"`
	Seconds record.Number `json:"seconds"`
}

// oracle returns the times of all fixed quotas, for each spread of times.
func (s *sweep) oracle(w *workload) (all []Fixed, err error) {
	for _, alpha := range s.cfg.Alphas {
		for _, k := range s.cfg.Quotas {
			seconds, err := s.fixed(w.steps, k, situation{alpha: alpha, busy: s.cfg.Busy})
			if err != nil {
				return nil, err
			}
			all = append(all, Fixed{alpha, k, record.Number(bench.Mean(seconds[:s.cfg.Seeds]))})
		}
	}
	return all, nil
}

// Trace is one run to the target, with the first seed.
type Trace struct {
	Controller string  `json:"controller"`
	Alpha      float64 `json:"alpha"`
	Points     []Point `json:"points"`
}

// Point is one step of a run.
type Point struct {
	Seconds float64       `json:"seconds"`
	Quota   uint32        `json:"quota"`
	Loss    record.Number `json:"loss"` // null: not computed
	Reason  string        `json:"reason,omitempty"`
}

// fixedQuota returns the preset of a fixed quota of n workers.
func fixedQuota(quota, n int) string {
	if quota == n {
		return "bsp"
	}
	return fmt.Sprintf("backup:%d", n-quota)
}

// fixedName describes a preset, if it is a fixed quota, in words.
func fixedName(preset string, n int) string {
	if preset == "bsp" {
		return fmt.Sprintf("fixed %d", n)
	}
	if b, ok := strings.CutPrefix(preset, "backup:"); ok {
		if late, err := strconv.Atoi(b); err == nil {
			return fmt.Sprintf("fixed %d", n-late)
		}
	}
	return preset
}

// middleAlpha returns the spread of times for the additional measurements.
func (c *Config) middleAlpha() float64 { return c.Alphas[len(c.Alphas)/2] }

// runs returns runs of the controllers, of the best fixed quota, and of all workers.
func (s *sweep) runs(w *workload, controllers []string) ([]Trace, error) {
	x := situation{alpha: s.cfg.middleAlpha(), busy: s.cfg.Busy}
	quota, _, err := s.best(w.steps, x)
	if err != nil {
		return nil, err
	}
	controllers = append(slices.Clone(controllers), fixedQuota(quota, s.cfg.Workers))
	if quota != s.cfg.Workers {
		controllers = append(controllers, "bsp")
	}
	all := make([]Trace, len(controllers))
	return all, bench.Each(s.ctx, s.cfg.Parallel, len(all), func(_ context.Context, i int) error {
		points, _, err := s.points(w, controllers[i], x, s.seed(0))
		all[i] = Trace{fixedName(controllers[i], s.cfg.Workers), x.alpha, points}
		return err
	})
}

// points returns the steps of a run to the target, and its seconds.
func (s *sweep) points(w *workload, controller string, x situation, seed uint64) (points []Point, seconds float64, err error) {
	seconds, err = s.follow(w, controller, x, seed, func(e kintsugi.StepEvent, loss float64) {
		points = append(points, Point{e.Time.Sub(virtual.Epoch()).Seconds(), e.Quota, record.Number(loss), e.Reason})
	})
	return points, seconds, err
}

// Slowdown is a run in which half of the workers become five times slower.
type Slowdown struct {
	Controller string        `json:"controller"`
	Seconds    record.Number `json:"seconds"`             // to the target, mean over the seeds
	Before     record.Number `json:"median_quota_before"` // null: the target was reached before any such step
	After      record.Number `json:"median_quota_after"`
	Settled    record.Number `json:"steps_to_settle"` // until five quotas in a row were at most half of the workers; of the slowest seed
	Points     []Point       `json:"points"`          // of the first seed
}

const slowFrom, slowFactor = 30.0, 5.0

// slowdown slows down half of the workers during the run. Times do not vary, so waiting for all
// workers is best before the slowdown, and for half of them after it. dbw is compared with two
// fixed quotas: the best without a slowdown, and the best with it, which nobody can know in
// advance.
func (s *sweep) slowdown(w *workload) ([]Slowdown, error) {
	x := situation{busy: s.cfg.Busy}
	before, _, err := s.best(w.steps, x)
	if err != nil {
		return nil, err
	}
	x.slow = true
	after, _, err := s.best(w.steps, x)
	if err != nil {
		return nil, err
	}
	n := s.cfg.Workers
	names := []string{s.cfg.Controllers[0], fixedQuota(n, n), fixedQuota(before, n), fixedQuota(after, n)}
	names = slices.Compact(names)
	rows := make([]Slowdown, len(names))
	return rows, bench.Each(s.ctx, s.cfg.Parallel, len(rows), func(_ context.Context, i int) (err error) {
		rows[i], err = s.slowed(w, names[i], x)
		return err
	})
}

// slowed runs one controller through a slowdown, with each seed.
func (s *sweep) slowed(w *workload, controller string, x situation) (Slowdown, error) {
	r := Slowdown{Controller: fixedName(controller, s.cfg.Workers)}
	var seconds, before, after []float64
	settled := 0.0
	for i := range s.cfg.Seeds {
		points, took, err := s.points(w, controller, x, s.seed(i))
		if err != nil {
			return r, err
		}
		if i == 0 {
			r.Points = points
		}
		seconds = append(seconds, took)
		at := slices.IndexFunc(points, func(p Point) bool { return p.Seconds > slowFrom })
		if at < 0 {
			at = len(points)
		}
		for i, p := range points {
			if i < at {
				before = append(before, float64(p.Quota))
			} else {
				after = append(after, float64(p.Quota))
			}
		}
		settled = max(settled, settles(points[at:], s.cfg.Workers/2))
	}
	r.Seconds, r.Settled = record.Number(bench.Mean(seconds)), record.Number(settled)
	r.Before, r.After = record.Number(bench.Median(before)), record.Number(bench.Median(after))
	return r, nil
}

// settles returns the number of steps before the first of five in a row that wait for at most quota
// gradients, or +Inf.
func settles(points []Point, quota int) float64 {
	few := 0
	for i, p := range points {
		if few++; int(p.Quota) > quota {
			few = 0
		}
		if few == 5 {
			return float64(i - 4)
		}
	}
	return math.Inf(1)
}
