package live

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// A gradient function may return when its context ends. A worker whose view is replaced in the
// middle of a gradient goes on in the next view.
func TestAGradientThatIsInterruptedEndsNothing(t *testing.T) {
	want := run(t, base(t), nil)
	var holding atomic.Bool
	held := make(chan struct{}, 1)
	cfg := base(t)
	cfg.Gradient = func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
		if id.Version == 20 && id.Slot == 1 && holding.CompareAndSwap(false, true) {
			held <- struct{}{}
			<-ctx.Done()
			return 0, 0, ctx.Err()
		}
		return noisy(ctx, params, grads, id)
	}
	got := run(t, cfg, func(l *Cluster) {
		select {
		case <-held:
			l.NewView("someone wants one")
		case <-l.ctx.Done():
		}
	})
	if !slices.EqualFunc(got, want, sameBits) {
		t.Error("a gradient that was interrupted changed the model")
	}
}

// A ticket that is refused on the newest version neither ends nor hangs the worker: it tries again.
func TestARefusedTicketIsTriedAgain(t *testing.T) {
	want := run(t, base(t), nil)
	for _, sharded := range []int{1, 2} {
		var once atomic.Bool
		cfg := base(t)
		cfg.Servers = sharded
		cfg.Gradient = func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
			loss, examples, err := noisy(ctx, params, grads, id)
			if id.Version == 20 && id.Slot == 1 && once.CompareAndSwap(false, true) {
				examples = 0 // which the conductor refuses
			}
			return loss, examples, err
		}
		if got := run(t, cfg, nil); !slices.EqualFunc(got, want, sameBits) {
			t.Error("a ticket that was refused changed the model")
		}
	}
}

// Workers end when the run does, even one that is computing: nobody waits for its gradient any
// more.
func TestDoneEndsAWorkerInTheMiddleOfAGradient(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cfg := base(t)
	cfg.Consistency = agg.Config{Quota: 3, Lead: kintsugi.Infinite, Busy: kintsugi.Pull}
	cfg.Log = t.Output()
	interrupted := make(chan struct{})
	cfg.Gradient = func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
		if id.Slot == 3 {
			<-ctx.Done()
			close(interrupted)
			return 0, 0, ctx.Err()
		}
		return noisy(ctx, params, grads, id)
	}
	l, err := Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Wait(); err != nil {
		t.Fatal(err)
	}
	<-l.workers[3].ended
	<-interrupted
	if err := l.err(); err != nil {
		t.Error(err)
	}
}

// Servers and workers that have ended leave nothing running: no stream, loop, save or connection.
func TestNothingRunsOnAfterACluster(t *testing.T) {
	before := goleak.IgnoreCurrent()
	cfg := base(t)
	cfg.Servers, cfg.SaveEvery = 2, 1
	run(t, cfg, func(l *Cluster) {
		until(t, l, 10)
		l.KillWorker(1)
		l.StartWorker(1)
		until(t, l, 20)
		l.NewView("someone wants one")
	})
	goleak.VerifyNone(t, before)
}
