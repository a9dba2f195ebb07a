package live

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker"
)

func preset(t *testing.T, text string) agg.Config {
	t.Helper()
	c, err := agg.Preset(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// witness observes every gradient that workers compute.
type witness struct {
	mu       sync.Mutex
	seed     maphash.Seed
	params   map[kintsugi.Step]uint64 // hash of the parameters, by version
	seen     map[kintsugi.PushID]bool
	begun    map[kintsugi.Slot]int // number of gradients
	ended    map[kintsugi.Slot]int
	wrong    []string
	sequence uint32 // largest sequence number
}

func newWitness() *witness {
	return &witness{
		seed: maphash.MakeSeed(), params: make(map[kintsugi.Step]uint64), seen: make(map[kintsugi.PushID]bool),
		begun: make(map[kintsugi.Slot]int), ended: make(map[kintsugi.Slot]int),
	}
}

// watch returns a gradient function that first calls between, which may wait, and then computes.
func (w *witness) watch(between func(context.Context, kintsugi.PushID) error) worker.Gradient {
	return func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
		w.begin(params, id)
		if err := between(ctx, id); err != nil {
			return 0, 0, err
		}
		loss, n, err := noisy(ctx, params, grads, id)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ended[id.Slot]++
		return loss, n, err
	}
}

func (w *witness) begin(params []float32, id kintsugi.PushID) {
	h := maphash.Bytes(w.seed, kernels.Bytes(params))
	w.mu.Lock()
	defer w.mu.Unlock()
	if before, ok := w.params[id.Version]; ok && before != h {
		w.wrong = append(w.wrong, fmt.Sprintf("%v is computed on other parameters than another worker had", id))
	}
	if w.seen[id] {
		w.wrong = append(w.wrong, fmt.Sprintf("%v is computed twice", id))
	}
	w.params[id.Version], w.seen[id] = h, true
	w.begun[id.Slot]++
	w.sequence = max(w.sequence, id.Sequence)
}

func (w *witness) check(t *testing.T) {
	t.Helper()
	for i, s := range w.wrong {
		if i < 5 {
			t.Error(s)
		}
	}
}

func atOnceBetween(context.Context, kintsugi.PushID) error { return nil }

// Every preset comes near the optimum. Every gradient is computed on one version, which is the same
// for all workers, and none is computed twice.
func TestEveryPresetConverges(t *testing.T) {
	for _, c := range []struct {
		preset string
		rate   float64
		steps  kintsugi.Step
	}{
		{"bsp", 0.1, 60},
		{"bsp:sum,pull", 0.025, 60},
		{"backup:1", 0.1, 60},
		{"backup:1,wait", 0.1, 60},
		{"backup:1,pull", 0.1, 60},
		{"backup:1,staleness=2,discount", 0.1, 80},
		{"async", 0.2, 200},
		{"async:wait,credit=2", 0.2, 200},
		{"async:discount", 0.2, 400},
		{"ssp:0", 0.2, 200},
		{"ssp:2", 0.2, 200},
		{"dbw", 0.1, 60},
		{"dbw:wait", 0.1, 60},
		{"dbw:joint", 0.1, 80},
		{"dbw:paper,pull", 0.1, 60},
		{"bdbw", 0.1, 60},
		{"adasync:2", 0.1, 60},
		{"rennala:6", 0.1, 60},
		{"rennala:6,limit=2,credit=3,wait", 0.1, 60},
	} {
		if brief() && !slices.Contains([]string{"bsp:sum,pull", "async:wait,credit=2", "ssp:2", "dbw:joint", "rennala:6,limit=2,credit=3,wait"}, c.preset) {
			continue // what passes between goroutines here passes there in the other presets too
		}
		t.Run(c.preset, func(t *testing.T) {
			cfg := base(t)
			cfg.Servers, cfg.Steps, cfg.SaveEvery, cfg.Consistency = 2, c.steps, 0, preset(t, c.preset)
			cfg.Schedule = conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: c.rate}
			w := newWitness()
			cfg.Gradient = w.watch(atOnceBetween)
			sum := 0.0
			params := run(t, cfg, nil)
			for _, p := range params {
				sum += float64(p)
			}
			if mean := sum / float64(len(params)); math.Abs(mean-1) > 0.05 {
				t.Errorf("mean parameter is %v after %d steps, want about 1", mean, cfg.Steps)
			}
			w.check(t)
			if several := cfg.Consistency.Pace().Credit > 1; several != (w.sequence > 0) {
				t.Errorf("the greatest sequence number is %d with a credit of %d", w.sequence, cfg.Consistency.Pace().Credit)
			}
		})
	}
}

// What a worker does about newer parameters makes no difference if there are none while it
// computes.
func TestTheWaysOfABusyWorkerGiveTheSameSynchronousModel(t *testing.T) {
	race.Skip(t)
	want := run(t, base(t), nil)
	for _, text := range []string{"bsp:wait", "bsp:pull", "backup:0,wait"} {
		cfg := base(t)
		cfg.Servers, cfg.Consistency = 2, preset(t, text)
		if got := run(t, cfg, nil); !slices.EqualFunc(got, want, sameBits) {
			t.Errorf("%s ends with another model than bsp", text)
		}
	}
}

// gate holds the gradients of one worker back until it is opened.
type gate struct {
	slot kintsugi.Slot
	open chan struct{}
}

func (g gate) between(ctx context.Context, id kintsugi.PushID) error {
	if id.Slot != g.slot {
		return nil
	}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A worker that does not finish a gradient stops synchronous steps at once, and stale synchronous
// steps when the others have used up their lead. Backup and asynchronous steps go on without it.
func TestWhoWaitsForAStraggler(t *testing.T) {
	race.Skip(t)
	for _, c := range []struct {
		preset string
		ahead  int           // gradients that each of the others may begin while the straggler computes its first; 0: any number
		until  kintsugi.Step // a step that is certainly reached without it
	}{
		{"bsp", 1, 0},
		{"ssp:0", 1, 3},
		{"ssp:4", 5, 15},
		{"backup:1", 0, 40},
		{"dbw", 0, 40},
		{"dbw:wait", 0, 40},
		{"async", 0, 40},
		{"rennala:4", 0, 40},
	} {
		t.Run(c.preset, func(t *testing.T) {
			cfg := base(t)
			cfg.Servers, cfg.SaveEvery, cfg.Consistency = 1, 0, preset(t, c.preset)
			w, g := newWitness(), gate{slot: 3, open: make(chan struct{})}
			cfg.Gradient = w.watch(func(ctx context.Context, id kintsugi.PushID) error {
				w.mu.Lock()
				if most := w.ended[g.slot] + c.ahead; c.ahead > 0 && w.begun[id.Slot] > most && id.Slot != g.slot {
					w.wrong = append(w.wrong, fmt.Sprintf("worker/%d begins its gradient %d while the straggler has finished %d",
						id.Slot, w.begun[id.Slot], w.ended[g.slot]))
				}
				w.mu.Unlock()
				return g.between(ctx, id)
			})
			run(t, cfg, func(l *Cluster) {
				if c.until > 0 {
					until(t, l, c.until)
				}
				close(g.open)
			})
			w.check(t)
		})
	}
}

// A gradient that can no longer be counted ends. If the worker interrupts, it ends at once;
// otherwise it is finished and then thrown away. In both cases the worker goes on with the newest
// version, and the gradient is reported as late.
func TestALateWorkerGoesOnWithTheNewestVersion(t *testing.T) {
	for _, text := range []string{"backup:1,interrupt", "backup:1,wait", "backup:1,pull"} {
		t.Run(text, func(t *testing.T) {
			cfg := base(t)
			cfg.Consistency, cfg.SaveEvery, cfg.Steps = preset(t, text), 0, 60
			w, g := newWitness(), gate{slot: 3, open: make(chan struct{})}
			versions := make(chan kintsugi.Step, 1000)
			cfg.Gradient = w.watch(func(ctx context.Context, id kintsugi.PushID) error {
				if id.Slot == g.slot {
					versions <- id.Version
				}
				return g.between(ctx, id)
			})
			late := uint32(0)
			run(t, cfg, func(l *Cluster) {
				until(t, l, 20)
				if cfg.Consistency.Busy != kintsugi.Interrupt {
					close(g.open)
				}
				_ = l.Watch(l.ctx, func(e kintsugi.RunEvent) bool {
					if s, ok := e.(kintsugi.StepEvent); ok {
						late += s.Late
					}
					_, over := e.(kintsugi.Done)
					return !over
				})
			})
			w.check(t)
			close(versions)
			if first := <-versions; first >= 20 { // the others may have begun without it
				t.Errorf("its first gradient is on version %d", first)
			}
			if second := <-versions; cfg.Consistency.Busy != kintsugi.Interrupt && second < 10 { // the last few releases may not have arrived yet
				t.Errorf("after version 20 is released it goes on with version %d", second)
			}
			if late == 0 {
				t.Error("no gradient was late")
			}
		})
	}
}
