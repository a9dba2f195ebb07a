package live

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// outageRun returns an asynchronous run whose workers go on while servers are away, and a channel
// that receives a value for each gradient.
func outageRun(t *testing.T, keep kintsugi.KeepRule) (Config, <-chan struct{}) {
	cfg := outsideRun(t)
	cfg.Steps = 300
	cfg.Schedule = conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: 0.01}
	var err error
	if cfg.Consistency, err = agg.Preset("async:constant"); err != nil {
		t.Fatal(err)
	}
	cfg.Consistency.Continue, cfg.Consistency.Keep = true, keep
	begun := make(chan struct{})
	cfg.Slow = make(map[kintsugi.Slot]func() float64) // all workers are in one process here, and must share the processor
	for i := range cfg.Workers {
		cfg.Slow[kintsugi.Slot(i)] = func() float64 { return 20 }
	}
	cfg.Gradient = func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
		select {
		case begun <- struct{}{}:
		default: // nobody reads it now
		}
		return noisy(ctx, params, grads, id)
	}
	return cfg, begun
}

// Workers compute while a server is away. What they kept is counted when it is back, or dropped,
// and reported in both cases. No gradient counts twice, or the parameters would not come near the
// optimum.
func TestWorkersGoOnWhileAServerIsAway(t *testing.T) {
	rules := kintsugi.KeepRules()
	if brief() {
		rules = rules[:1] // the rules differ only in arithmetic
	}
	for _, keep := range rules {
		t.Run(keep.String(), func(t *testing.T) {
			cfg, begun := outageRun(t, keep)
			kept, dropped := uint32(0), uint32(0)
			params := run(t, cfg, func(l *Cluster) {
				victim := int(keep) % cfg.Servers
				until(t, l, 30)
				l.KillServer(victim)
				goOn(t, begun)
				if err := l.StartServer(victim); err != nil {
					t.Fatal(err)
				}
				l.NewContinuedView("it found what it held")
				kept, dropped = keptUntil(t, l, 60)
			})
			within := 0.1
			if keep == kintsugi.KeepSum { // a sum of thousands of gradients, at a tenth of the rate, may overshoot the optimum
				within = math.Inf(1)
			}
			checkKept(t, kept, dropped, params, within)
		})
	}
}

// A shard is lost in the outage and restored as it was saved. What workers have learnt alone counts
// on the new line, also if tensors have rates of their own. The run ends near the optimum, which it
// would not if a path were added to parameters other than those it began at.
func TestWhatWorkersHaveLearntAloneCountsWhereAShardIsLost(t *testing.T) {
	for victim, rates := range map[int]map[string]float32{0: nil, 2: {"a/b": 0.5, "c": 1.5}} { // 0 conducts
		cfg, begun := outageRun(t, kintsugi.KeepLocal)
		var err error
		if cfg.Layout, err = cfg.Layout.WithRates(rates); err != nil {
			t.Fatal(err)
		}
		cfg.Outside, cfg.RunEvery = "", 3
		kept, dropped := uint32(0), uint32(0)
		params := run(t, cfg, func(l *Cluster) {
			until(t, l, 30)
			l.KillServer(victim)
			goOn(t, begun)
			if err := l.StartServer(victim); err != nil {
				t.Fatal(err)
			}
			l.NewPartialView("a server was lost")
			kept, dropped = keptUntil(t, l, 60)
		})
		checkKept(t, kept, dropped, params, 0.1)
	}
}

// checkKept checks that some of what workers kept was counted, and how far the mean of the
// parameters is from the optimum, which is 1.
func checkKept(t *testing.T, kept, dropped uint32, params []float32, within float64) {
	t.Helper()
	t.Logf("%d kept gradients are counted, %d dropped", kept, dropped)
	if kept == 0 {
		t.Error("no kept gradient is counted")
	}
	mean := 0.0
	for _, p := range params {
		mean += float64(p) / float64(len(params))
	}
	if far := math.Abs(mean - 1); !(far <= within) {
		t.Errorf("the mean parameter is %v, want 1 ± %v", mean, within)
	}
}

// goOn waits until workers have computed some more gradients.
func goOn(t *testing.T, begun <-chan struct{}) {
	t.Helper()
	for range 60 {
		select {
		case <-begun:
		case <-time.After(patience):
			t.Fatal("nobody goes on")
		}
	}
}

// keptUntil returns what the present view reports of kept gradients up to a step.
func keptUntil(t *testing.T, l *Cluster, step kintsugi.Step) (kept, dropped uint32) {
	t.Helper()
	reached := false
	for !reached && t.Context().Err() == nil {
		kept, dropped = 0, 0
		_ = l.Watch(t.Context(), func(e kintsugi.RunEvent) bool {
			if s, ok := e.(kintsugi.StepEvent); ok {
				kept, dropped, reached = kept+s.Kept, dropped+s.Dropped, s.Step >= step
			}
			return !reached
		})
	}
	return kept, dropped
}

// With error feedback, kept gradients are encoded when they are offered: what the codec leaves out
// is sent later.
func TestKeptGradientsAreEncodedWhenTheyAreOffered(t *testing.T) {
	race.Skip(t)
	cfg, begun := outageRun(t, kintsugi.KeepDecay)
	cfg.Codec = func(kintsugi.Slot) compress.Codec {
		c, err := compress.Parse("topk:0.1")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	kept := uint32(0)
	run(t, cfg, func(l *Cluster) {
		until(t, l, 30)
		l.KillServer(1)
		goOn(t, begun)
		if err := l.StartServer(1); err != nil {
			t.Fatal(err)
		}
		l.NewContinuedView("it found what it held")
		kept, _ = keptUntil(t, l, 60)
	})
	if kept == 0 {
		t.Error("no kept gradient is counted")
	}
}
