package live

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// Steps that are made while their gradients arrive have the bits of steps that are made at their
// commits, for every way that gradients travel and every place where shards are kept, also if a
// server dies in the middle of such a step.
func TestMakingStepsAsTheyArriveDoesNotChangeTheModel(t *testing.T) {
	race.Skip(t)
	calm := base(t)
	calm.Servers, calm.Workers, calm.Steps, calm.Layout, calm.Device, calm.Threads, calm.SaveEvery = 2, 3, 12, wide(t), kernels.Best(), 2, 0
	calm.Gradient, calm.Layered = nil, layered(calm.Layout, 0)
	var begun atomic.Int32
	counts := func(fifth func()) func(kintsugi.ServerID, server.State) {
		begun.Store(0)
		return func(_ kintsugi.ServerID, s server.State) {
			if s == server.Arriving && begun.Add(1) == 5 {
				fifth()
			}
		}
	}
	quota := calm
	quota.Consistency, quota.ServerEnters = agg.Config{Quota: calm.Workers}, counts(func() {}) // the same gradients are counted, but servers cannot know it beforehand
	want := run(t, quota, nil)
	if n := begun.Load(); n > 0 {
		t.Fatalf("%d steps were begun before their commit where it is not certain what counts", n)
	}
	for _, c := range []struct {
		name  string
		set   func(*Config)
		storm func(*Cluster, func() error)
	}{
		{"messages", func(c *Config) { c.Wire = worker.WireGRPC }, nil},
		{"memory", func(c *Config) { c.Wire = worker.WireShared }, nil},
		{"a running checkpoint", func(c *Config) { c.RunEvery = 3 }, nil},
		{"chains", func(c *Config) { c.Replicas = 2 }, func(l *Cluster, again func() error) {
			l.GoOn("a server died")
			if err := again(); err != nil {
				t.Error(err)
			}
			l.GoOn("it came back")
		}},
		{"memory outside", func(c *Config) { c.Outside = t.TempDir() }, func(l *Cluster, again func() error) {
			if err := again(); err != nil {
				t.Error(err)
			}
			l.NewContinuedView("it found what it held")
		}},
	} {
		cfg, middle := calm, make(chan struct{})
		c.set(&cfg)
		cfg.ServerEnters = counts(func() { close(middle) })
		var storm func(*Cluster)
		if c.storm != nil {
			storm = func(l *Cluster) {
				<-middle
				l.KillServer(1)
				c.storm(l, func() error { return l.StartServer(1) })
			}
		}
		if got := run(t, cfg, storm); !slices.EqualFunc(got, want, sameBits) {
			t.Errorf("%s: another model", c.name)
		}
		if n := begun.Load(); n < 6 {
			t.Errorf("%s: %d steps of two shards were begun before their commit", c.name, n)
		}
	}
}
