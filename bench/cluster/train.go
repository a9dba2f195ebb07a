package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/internal/loop"
	"github.com/kintsugi-ml/kintsugi/bench/internal/process"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// Question: what does distribution cost? The same steps, with the same batches, optimizer, rates of
// tensors and clipping, are made by a cluster of processes with a parameter server, and by a loop in
// one process that uses as many threads as there are cores and never copies a parameter. And how
// much of the difference is neither gradients and optimizer, which the loop needs too, nor bytes
// that must move between processes? The claim that could be false: the cluster makes at least half
// as many steps per second as the loop.

// TrainConfig configures TrainOverhead.
type TrainConfig struct {
	Model     string
	Workers   int
	Servers   int
	Steps     int // number in one measurement
	Rounds    int // number of interleaved measurements of both
	Binary    string
	Flags     []string // for train, in addition to the above
	Before    []string // for a second train to compare with; nil: none
	Layout    *kintsugi.Layout
	Init      func(params []float32) error
	Gradients []worker.Gradient // one per thread of the loop
	Schedule  conductor.Schedule
	ClipNorm  float64 // longest norm that a gradient counts with; 0: any
	Progress  io.Writer
}

// TrainRow is one result: medians over the rounds.
type TrainRow struct {
	Name               string  `json:"name"`
	Model              string  `json:"model"`
	Parameters         int     `json:"parameters"`
	Workers            int     `json:"workers"`
	Servers            int     `json:"servers"`
	Threads            int     `json:"loop_threads"`
	Rounds             int     `json:"rounds"`
	TrainStepsPerSec   float64 `json:"train_steps_per_s"`
	LoopStepsPerSecond float64 `json:"loop_steps_per_s"`
	Ratio              float64 `json:"ratio"` // train / loop: median of the ratios in each round
	RatioMin           float64 `json:"ratio_min"`
	RatioMax           float64 `json:"ratio_max"`

	BeforeStepsPerSec float64 `json:"before_steps_per_s,omitempty"` // of train with TrainConfig.Before
	Before            float64 `json:"before_ratio,omitempty"`       // before / loop: median of the ratios in each round

	// Copies is the time in which the loop's threads copy each gradient and each worker's
	// parameters once, which is what must move between processes. Neither is the share of a step of
	// train that is neither the loop's step nor these copies; it is the median of the rounds.
	Copies  float64 `json:"copies_s"`
	Neither float64 `json:"neither"`
}

// TrainOverhead runs both in turn and compares them round by round.
func TrainOverhead(ctx context.Context, cfg TrainConfig) (TrainRow, error) {
	row := TrainRow{
		Name: "train/" + cfg.Model, Model: cfg.Model, Parameters: cfg.Layout.Values, Workers: cfg.Workers, Servers: cfg.Servers,
		Threads: len(cfg.Gradients), Rounds: cfg.Rounds,
	}
	if err := cfg.shorten(ctx); err != nil {
		return row, err
	}
	var train, loop, ratio, before, beforeRatio, copies, neither []float64
	for i := range cfg.Rounds {
		a, err := cfg.cluster(ctx, cfg.Flags)
		if err != nil {
			return row, err
		}
		c := 0.0
		if cfg.Before != nil {
			if c, err = cfg.cluster(ctx, slices.Concat(cfg.Flags, cfg.Before)); err != nil {
				return row, err
			}
		}
		_, b, err := cfg.Loop(ctx, cfg.Steps)
		if err != nil {
			return row, err
		}
		moved := cfg.copies()
		fmt.Fprintf(cfg.Progress, "%s round %d of %d: train %.1f steps/s, %s %.1f, loop %.1f, ratio %.2f\n", cfg.Model, i+1, cfg.Rounds, a, strings.Join(cfg.Before, " "), c, b, a/b)
		train, loop, ratio = append(train, a), append(loop, b), append(ratio, a/b)
		before, beforeRatio = append(before, c), append(beforeRatio, c/b)
		copies, neither = append(copies, moved), append(neither, 1-a*(1/b+moved))
	}
	row.TrainStepsPerSec, row.LoopStepsPerSecond, row.Ratio = bench.Median(train), bench.Median(loop), bench.Median(ratio)
	row.RatioMin, row.RatioMax = slices.Min(ratio), slices.Max(ratio)
	row.BeforeStepsPerSec, row.Before = bench.Median(before), bench.Median(beforeRatio)
	row.Copies, row.Neither = bench.Median(copies), bench.Median(neither)
	return row, nil
}

// longest is the limit on a measurement of the loop: models with slow gradients make fewer steps.
const longest = 4 * time.Second

// shorten reduces the number of steps if cfg.Steps of them would take the loop too long.
func (cfg *TrainConfig) shorten(ctx context.Context) error {
	const probe = 10
	_, rate, err := cfg.Loop(ctx, probe)
	if most := int(rate * longest.Seconds()); most < cfg.Steps {
		cfg.Steps = min(cfg.Steps, max(2*probe, most))
	}
	return err
}

// copies returns the seconds for the copies of a step, as a median.
func (cfg *TrainConfig) copies() float64 {
	const times = 21
	src, dst := make([][]float32, cfg.Workers), make([][]float32, cfg.Workers)
	for i := range src {
		src[i], dst[i] = make([]float32, cfg.Layout.Values), make([]float32, cfg.Layout.Values)
	}
	seconds := make([]float64, times)
	for k := range seconds {
		start := time.Now()
		var wg sync.WaitGroup
		for t := range cfg.Gradients {
			wg.Go(func() {
				for i := t; i < cfg.Workers; i += len(cfg.Gradients) {
					copy(dst[i], src[i]) // a gradient
					copy(src[i], dst[i]) // parameters
				}
			})
		}
		wg.Wait()
		seconds[k] = time.Since(start).Seconds()
	}
	return bench.Median(seconds)
}

// warmUp is the share of a cluster's steps that is not measured, while processes are still
// starting and generate their data.
const warmUp = 0.4

// cluster runs kintsugi train and returns its steps per second after the warm-up, from the release
// times of its steps.
func (cfg *TrainConfig) cluster(ctx context.Context, flags []string) (float64, error) {
	run, err := process.Train(ctx, cfg.Binary, append([]string{"--model", cfg.Model, "--workers", strconv.Itoa(cfg.Workers),
		"--servers", strconv.Itoa(cfg.Servers), "--steps", strconv.Itoa(cfg.Steps), "--eval-every", strconv.Itoa(2 * cfg.Steps)}, flags...))
	if err != nil {
		return 0, err
	}
	first := int(warmUp * float64(len(run.Steps)))
	if len(run.Steps)-first < 2 {
		return 0, fmt.Errorf("a run of %d steps is too short to measure", len(run.Steps))
	}
	a, b := run.Steps[first], run.Steps[len(run.Steps)-1]
	return float64(len(run.Steps)-1-first) / (b.Seconds - a.Seconds), nil
}

// Loop makes the given number of the same steps in this process, from the initial parameters. It
// returns the parameters, which are those of train to the last bit if gradients are sent as they
// are, and the steps per second after the warm-up.
func (cfg *TrainConfig) Loop(ctx context.Context, steps int) (params []float32, perSecond float64, err error) {
	schedule := cfg.Schedule
	schedule.Steps = kintsugi.Step(steps)
	x := loop.New(cfg.Layout, schedule.Rule, cfg.Workers, cfg.ClipNorm)
	if err := cfg.Init(x.Params); err != nil {
		return nil, 0, err
	}
	var start time.Time
	warm := int(warmUp * float64(steps))
	for v := range steps {
		if v == warm {
			start = time.Now()
		}
		if err := cfg.gradients(ctx, x, kintsugi.Step(v)); err != nil {
			return nil, 0, err
		}
		if err := x.Step(schedule.At(kintsugi.Step(v) + 1)); err != nil {
			return nil, 0, err
		}
	}
	return x.Params, float64(steps-warm) / time.Since(start).Seconds(), nil
}

// gradients computes one gradient per worker, on the loop's threads.
func (cfg *TrainConfig) gradients(ctx context.Context, x *loop.Loop, v kintsugi.Step) error {
	errs := make([]error, len(cfg.Gradients))
	slots := make(chan int, len(x.Gradients))
	for i := range x.Gradients {
		slots <- i
	}
	close(slots)
	var wg sync.WaitGroup
	for t, gradient := range cfg.Gradients {
		wg.Go(func() {
			for i := range slots {
				_, examples, err := gradient(ctx, x.Params, x.Gradients[i], kintsugi.PushID{Slot: kintsugi.Slot(i), Version: v})
				if err != nil {
					errs[t] = err
					continue
				}
				x.Count(i, examples)
			}
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}
