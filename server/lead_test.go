package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// ofOneShard returns a server of a run with one shard, and the chunks of that.
func ofOneShard(t *testing.T, cfg Config) (*Server, kintsugi.ChunkRange) {
	t.Helper()
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{100}}})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Layout, cfg.Device, cfg.Schedule = l, kernels.Host, conductor.Schedule{Rule: kintsugi.RuleSGD}
	return New(cfg), l.Split(1)[0]
}

// A follower is not refused while the line has not begun. Otherwise it would try again and again,
// each time with memory for the sums of the shard.
func TestWhoFollowsWaitsUntilTheLineHasBegun(t *testing.T) {
	s, chunks := ofOneShard(t, Config{LoadRunning: func(_ context.Context, _ kintsugi.View, s *Shard) ([]kintsugi.Step, error) {
		return make([]kintsugi.Step, s.Chunks.Hi-s.Chunks.Lo), nil
	}})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		v := kintsugi.View{Number: 2, Line: 2, Keeps: 1, Lost: []kintsugi.ShardID{0}, Fence: 1, Replicas: 2, Chains: [][]kintsugi.ServerID{{0, 1}}, Servers: make([]kintsugi.Member, 2)}
		r, err := s.newReplica(ctx, v, 0, chunks, 0)
		if err != nil {
			t.Fatal(err)
		}
		go r.run()
		f := kintsugi.Follow{Line: 2, View: 2, Server: 1, Attempt: 1}
		connect := func(ctx context.Context) (a *after, connected chan error) {
			a, connected = &after{out: newOutbox[parcel]()}, make(chan error, 1)
			go func() { connected <- r.connect(ctx, a, f) }()
			return a, connected
		}
		goes, gone := context.WithCancel(ctx)
		_, never := connect(goes)
		a, connected := connect(ctx)
		synctest.Wait()
		select {
		case err := <-connected:
			t.Fatalf("before the line has begun: %v", err)
		default:
		}
		gone()
		if err := <-never; err == nil {
			t.Error("whose stream has ended follows")
		}
		if err := r.do(func() {
			r.core.Handle(kintsugi.Take{Line: 2, View: 2, Fence: 1})
			r.core.Handle(kintsugi.Adopt{Line: 2, Fence: 1, Step: 7})
		}); err != nil {
			t.Error(err)
		}
		if err := <-connected; err != nil {
			t.Errorf("when the line has begun: %v", err)
		}
		if err := r.do(func() {
			if r.after != a || len(a.out.queue) == 0 {
				t.Errorf("%d messages for who follows", len(a.out.queue))
			}
		}); err != nil {
			t.Error(err)
		}
		_, late := connect(ctx)
		if err := <-late; !errors.Is(err, kintsugi.ErrStaleView) {
			t.Errorf("what a stream before has brought is believed: %v", err)
		}
		f.Attempt++
		_, again := connect(ctx)
		if err := <-again; err != nil {
			t.Errorf("on a line that goes on: %v", err)
		}
	})
}

// A replica whose parcels are too many begins again, and is waited for from then on: otherwise it
// would have too many again and again while steps go on faster than it can take them in.
func TestWhoIsOutpacedIsWaitedForWhenItConnectsAgain(t *testing.T) {
	s, chunks := ofOneShard(t, Config{Load: func(context.Context, kintsugi.View, *Shard) error { return nil }})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		v := kintsugi.View{Number: 1, Line: 1, Fence: 1, Replicas: 2, Chains: [][]kintsugi.ServerID{{0, 1}}, Servers: make([]kintsugi.Member, 2)}
		r, err := s.newReplica(ctx, v, 0, chunks, 0)
		if err != nil {
			t.Fatal(err)
		}
		go r.run()
		fence := kintsugi.Fence(0)
		// waits connects a replica that has nothing, and reports whether the next answer waits for it.
		waits := func(attempt uint64) (a *after, waits bool) {
			a = &after{out: newOutbox[parcel]()}
			if err := r.connect(ctx, a, kintsugi.Follow{Line: 1, View: 1, Server: 1, Attempt: attempt}); err != nil {
				t.Fatal(err)
			}
			fence++
			if err := r.do(func() {
				r.core.Handle(kintsugi.Take{Line: 1, View: 1, Fence: fence})
				ready := r.core.Ready()
				waits = len(ready.Replies) == 0
			}); err != nil {
				t.Fatal(err)
			}
			return a, waits
		}
		a, waited := waits(1)
		if waited {
			t.Error("who catches up is waited for at once")
		}
		if err := r.do(func() {
			for range mostBehind(r.sums.total) + 1 {
				r.put(a, parcel{message: kintsugi.Joined{}}, nil)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(a.out.err, errSlowPeer) {
			t.Errorf("its stream ends with %v, want %v", a.out.err, errSlowPeer)
		}
		if _, waited = waits(2); !waited {
			t.Error("who was outpaced is not waited for")
		}
	})
}

// However large a shard is, some steps may wait for a replica that catches up, and not more than the
// memory of a server has room for.
func TestHowManyStepsMayWait(t *testing.T) {
	for n, want := range map[int]int32{0: maxBehind, 1000: maxBehind, 25_000_000: 21, 100_000_000: minBehind, 1 << 40: minBehind} {
		if got := mostBehind(n); got != want {
			t.Errorf("of %d values: %d parcels, want %d", n, got, want)
		}
	}
}
