package live

import (
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/kernelstest"
)

// Servers whose shards live on an accelerator end with the bits of servers on the host, whatever
// dies and however it comes back. The accelerator's memory is separate from the host's, so a
// missing or late copy between the two shows here.
func TestShardsOnAnAcceleratorAreTheSame(t *testing.T) {
	race.Skip(t)
	far := func(cfg Config) Config {
		cfg.Accelerator = kernelstest.Apart(kernels.Best())
		return cfg
	}
	comesBack := func(l *Cluster, i int) {
		l.KillServer(i)
		if err := l.StartServer(i); err != nil {
			t.Fatal(err)
		}
	}
	want := run(t, base(t), nil)
	restored, chained, outside := base(t), base(t), outsideRun(t)
	restored.Servers, restored.RunEvery = 2, 3
	chained.Servers, chained.Replicas = 3, 2
	for name, c := range map[string]struct {
		cfg   Config
		storm func(l *Cluster)
	}{
		"from a checkpoint": {restored, func(l *Cluster) {
			until(t, l, 33)
			comesBack(l, 1)
			l.NewView("a server came back")
		}},
		"from its chain": {chained, func(l *Cluster) {
			until(t, l, 12)
			l.KillServer(0)
			l.GoOn("a server died")
			until(t, l, 24)
			if err := l.StartServer(0); err != nil {
				t.Fatal(err)
			}
			l.GoOn("it came back")
			l.CaughtUp(0)
			l.KillServer(1)
			l.GoOn("its neighbour died")
		}},
		"from outside": {outside, func(l *Cluster) { strike(t, l, 20, []int{0, 2}, nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			if got := run(t, far(c.cfg), c.storm); !slices.EqualFunc(got, want, sameBits) {
				t.Error("another model")
			}
		})
	}
	t.Run("of encoded gradients", func(t *testing.T) {
		cfg := withCodecs(t, base(t), "int8", "sign+s2", "topk:0.05", "powersgd:2")
		cfg.Steps, cfg.Servers = 30, 2
		want := loop(t, cfg)
		if got := run(t, far(cfg), nil); !slices.EqualFunc(got, want, sameBits) {
			t.Error("another model")
		}
	})
	t.Run("in part", func(t *testing.T) {
		cfg := base(t)
		cfg.Servers, cfg.RunEvery, cfg.SaveEvery = 4, 3, 0
		var saved []kintsugi.Step
		chunks := cfg.Layout.Split(4)[2]
		var lost kintsugi.PartialEvent
		got := run(t, far(cfg), func(l *Cluster) {
			until(t, l, 33)
			comesBack(l, 2)
			l.mu.Lock()
			for id := chunks.Lo; id < chunks.Hi; id++ {
				saved = append(saved, l.running[id].step)
			}
			l.mu.Unlock()
			l.NewPartialView("a server was killed")
			lost = partialEvent(t, l)
		})
		want := newAlone(cfg)
		want.until(t, lost.Step)
		want.lose(chunks, saved)
		want.until(t, cfg.Steps)
		if !slices.EqualFunc(got, want.now[0], sameBits) {
			t.Error("another model")
		}
	})
}
