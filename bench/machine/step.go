package machine

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/live"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// Question: what does a step of a large model cost, beyond the unavoidable? Workers compute
// nothing; everything else is real: pushes, tickets, the commit, the fused step, the release and
// pulls. The bounds of its parts are measured in the same rounds: for a push the checksums at both
// ends, or plain TCP; for the fused step the loops that move its arrays; for a pull a copy with
// checksums, or plain TCP.

// StepConfig configures FullStep.
type StepConfig struct {
	Workers, Servers int
	Values           int // number in the model
	Wires            []worker.Wire
	Steps            int // number of measured steps in each run
	Rounds           int // number of interleaved runs
	Progress         io.Writer
}

// Check returns a usage error if the configuration is empty or too large.
func (c *StepConfig) Check() error {
	if c.Workers < 1 || c.Workers > 256 || c.Servers < 1 || c.Servers > 256 || c.Values < 1<<18 || c.Values > 1<<34 || c.Steps < 1 || c.Rounds < 1 || len(c.Wires) == 0 {
		return fmt.Errorf("%w: bench step takes 1 to 256 workers and servers, models from 262,144 values, a wire, a step and a round at least", kintsugi.ErrUsage)
	}
	return nil
}

// StepRow is one part of a step over one wire, or the whole step: medians over the steps of all
// rounds.
type StepRow struct {
	Name         string  `json:"name"` // push, apply, pull, or step for the whole
	Wire         string  `json:"wire"`
	Workers      int     `json:"workers"`
	Servers      int     `json:"servers"`
	Values       int     `json:"values"`
	Rule         string  `json:"rule"`
	Steps        int     `json:"steps"` // number of measured steps
	Seconds      float64 `json:"seconds"`
	SecondsLow   float64 `json:"seconds_low"`
	SecondsHigh  float64 `json:"seconds_high"`
	BoundSeconds float64 `json:"bound_seconds"`
	Over         float64 `json:"over_bound"`         // Seconds over those of the bound: median of the rounds
	GBPerS       float64 `json:"gb_per_s"`           // of gradients plus parameters; only for the whole step
	CPUSeconds   float64 `json:"cpu_seconds"`        // of the whole process, per step; only for the whole step
	Strip        string  `json:"timeline,omitempty"` // picture of the step with the median length; only for the whole step
}

// warmSteps is the number of first steps that are not measured, as memory is touched for the first
// time.
const warmSteps = 3

// FullStep runs a cluster over each wire in turn, in each round, and measures the bounds.
func FullStep(ctx context.Context, cfg StepConfig) ([]StepRow, error) {
	layout, err := syntheticLayout(cfg.Values)
	if err != nil {
		return nil, err
	}
	cfg.Values = layout.Values
	found := make([]stepRuns, len(cfg.Wires))
	for round := range cfg.Rounds {
		bounds, err := cfg.bounds(ctx)
		if err != nil {
			return nil, err
		}
		for i, wire := range cfg.Wires {
			debug.FreeOSMemory() // give the memory of one run back before the next
			run, err := cfg.run(ctx, layout, wire)
			if err != nil {
				return nil, fmt.Errorf("a cluster over wire %v: %w", wire, err)
			}
			run.bounds = bounds[wire == worker.WireGRPC]
			whole := bench.Median(run.part(3))
			fmt.Fprintf(cfg.Progress, "round %d of %d, wire %v: %.3f s a step, bounds %.3f s\n", round+1, cfg.Rounds, wire, whole, run.bounds.sum())
			found[i].add(run)
		}
	}
	var rows []StepRow
	for i, wire := range cfg.Wires {
		rows = append(rows, cfg.rows(wire, &found[i])...)
	}
	return rows, nil
}

// The names of the parts of a step, by their index in stepTimes.parts.
var stepParts = [...]string{"pull", "push", "apply"}

// stepBounds are the bounds of the parts, in seconds.
type stepBounds [len(stepParts)]float64

func (b stepBounds) sum() (s float64) {
	for _, x := range b {
		s += x
	}
	return s
}

// stepRun is the result of one run.
type stepRun struct {
	steps  []stepTimes
	cpu    float64 // per step
	bounds stepBounds
}

// stepTimes are the seconds of the parts of one step, and of the whole step.
type stepTimes struct {
	parts [len(stepParts) + 1]float64
	strip func() string
}

func (r *stepRun) part(i int) (all []float64) {
	for _, s := range r.steps {
		all = append(all, s.parts[i])
	}
	return all
}

// stepRuns are the runs of all rounds over one wire.
type stepRuns []stepRun

func (r *stepRuns) add(x stepRun) { *r = append(*r, x) }

func (cfg *StepConfig) rows(wire worker.Wire, runs *stepRuns) []StepRow {
	var rows []StepRow
	for i, name := range append(slices.Clone(stepParts[:]), "step") {
		row := StepRow{Name: name, Wire: wire.String(), Workers: cfg.Workers, Servers: cfg.Servers, Values: cfg.Values, Rule: kernels.Rule(syntheticSchedule().Rule).String()}
		var all, bounds, over, cpu []float64
		for _, run := range *runs {
			seconds := run.part(i)
			bound := run.bounds.sum()
			if i < len(stepParts) {
				bound = run.bounds[i]
			}
			all, bounds = append(all, seconds...), append(bounds, bound)
			over, cpu = append(over, bench.Median(seconds)/bound), append(cpu, run.cpu)
		}
		row.Steps = len(all)
		row.SecondsLow, row.Seconds, row.SecondsHigh = bench.Quartiles(all)
		row.BoundSeconds, row.Over = bench.Median(bounds), bench.Median(over)
		if i == len(stepParts) {
			row.GBPerS, row.CPUSeconds = float64(4*cfg.Values*cfg.Workers)/row.Seconds/1e9, bench.Median(cpu)
			row.Strip = (*runs)[len(*runs)-1].strip()
		}
		rows = append(rows, row)
	}
	return rows
}

// strip draws the step with the median length.
func (r *stepRun) strip() string {
	steps := slices.Clone(r.steps)
	slices.SortFunc(steps, func(a, b stepTimes) int {
		switch {
		case a.parts[len(stepParts)] < b.parts[len(stepParts)]:
			return -1
		case a.parts[len(stepParts)] > b.parts[len(stepParts)]:
			return 1
		}
		return 0
	})
	return steps[len(steps)/2].strip()
}

// bounds measures the bounds for gRPC (true) and for shared memory (false).
func (cfg *StepConfig) bounds(ctx context.Context) (map[bool]stepBounds, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := newWire(ctx, &WireConfig{Workers: cfg.Workers, Servers: cfg.Servers, Frame: transport.FrameBytes}, 4*cfg.Values)
	defer w.close()
	tcp, err := w.sockets("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	sent := w.add("push", "tcp", "bare", tcp, nil)
	summed := w.add("sum", "memory", "at both ends", w.sums(), nil)
	copied := w.add("copy", "memory", "summed at both ends", w.copies(true), nil)
	move := cfg.moved(w)
	ways := move.bound("apply", runtime.GOMAXPROCS(0))
	if _, err := bench.Interleave(ctx, 1, 0, append(slices.Clone(w.timed), ways...)); err != nil {
		return nil, err
	}
	apply := bench.Fastest(move.bytes(), ways...)(0)
	return map[bool]stepBounds{
		true:  {sent.At(0), sent.At(0), apply},
		false: {copied.At(0), summed.At(0), apply},
	}, w.err
}

// moved returns the memory traffic of the fused steps of all shards, in the arrays of w and as many
// more as are needed.
func (cfg *StepConfig) moved(w *wire) *moved {
	rule := kernels.Rule(syntheticSchedule().Rule)
	reads, writes := cfg.Workers+1+rule.States(), 1+rule.States()
	arrays := append(slices.Clone(w.gradients), w.landed...)
	for len(arrays) < reads+writes {
		x := make([]float32, len(w.gradients[0])/4)
		for i := range x {
			x[i] = 1
		}
		arrays = append(arrays, kernels.Bytes(x))
	}
	n := len(arrays[0]) / (4 * chunkValues) // the rest is less than a chunk
	m := &moved{values: n * chunkValues, reads: make([][][]byte, n), writes: make([][][]byte, n)}
	for c := range n {
		for i, a := range arrays[:reads+writes] {
			piece := a[4*chunkValues*c:][:4*chunkValues]
			if i < reads {
				m.reads[c] = append(m.reads[c], piece)
			} else {
				m.writes[c] = append(m.writes[c], piece)
			}
		}
	}
	return m
}

// run runs a cluster and measures its steps.
func (cfg *StepConfig) run(ctx context.Context, layout *kintsugi.Layout, wire worker.Wire) (stepRun, error) {
	watch := newStepWatch(cfg.Workers, cfg.Servers)
	l, err := live.Start(ctx, live.Config{
		Servers: cfg.Servers, Workers: cfg.Workers, Layout: layout, Gradient: syntheticGradient, Schedule: syntheticSchedule(),
		Steps: kintsugi.Step(warmSteps + cfg.Steps), Device: kernels.Best(), Threads: max(1, runtime.GOMAXPROCS(0)/cfg.Servers), Wire: wire,
		Save: saveNothing, ServerEnters: watch.server, WorkerEnters: watch.worker,
	})
	if err != nil {
		return stepRun{}, err
	}
	defer l.Close()
	if _, err := l.Wait(); err != nil {
		return stepRun{}, err
	}
	return watch.run()
}
