package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/reach"
)

func TestStepsStandWithoutThoseBeforeAndTheHeads(t *testing.T) {
	v := kintsugi.View{Conductor: 2, Chains: [][]kintsugi.ServerID{{2, 0, 1}, {1, 2}, {2, 3}, {3, 1, 0}}}
	for id := range kintsugi.ServerID(4) {
		v.Servers = append(v.Servers, kintsugi.Member{Server: id, Incarnation: 10 + kintsugi.Incarnation(id)})
	}
	for id, want := range map[kintsugi.ServerID][2][]kintsugi.ServerID{ // without copies, and with them
		0: {{2, 1}, nil},
		1: {{0, 3}, nil},
		2: {{1, 3}, {1, 3}}, // the conductor's server
		3: {{2}, nil},
		4: {nil, nil}, // it is in no view
	} {
		for i, copies := range []bool{false, true} {
			var got []kintsugi.ServerID
			for _, l := range links(v, kintsugi.Life{Server: id, Incarnation: 10 + kintsugi.Incarnation(id)}, copies) {
				got = append(got, l.Server)
			}
			if !slices.Equal(got, want[i]) {
				t.Errorf("server/%d, copies: %v: %v, want %v", id, copies, got, want[i])
			}
		}
	}
	if got := links(v, kintsugi.Life{Server: 1, Incarnation: 12}, false); got != nil {
		t.Errorf("a life that the view does not name reaches for %v", got)
	}
}

// world answers what a server asks.
type world struct {
	mu   sync.Mutex
	deaf map[kintsugi.Life]bool
	kept []kintsugi.Life
	said [][]kintsugi.Life // reports that reached etcd
	away bool              // etcd does not answer
}

func (w *world) ask(ctx context.Context, whom kintsugi.Life, address string) error {
	if address == "" {
		return errors.New("nobody knows where it is")
	}
	w.mu.Lock()
	deaf := w.deaf[whom]
	w.mu.Unlock()
	if !deaf {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	<-ctx.Done()
	return ctx.Err()
}

func (w *world) keep(whom []kintsugi.Life) {
	w.change(func() { w.kept = whom })
}

func (w *world) tell(_ context.Context, whom []kintsugi.Life) (err error) {
	w.change(func() {
		if w.away {
			err = errors.New("etcd is away")
		} else {
			w.said = append(w.said, whom)
		}
	})
	return err
}

func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// A server reports that it does not reach another one when that has not answered for a while, and
// repeats the report if nobody has received it. It reports that it reaches it again when the other
// has answered for a while, also if the view leaves one of the two out, or when the other's life is
// over.
func TestAServerSaysWhomItDoesNotReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{deaf: make(map[kintsugi.Life]bool)}
		s := New(Config{ID: 1, Incarnation: 5, Log: slog.New(slog.DiscardHandler), Apart: w.tell})
		ctx, cancel := context.WithCancel(t.Context())
		go s.meet(ctx, w)
		enter := func(n kintsugi.Incarnation, chain ...kintsugi.ServerID) {
			s.entered <- kintsugi.View{Chains: [][]kintsugi.ServerID{chain}, Servers: []kintsugi.Member{{Server: 0, Incarnation: n, Address: "a"}, {Server: 1, Incarnation: 5, Address: "b"}}}
		}
		check := func(d time.Duration, want ...[]kintsugi.Life) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			w.change(func() {
				if !slices.EqualFunc(w.said, want, slices.Equal) {
					t.Errorf("it has said %v, want %v", w.said, want)
				}
				w.said = nil
			})
		}
		first, second := kintsugi.Life{Server: 0, Incarnation: 3}, kintsugi.Life{Server: 0, Incarnation: 4}
		time.Sleep(tryEvery / 2) // so that nothing below happens at the moment of a try
		enter(3, 0, 1)
		check(time.Minute)
		w.change(func() { w.deaf[first] = true })
		check(reach.After)
		check(3*time.Second, []kintsugi.Life{first})
		enter(3, 0) // this server is left out
		check(time.Minute)
		w.change(func() { w.deaf[first] = false })
		check(reach.Again)
		check(2*time.Second, nil)
		enter(3, 0, 1)
		w.change(func() { w.away, w.deaf[first] = true, true })
		check(time.Minute)
		w.change(func() { w.away = false })
		check(3*time.Second, []kintsugi.Life{first})
		enter(4, 0, 1)
		check(2*time.Second, nil)
		if !slices.Equal(w.kept, []kintsugi.Life{second}) {
			t.Errorf("it keeps connections to %v", w.kept)
		}
		cancel()
		synctest.Wait()
		if len(w.kept) != 0 {
			t.Errorf("in the end it keeps connections to %v", w.kept)
		}
	})
}
