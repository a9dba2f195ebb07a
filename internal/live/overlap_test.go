package live

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// wide is a layout in which a shard is several frames long.
func wide(t testing.TB) *kintsugi.Layout {
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "a", Shape: []int{300, 500}}, {Name: "b", Shape: []int{320, 470}}, {Name: "c", Shape: []int{11}}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// layered computes noisy layer by layer, the last first. It waits between layers, and a newer
// version may come meanwhile.
func layered(l *kintsugi.Layout, each time.Duration) func(*worker.Layers) worker.Gradient {
	return func(layers *worker.Layers) worker.Gradient {
		layers.Waits = true
		return func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
			for lo := 0; lo < len(params) && ctx.Err() == nil; lo += 50_000 {
				layers.Need(lo, min(len(params), lo+50_000))
			}
			if ctx.Err() != nil {
				return 0, 0, ctx.Err()
			}
			whole := slices.Clone(grads)
			loss, n, err := noisy(ctx, params, whole, id)
			hi := len(grads)
			for hi > 0 {
				lo := max(0, hi-90_000)
				copy(grads[lo:hi], whole[lo:hi])
				layers.Ready(lo, hi)
				if hi = lo; each > 0 {
					select {
					case <-time.After(each):
					case <-ctx.Done():
						return 0, 0, ctx.Err()
					}
				}
			}
			return loss, n, err
		}
	}
}

// Parts of a gradient that are pushed before the rest is computed do not change the model, whatever
// the wire and the codec, nor does the death of a server in the middle. The run goes on where a
// worker is.
func TestPushingWhileComputingDoesNotChangeTheModel(t *testing.T) {
	race.Skip(t)
	for _, c := range []struct {
		name  string
		wire  worker.Wire
		codec string
	}{{"memory", worker.WireShared, ""}, {"messages", worker.WireGRPC, ""}, {"codec", worker.WireAuto, "int8-nofeedback"}} {
		t.Run(c.name, func(t *testing.T) {
			cfg := base(t)
			cfg.Servers, cfg.Workers, cfg.Steps, cfg.Layout, cfg.Wire, cfg.Device = 2, 2, 16, wide(t), c.wire, kernels.Best()
			if c.codec != "" {
				cfg.Codec = func(kintsugi.Slot) compress.Codec {
					codec, err := compress.Parse(c.codec)
					if err != nil {
						t.Fatal(err)
					}
					return codec
				}
			}
			want := run(t, cfg, nil)
			cfg.Gradient, cfg.Layered = nil, layered(cfg.Layout, 0)
			if got := run(t, cfg, nil); !slices.EqualFunc(got, want, sameBits) {
				t.Error("the model depends on when gradients are pushed")
			}
			frames, middle := atomic.Int32{}, make(chan struct{})
			cfg.WorkerEnters = func(_ kintsugi.Slot, s worker.State) {
				if s == worker.Pushing && frames.Add(1) == 41 {
					close(middle)
				}
			}
			got := run(t, cfg, func(l *Cluster) {
				<-middle
				l.KillServer(1)
				if err := l.StartServer(1); err != nil {
					t.Fatal(err)
				}
				l.NewView("a server came back")
			})
			if !slices.EqualFunc(got, want, sameBits) {
				t.Error("the model depends on the death of a server in the middle of a push")
			}
			frames.Store(0)
			middle = make(chan struct{})
			run(t, cfg, func(l *Cluster) { // with other members, steps count other gradients
				<-middle
				l.KillWorker(0)
				l.StartWorker(0)
			})
		})
	}
}

// If other gradients are enough for a step, workers give up gradients of which a part is pushed.
// Heads free what they have of them, and a worker does not write memory that a head reads. The run
// makes every step.
func TestGradientsThatAreGivenUpHalfWayAreGivenBack(t *testing.T) {
	for _, wire := range []worker.Wire{worker.WireShared, worker.WireGRPC} {
		cfg := base(t)
		cfg.Servers, cfg.Workers, cfg.Steps, cfg.Layout, cfg.Wire, cfg.Device = 2, 3, 12, wide(t), wire, kernels.Best()
		cfg.Consistency = preset(t, "backup:1")
		cfg.Gradient, cfg.Layered = nil, layered(cfg.Layout, time.Millisecond)
		cfg.Slow = map[kintsugi.Slot]func() float64{2: func() float64 { return 3 }}
		run(t, cfg, nil)
	}
}

// rowwise is noisy that leaves most rows at zero, so that most chunks do not change in a step.
func rowwise(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
	loss, n, err := noisy(ctx, params, grads, id)
	for i := range grads {
		if i/4000%7 != int(id.Version)%7 {
			grads[i] = 0
		}
	}
	return loss, n, err
}

// Parameters that are not sent because they have not changed do not change the model, whatever the
// wire, and that saves bytes. If every chunk changes, all are sent.
func TestPullingChangesDoesNotChangeTheModel(t *testing.T) {
	for _, c := range []struct {
		gradient    worker.Gradient
		wire        worker.Wire
		consistency string
	}{{rowwise, worker.WireShared, "bsp"}, {rowwise, worker.WireGRPC, "bsp:wait"}, {noisy, worker.WireShared, "bsp"}} {
		cfg := base(t)
		cfg.Servers, cfg.Gradient, cfg.Wire, cfg.Consistency = 2, c.gradient, c.wire, preset(t, c.consistency)
		cfg.Schedule.Rule, cfg.Steps = kintsugi.RuleSGD, 30
		want := run(t, cfg, nil)
		cfg.Pull = worker.PullDelta
		got := run(t, cfg, func(l *Cluster) {
			until(t, l, 13)
			l.KillServer(1)
			if err := l.StartServer(1); err != nil {
				t.Fatal(err)
			}
			l.NewView("a server came back")
		})
		if !slices.EqualFunc(got, want, sameBits) {
			t.Errorf("%v, %s: the model depends on what is pulled", c.wire, c.consistency)
		}
	}
}

// Rounded parameters are the same for every worker, whatever the wire and whichever server has
// them.
func TestPullingRoundedParametersIsOneModel(t *testing.T) {
	race.Skip(t)
	cfg := base(t)
	cfg.Pull, cfg.Wire = worker.PullBF16, worker.WireGRPC
	want := run(t, cfg, nil)
	cfg.Servers, cfg.Wire, cfg.Device = 3, worker.WireShared, kernels.Best()
	if got := run(t, cfg, nil); !slices.EqualFunc(got, want, sameBits) {
		t.Error("the model depends on what rounded parameters travel through")
	}
	cfg.Pull = worker.PullFP32
	if got := run(t, cfg, nil); slices.EqualFunc(got, want, sameBits) {
		t.Error("the parameters were not rounded")
	}
}
