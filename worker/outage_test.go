package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/worker/kept"
)

// outOf returns what a worker keeps of an outage in which it computes n gradients: by push, the
// first gradient and the number of gradients.
func outOf(t *testing.T, rule kintsugi.KeepRule, n int, before func(w *worker)) (kept []string) {
	t.Helper()
	layout, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{4}}})
	if err != nil {
		t.Fatal(err)
	}
	enough := make(chan struct{})
	w := &worker{
		params: make([]float32, 4), grads: make([]float32, 4), spare: make([]float32, 4),
		cfg: Config{
			Layout: layout, Device: kernels.Best(), Log: slog.New(slog.DiscardHandler), Enter: func(State) {}, Slow: func() float64 { return 1 },
			Pace: kintsugi.Pace{Continue: true, Keep: rule}, Rate: func(kintsugi.Step) float64 { return 0.1 },
			Gradient: func(ctx context.Context, _, grads []float32, id kintsugi.PushID) (float64, int, error) {
				if n--; n < 0 {
					close(enough)
					<-ctx.Done()
					return 0, 0, ctx.Err()
				}
				for i := range grads {
					grads[i] = float32(id.Sequence)
				}
				return 1, 8, nil
			},
		},
	}
	w.outage.queue = newQueue(rule)
	before(w)
	w.outage.begin(t.Context(), w)
	select {
	case <-enough:
	case <-w.outage.ended: // the path has gone astray
	}
	if err := w.outage.end(); err != nil {
		t.Fatal(err)
	}
	list, _ := w.outage.queue.Take()
	for _, g := range list {
		kept = append(kept, fmt.Sprintf("%d:%d first %v", g.ID.Sequence, g.Merged, g.First))
	}
	return kept
}

func newQueue(rule kintsugi.KeepRule) *kept.Queue {
	return kept.New(kept.Config{Rule: rule, Values: 4, Most: keptArrays})
}

// A head may have bytes of anything that has gone out in any session, and takes no other bytes
// under its id, since two heads would then have two gradients under one id. So the next gradient
// stays as it is if it has gone out, and others that have are skipped.
func TestWhatHasGoneOutStaysAsItIs(t *testing.T) {
	id := func(seq uint32) kintsugi.PushID {
		return kintsugi.PushID{Line: 1, Slot: 2, Incarnation: 3, Version: 7, Sequence: seq}
	}
	for _, c := range []struct {
		name   string
		before func(w *worker)
		want   []string
	}{
		{"nothing has gone out", func(w *worker) { w.comes(id(0)) }, []string{"0:4 first false"}},
		{"the session broke amid the push", func(w *worker) { w.comes(id(0)); w.goesOut(id(0)) }, []string{"0:1 first true", "1:3 first false"}},
		{"and another one before it was computed again", func(w *worker) {
			w.comes(id(0))
			w.goesOut(id(0))
			w.comes(id(0)) // the next session begins with the same version
		}, []string{"0:1 first true", "1:3 first false"}},
		{"its ticket went out too", func(w *worker) { w.comes(id(0)); w.goesOut(id(0)); w.passed(id(0)) }, []string{"1:4 first false"}},
		{"its ticket went out too, and the next session began with it", func(w *worker) {
			w.comes(id(0))
			w.goesOut(id(0))
			w.passed(id(0))
			w.comes(id(0)) // a step that counts it may be released by now
		}, []string{"1:4 first false"}},
		{"tickets of several went out, and the next session began with the first", func(w *worker) {
			for seq := range uint32(3) {
				w.comes(id(seq))
				w.goesOut(id(seq))
				w.passed(id(seq))
			}
			w.comes(id(0))
		}, []string{"3:4 first false"}},
		{"a ticket went out, and the next session broke amid the push of the gradient after it", func(w *worker) {
			w.comes(id(0))
			w.goesOut(id(0))
			w.passed(id(0))
			w.goesOut(id(1))
			w.comes(id(0))
		}, []string{"1:1 first true", "2:3 first false"}},
		{"several pushes were open, and the next session began with the first", func(w *worker) {
			for seq := range uint32(3) {
				w.comes(id(seq))
				w.goesOut(id(seq))
			}
			w.comes(id(0))
		}, []string{"0:1 first true", "3:3 first false"}},
		{"it was on another version", func(w *worker) {
			old := id(5)
			old.Version--
			w.goesOut(old)
			w.comes(id(0))
		}, []string{"0:4 first false"}},
		{"it was on another line", func(w *worker) {
			old := id(5)
			w.goesOut(old)
			next := id(0)
			next.Line++
			w.comes(next)
		}, []string{"0:4 first false"}},
	} {
		for _, rule := range []kintsugi.KeepRule{kintsugi.KeepAverage, kintsugi.KeepSum, kintsugi.KeepLocal} {
			if got := outOf(t, rule, 4, c.before); !slices.Equal(got, c.want) {
				t.Errorf("%s, %v: kept %q, want %q", c.name, rule, got, c.want)
			}
		}
	}
}

// A worker that trains on by itself has moved its parameters. A gradient that went out before that
// cannot be computed again.
func TestAPathDoesNotGoThroughWhatHasGoneOut(t *testing.T) {
	id := func(seq uint32) kintsugi.PushID {
		return kintsugi.PushID{Line: 1, Slot: 2, Incarnation: 3, Version: 7, Sequence: seq}
	}
	got := outOf(t, kintsugi.KeepLocal, 2, func(w *worker) {
		w.goesOut(id(0))
		w.outage.queue.Keep(id(0), 1, 8, make([]float32, 4), true) // in the outage before
		w.outage.newest = id(0)
		w.goesOut(id(1)) // in the session between them
		w.comes(id(1))
	})
	if want := []string{"0:1 first true", "2:2 first false"}; !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
}

// A worker that trains on by itself may do so with a rate that is too large for the slope. Its path
// is dropped as soon as losses are several times what they were, whatever a single batch gives, and
// not only when they are NaN.
func TestAPathThatLeadsAstrayIsDropped(t *testing.T) {
	for _, c := range []struct {
		name          string
		turns, losses []float64 // of the gradients before the outage, and in it
		kept          bool
	}{
		{"it goes down", []float64{2, 2.2, 1.8}, []float64{2, 1.9, 1.8, 1.7}, true},
		{"batches differ", []float64{0.05, 0.2, 0.01}, []float64{0.05, 0.3, 0.02, 0.1}, true},
		{"few batches have nearly all of the loss", []float64{0.001, 0.001, 0.03, 0.001, 0.001, 0.001}, []float64{0.001, 0.05, 0.001, 0.02}, true},
		{"they have, and it has led to large losses", []float64{0.001, 0.001, 0.03, 0.001, 0.001, 0.001}, []float64{0.1, 1, 10, 100}, false},
		{"it has led to large losses", []float64{2, 2.2, 1.8}, []float64{2, 4, 16, 64}, false},
		{"losses are below zero", []float64{-20, -21}, []float64{-20, -10, 20, 300}, false},
		{"they are below zero, and go down", []float64{-20, -21}, []float64{-22, -23, -24, -25}, true},
		{"nobody knows what is usual", nil, []float64{2, 4, 16, 64}, true},
	} {
		for _, rule := range []kintsugi.KeepRule{kintsugi.KeepLocal, kintsugi.KeepAverage} {
			got := outOf(t, rule, len(c.losses), func(w *worker) {
				w.comes(kintsugi.PushID{Line: 1, Version: 7})
				for _, loss := range c.turns {
					w.outage.saw(loss)
				}
				next, inner := 0, w.cfg.Gradient
				w.cfg.Gradient = func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
					_, n, err := inner(ctx, params, grads, id)
					next++
					return c.losses[min(next, len(c.losses))-1], n, err
				}
			})
			if kept := len(got) > 0; kept != (c.kept || rule != kintsugi.KeepLocal) {
				t.Errorf("%s, %v: kept %q", c.name, rule, got)
			}
		}
	}
}

// On its own, a worker moves each tensor at the tensor's rate, and divides what was restored by
// these rates, also where a range begins in the middle of a tensor.
func TestAPathHasTheRatesOfItsTensors(t *testing.T) {
	layout, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "a", Shape: []int{3}}, {Name: "b", Shape: []int{2}}})
	if err != nil {
		t.Fatal(err)
	}
	if layout, err = layout.WithRates(map[string]float32{"b": 4}); err != nil {
		t.Fatal(err)
	}
	w := &worker{cfg: Config{Layout: layout, Rate: func(v kintsugi.Step) float64 { return 0.25 * float64(v) }}}
	params := []float32{1, 1, 1, 1, 1}
	id := kintsugi.PushID{Version: 2}
	w.move(params, id, []float32{1, 2, 3, 1, -1})
	if want := []float32{0.5, 0, -0.5, -1, 3}; !slices.Equal(params, want) {
		t.Errorf("the path leads to %v, want %v", params, want)
	}
	want := []kept.Part{{Range: kept.Range{Lo: 1, Hi: 3}, Rate: 0.5}, {Range: kept.Range{Lo: 3, Hi: 4}, Rate: 2}, {Range: kept.Range{Lo: 4, Hi: 5}, Rate: 2}}
	if got := w.parts([]kept.Range{{Lo: 1, Hi: 4}, {Lo: 4, Hi: 5}}, id); !slices.Equal(got, want) {
		t.Errorf("parts %v, want %v", got, want)
	}
}
