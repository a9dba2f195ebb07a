// Package failure asks how the results of Training Through Failure (Cao, Luo, Gan and Jinesh, 2024)
// hold up. The paper trains a small network on Fashion-MNIST with a parameter server that is killed
// once or twice and is away for twenty seconds, in five configurations, with one run of each. Here
// each configuration trains with several seeds, in real processes that are killed by SIGKILL at a
// fixed update.
//
// Two properties of the published program change its conclusions. Both are repeated as they were,
// and also corrected: its network has a ReLU on the logits (cnn:relu-logits; its gradients are
// summed over the workers), and of two restores the first finds no checkpoint (the presets that end
// in :shipped).
//
// A gradient takes as long as in the paper, because of --gradient-time: it waits. So several runs
// can share a machine without disturbing one another, and twenty seconds are as many gradients as
// in the paper.
package failure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/kintsugi-ml/kintsugi/bench"
)

// Preset is a recovery combined with a way to count gradients.
type Preset struct {
	Name     string   // in tables and for --presets
	Recovery string   // train's --recovery
	Async    bool     // every gradient is a step; otherwise a step has one of each worker
	Servers  int      // number of servers, for a model that fits on one
	Flags    []string // for train, in addition
	Die      int      // number of servers that die together, from server 0 on; 0: only server 0
	Forgets  bool     // of two restores the first finds no checkpoint
	Copies   bool     // replicas get copies as often as there are checkpoints, and each kill takes the server that heads the most shards
	Paper    string   // name in the paper; empty: not in the paper
}

// Presets are the compared presets. A preset that train does not accept is left out.
var Presets = []Preset{
	{Name: "checkpoint", Recovery: "checkpoint", Servers: 1, Paper: "sync checkpoint"},
	{Name: "checkpoint/async", Recovery: "checkpoint", Async: true, Servers: 1, Paper: "async checkpoint"},
	{Name: "checkpoint:shipped", Recovery: "checkpoint", Servers: 1, Forgets: true, Paper: "sync checkpoint"},
	{Name: "checkpoint:shipped/async", Recovery: "checkpoint", Async: true, Servers: 1, Forgets: true, Paper: "async checkpoint"},
	{Name: "chain", Recovery: "chain", Servers: 3, Flags: []string{"--replicas", "3"}, Paper: "sync chain"},
	{Name: "chain/async", Recovery: "chain", Async: true, Servers: 3, Flags: []string{"--replicas", "3"}, Paper: "async chain"},
	{Name: "chain:paper", Recovery: "chain:paper", Servers: 3, Copies: true, Paper: "sync chain"},
	{Name: "chain:paper/async", Recovery: "chain:paper", Async: true, Servers: 3, Copies: true, Paper: "async chain"},
	{Name: "stateless", Recovery: "stateless", Servers: 1},
	{Name: "stateless/async", Recovery: "stateless", Async: true, Servers: 1, Paper: "stateless"},
	{Name: "stateless:paper/async", Recovery: "stateless:paper", Async: true, Servers: 1, Paper: "stateless"},
	{Name: "gold", Recovery: "gold", Servers: 2, Die: 2}, // their memory survives
	{Name: "gold/async", Recovery: "gold", Async: true, Servers: 2, Die: 2},
	{Name: "gold:lost", Recovery: "gold", Servers: 3, Flags: lost, Die: 2},
	{Name: "gold:lost/async", Recovery: "gold", Async: true, Servers: 3, Flags: lost, Die: 2},
}

// lost are flags with which one shard is lost completely, in memory and on other servers, when two
// of three servers die: it comes back from the running checkpoint.
var lost = []string{"--replicas", "2"}

// OutagePresets are the ways in which workers spend an outage, and the presets they are compared
// with.
var OutagePresets = []Preset{
	{Name: "checkpoint", Recovery: "checkpoint", Async: true, Servers: 1},
	{Name: "wait", Recovery: "stateless", Async: true, Servers: 1, Flags: []string{"--outage", "wait"}},
	{Name: "local", Recovery: "stateless", Async: true, Servers: 1, Flags: []string{"--kept", "local"}},
	{Name: "decay", Recovery: "stateless", Async: true, Servers: 1, Flags: []string{"--kept", "decay"}},
	{Name: "average", Recovery: "stateless", Async: true, Servers: 1, Flags: []string{"--kept", "average"}},
	{Name: "sum", Recovery: "stateless", Async: true, Servers: 1, Flags: []string{"--kept", "sum"}},
	{Name: "gold", Recovery: "gold", Async: true, Servers: 2, Die: 2},
	{Name: "gold:lost", Recovery: "gold", Async: true, Servers: 3, Flags: lost, Die: 2},
}

// Config configures Run.
type Config struct {
	Models       []string
	Presets      []Preset
	Workers      []int
	Kills        []int  // number of kills in a run
	Calm         string // the preset whose undisturbed runs all others are compared with; empty: each with its own
	Seeds        int
	Updates      int   // number of gradients of each worker in a run
	KillAt       []int // by kill: the update of a worker after which the kill happens
	SaveEvery    int   // updates of a worker between two checkpoints
	Outage       time.Duration
	GradientTime time.Duration
	Parallel     int // number of workers at the same time, in all runs together
	Binary       string
	Flags        []string // for train, in addition to the above
	Dir          string   // folder for the results of runs; results in it are not computed again
	Progress     io.Writer
}

// Check returns an error if the configuration is invalid.
func (cfg *Config) Check() error {
	switch {
	case len(cfg.Models) == 0 || len(cfg.Presets) == 0 || len(cfg.Workers) == 0 || len(cfg.Kills) == 0 || cfg.Seeds < 1:
		return errors.New("a model, a preset, a number of workers, a number of kills and a seed are needed")
	case slices.Min(cfg.Workers) < 1 || slices.Min(cfg.Kills) < 0 || slices.Max(cfg.Kills) > len(cfg.KillAt):
		return fmt.Errorf("there must be a worker, and an update for each kill: %d kills at the updates %v", slices.Max(cfg.Kills), cfg.KillAt)
	case !slices.IsSorted(cfg.KillAt) || cfg.SaveEvery < 1:
		return errors.New("kills happen one after the other, and there is an update at least between checkpoints")
	case len(cfg.KillAt) > 0 && (cfg.KillAt[0] < 1 || cfg.KillAt[len(cfg.KillAt)-1] >= cfg.Updates):
		return fmt.Errorf("a run of %d updates cannot be disturbed at %v", cfg.Updates, cfg.KillAt)
	case cfg.Outage < 0 || cfg.GradientTime < 0 || cfg.Parallel < 1:
		return errors.New("times must not be negative, and one worker must be allowed at a time")
	}
	return nil
}

// Cell is one run of the grid.
type Cell struct {
	Model   string
	Preset  Preset
	Workers int
	Kills   int
	Seed    uint64
}

// Name returns the name of a cell, which is also that of its file.
func (c Cell) Name() string {
	return fmt.Sprintf("%s_%s_w%d_k%d_s%d", strings.NewReplacer(":", "-", "/", "-").Replace(c.Model), strings.NewReplacer(":", "-", "/", "-").Replace(c.Preset.Name),
		c.Workers, c.Kills, c.Seed)
}

// Cells returns the runs of the grid, seed by seed: if the experiment is stopped early, it has a
// complete grid of fewer seeds.
func (cfg *Config) Cells() (cells []Cell) {
	for seed := range cfg.Seeds {
		for _, model := range cfg.Models {
			for _, workers := range cfg.Workers {
				for _, kills := range cfg.Kills {
					for _, p := range cfg.Presets {
						if p.Forgets && kills < 2 || kills == 0 && cfg.Calm != "" && p.Name != cfg.Calm {
							continue // it forgets only before another kill, so undisturbed runs of it are like others
						}
						cells = append(cells, Cell{Model: model, Preset: p, Workers: workers, Kills: kills, Seed: uint64(seed + 1)})
					}
				}
			}
		}
	}
	return cells
}

// Overheads for the estimate: seconds to start and end the processes, and CPU seconds for each
// gradient with its step and its share of the evaluations.
const (
	startSeconds  = 6.0
	updateSeconds = 0.016
)

// Estimate returns the expected time of cells: the time of their gradients and outages, or the CPU
// time if that is longer.
func (cfg *Config) Estimate(cells []Cell, cores int) time.Duration {
	clock, work := 0.0, 0.0
	for _, c := range cells {
		seconds := startSeconds + float64(cfg.Updates)*max(cfg.GradientTime.Seconds()*1.1, updateSeconds)
		if !strings.HasPrefix(c.Preset.Recovery, "chain") {
			seconds += float64(c.Kills) * cfg.Outage.Seconds()
		}
		clock += seconds * float64(min(c.Workers, cfg.Parallel))
		work += startSeconds/2 + float64(cfg.Updates*c.Workers)*updateSeconds
	}
	seconds := max(clock/float64(cfg.Parallel), work/float64(cores))
	return time.Duration(seconds * float64(time.Second)).Round(time.Second)
}

// Run makes the runs whose results do not exist yet, and returns all results. Failed runs are
// missing, and the error names them.
func Run(ctx context.Context, cfg Config, cores int) ([]Trial, error) {
	if err := os.MkdirAll(cfg.cellsDir(), 0o777); err != nil {
		return nil, fmt.Errorf("folder for results: %w", err)
	}
	cells := cfg.Cells()
	runs := make([]*Trial, len(cells))
	var left []int
	for i, c := range cells {
		if runs[i] = cfg.load(c); runs[i] == nil {
			left = append(left, i)
		}
	}
	missing := make([]Cell, len(left))
	for i, at := range left {
		missing[i] = cells[at]
	}
	fmt.Fprintf(cfg.Progress, "%d runs, %d of them there already; the others take about %v, %d workers at a time\n",
		len(cells), len(cells)-len(left), cfg.Estimate(missing, cores), cfg.Parallel)
	err := cfg.make(ctx, missing, func(i int, r *Trial) { runs[left[i]] = r })
	var all []Trial
	for _, r := range runs {
		if r != nil {
			all = append(all, *r)
		}
	}
	if ctx.Err() != nil {
		return all, ctx.Err()
	}
	return all, err
}

// make makes runs, several at a time, within the limit on workers. If one fails, the others
// continue.
func (cfg *Config) make(ctx context.Context, cells []Cell, made func(i int, r *Trial)) error {
	room := semaphore.NewWeighted(int64(cfg.Parallel))
	progress := bench.NewCountdown(cfg.Progress, len(cells))
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed []error
	)
	for i, c := range cells {
		need := int64(min(c.Workers, cfg.Parallel))
		if room.Acquire(ctx, need) != nil {
			break // the caller reports the end of ctx
		}
		wg.Go(func() {
			defer room.Release(need)
			r, err := cfg.run(ctx, c)
			if err == nil {
				err = cfg.save(r)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", c.Name(), err))
				progress.Ended(fmt.Sprintf("%s failed: %v", c.Name(), err))
				return
			}
			made(i, r)
			progress.Ended(r.String())
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

func (cfg *Config) cellsDir() string { return filepath.Join(cfg.Dir, "cells") }

// steps returns the number of steps in the given number of updates of each worker.
func (c Cell) steps(updates int) int {
	if c.Preset.Async {
		return updates * c.Workers
	}
	return updates
}

// String returns the result in one line.
func (r *Trial) String() string {
	s := fmt.Sprintf("%s %s, %d workers, %d kills, seed %d: %.3f", r.Model, r.Preset, r.Workers, r.Kills, r.Seed, float64(r.Final))
	for _, k := range r.Deaths {
		if !math.IsNaN(float64(k.After)) {
			s += fmt.Sprintf("; %.3f → %.3f after %.1f s", float64(k.Before), float64(k.After), float64(k.Gap))
		}
	}
	return s
}
