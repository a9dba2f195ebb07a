package live

import (
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// outsideRun is a run whose servers keep their shards outside their processes. It has no checkpoint
// to go back to.
func outsideRun(t *testing.T) Config {
	cfg := base(t)
	cfg.Servers, cfg.SaveEvery, cfg.Outside = 3, 0, t.TempDir()
	return cfg
}

// strike kills servers and workers at the same time when a step is released, and lets them come
// back on the same line.
func strike(t *testing.T, l *Cluster, step kintsugi.Step, servers, workers []int) {
	t.Helper()
	until(t, l, step)
	for _, i := range servers {
		l.KillServer(i)
	}
	for _, i := range workers {
		l.KillWorker(i)
	}
	for _, i := range servers {
		if err := l.StartServer(i); err != nil {
			t.Fatal(err)
		}
	}
	l.NewContinuedView("servers found what they held")
	for _, i := range workers {
		l.StartWorker(i)
	}
}

// A server that dies finds its shard outside its process. No step is taken back, and the run ends
// with the bits of an undisturbed one, whether servers die alone, together, repeatedly, or with a
// worker.
func TestAServerThatFindsItsStateChangesNothing(t *testing.T) {
	calm := base(t)
	want := run(t, calm, nil)
	for name, storm := range map[string]func(*testing.T, *Cluster){
		"the conductor's": func(t *testing.T, l *Cluster) { strike(t, l, 20, []int{0}, nil) },
		"another":         func(t *testing.T, l *Cluster) { strike(t, l, 20, []int{2}, nil) },
		"all at once":     func(t *testing.T, l *Cluster) { strike(t, l, 20, []int{0, 1, 2}, nil) },
		"with a worker":   func(t *testing.T, l *Cluster) { strike(t, l, 20, []int{1}, []int{2}) },
		"with everybody":  func(t *testing.T, l *Cluster) { strike(t, l, 20, []int{0, 1, 2}, []int{0, 1, 2, 3}) },
		"again and again": func(t *testing.T, l *Cluster) {
			for i := range 6 {
				strike(t, l, kintsugi.Step(8*i+1), []int{i % 3}, nil)
			}
		},
		"after the first step": func(t *testing.T, l *Cluster) { strike(t, l, 1, []int{1}, nil) },
	} {
		if brief() && name != "with everybody" && name != "again and again" {
			continue // these two include the others
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := outsideRun(t)
			got := run(t, cfg, func(l *Cluster) {
				storm(t, l)
				if v := l.View(); v.Line != 1 {
					t.Errorf("the run is on line %d", v.Line)
				}
			})
			if !slices.EqualFunc(got, want, sameBits) {
				t.Error("another model")
			}
		})
	}
}

// If late gradients count, and several of one worker, a killed server ends nothing either.
func TestAServerThatFindsItsStateEndsNoAsynchronousRun(t *testing.T) {
	for _, preset := range []string{"async", "ssp:3", "backup:1", "rennala:6"} {
		if brief() && (preset == "ssp:3" || preset == "backup:1") {
			continue
		}
		t.Run(preset, func(t *testing.T) {
			t.Parallel()
			cfg := outsideRun(t)
			var err error
			if cfg.Consistency, err = agg.Preset(preset); err != nil {
				t.Fatal(err)
			}
			cfg.Steps = raced(200, 80)
			run(t, cfg, func(l *Cluster) {
				for i := range int(cfg.Steps) / 40 {
					strike(t, l, kintsugi.Step(30*i+10), []int{i % 3}, []int{i % 4})
				}
			})
		})
	}
}

// What was left out of encoded gradients stays with the workers: the line goes on, and so does the
// error feedback.
func TestResidualsOutliveAServer(t *testing.T) {
	race.Skip(t)
	cfg := outsideRun(t)
	cfg.Codec = func(kintsugi.Slot) compress.Codec {
		c, err := compress.Parse("topk:0.1")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	calm := cfg
	calm.Outside = t.TempDir()
	want := run(t, calm, nil)
	got := run(t, cfg, func(l *Cluster) {
		for i := range 3 {
			strike(t, l, kintsugi.Step(10*i+10), []int{i}, nil)
		}
	})
	if !slices.EqualFunc(got, want, sameBits) {
		t.Error("another model")
	}
}

// The file outside the process changes no bit of a run in which nobody dies, on any device.
func TestTheStateOutsideChangesNoBit(t *testing.T) {
	for _, d := range kernels.Devices() {
		cfg := base(t)
		cfg.Servers, cfg.Device, cfg.Threads = 2, d, 2
		want := run(t, cfg, nil)
		cfg.Outside = t.TempDir()
		if got := run(t, cfg, nil); !slices.EqualFunc(got, want, sameBits) {
			t.Errorf("%s: another model", d.Name())
		}
	}
}
