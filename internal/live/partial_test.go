package live

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/server"
)

// alone is a run of synchronous steps without servers: the arrays of the whole model, chunk by
// chunk.
type alone struct {
	cfg   Config
	now   [3][]float32 // parameters and optimizer state
	taken []uint64     // number of steps, by chunk
	past  [][3][]float32
	lived [][]uint64
}

func newAlone(cfg Config) *alone {
	a := &alone{cfg: cfg, taken: make([]uint64, len(cfg.Layout.Chunks))}
	for i := range a.now {
		a.now[i] = make([]float32, cfg.Layout.Values)
	}
	return a
}

// until makes steps up to the given one, and keeps every version.
func (a *alone) until(t *testing.T, step kintsugi.Step) {
	t.Helper()
	for v := kintsugi.Step(len(a.past)); ; v++ {
		a.past, a.lived = append(a.past, a.now), append(a.lived, slices.Clone(a.taken))
		if v == step {
			return
		}
		a.step(t, v)
	}
}

// step makes the version after v.
func (a *alone) step(t *testing.T, v kintsugi.Step) {
	t.Helper()
	grads := make([][]float32, a.cfg.Workers)
	for w := range grads {
		grads[w] = make([]float32, a.cfg.Layout.Values)
		id := kintsugi.PushID{Slot: kintsugi.Slot(w), Version: v}
		if _, _, err := a.cfg.Gradient(t.Context(), a.now[0], grads[w], id); err != nil {
			t.Fatal(err)
		}
	}
	var next [3][]float32
	for i := range next {
		next[i] = make([]float32, a.cfg.Layout.Values)
	}
	for i, c := range a.cfg.Layout.Chunks {
		o := a.cfg.Schedule.At(v + 1)
		a.taken[i]++
		own := a.cfg.Schedule.At(kintsugi.Step(a.taken[i]))
		o.Correction1, o.Correction2 = own.Correction1, own.Correction2
		s := kernels.Step{
			Rule: kernels.Rule(o.Rule), Scale: 1.0 / float32(32*a.cfg.Workers), Scalars: server.Scalars(o, kintsugi.Tensor{}),
			Params: a.now[0][c.Lo:c.Hi], Next: next[0][c.Lo:c.Hi],
		}
		for k := range s.State {
			s.State[k], s.NextState[k] = a.now[1+k][c.Lo:c.Hi], next[1+k][c.Lo:c.Hi]
		}
		for _, g := range grads {
			s.Operands = append(s.Operands, kernels.Operand{Weight: 32, Values: g[c.Lo:c.Hi]})
		}
		if _, err := kernels.Host.Step(&s); err != nil {
			t.Fatal(err)
		}
	}
	a.now = next
}

// lose sets the chunks of a shard back to the given versions.
func (a *alone) lose(chunks kintsugi.ChunkRange, saved []kintsugi.Step) {
	step := len(a.past) - 1
	for i := range a.now {
		a.now[i] = slices.Clone(a.now[i])
	}
	for i, s := range saved {
		c := a.cfg.Layout.Chunks[int(chunks.Lo)+i]
		for k := range a.now {
			copy(a.now[k][c.Lo:c.Hi], a.past[s][k][c.Lo:c.Hi])
		}
		a.taken[int(chunks.Lo)+i] = a.lived[s][int(chunks.Lo)+i]
	}
	a.past, a.lived = a.past[:step], a.lived[:step]
}

// A server dies, and the others keep what they have. Each of its chunks is restored as it was saved
// last, with its optimizer state and the number of its steps. From the first step to the last, the
// run has the bits of a loop over the whole model that does the same.
func TestAPartialRestoreIsTheLossOfTheLostChunksAlone(t *testing.T) {
	for _, victim := range []int{0, 2} {
		t.Run(fmt.Sprintf("server %d", victim), func(t *testing.T) {
			cfg := base(t)
			cfg.Servers, cfg.RunEvery, cfg.SaveEvery = 4, 3, 0
			chunks := cfg.Layout.Split(cfg.Servers)[victim]
			var lost kintsugi.PartialEvent
			var saved []kintsugi.Step
			got := run(t, cfg, func(l *Cluster) {
				until(t, l, 33)
				l.KillServer(victim)
				if err := l.StartServer(victim); err != nil {
					t.Fatal(err)
				}
				l.mu.Lock()
				for id := chunks.Lo; id < chunks.Hi; id++ {
					saved = append(saved, l.running[id].step)
				}
				l.mu.Unlock()
				l.NewPartialView("a server was killed")
				lost = partialEvent(t, l)
			})
			if lost.Step < 33 || lost.Shard != kintsugi.ShardID(victim) || int(lost.Chunks) != len(saved) || lost.Oldest != slices.Min(saved) {
				t.Fatalf("%+v; want shard %d with %d chunks of versions %v, at step 33 or later", lost, victim, len(saved), saved)
			}
			want := newAlone(cfg)
			want.until(t, lost.Step)
			want.lose(chunks, saved)
			want.until(t, cfg.Steps)
			for i, w := range want.now[0] {
				if !sameBits(got[i], w) {
					t.Fatalf("value %d is %v, want %v; adopted at step %d, chunks of versions %v", i, got[i], w, lost.Step, saved)
				}
			}
		})
	}
}

// The residuals of workers belong to the parameters. A partial restore keeps both, a full one keeps
// neither.
func TestResidualsOutliveAPartialRestore(t *testing.T) {
	race.Skip(t)
	for _, partial := range []bool{true, false} {
		codec, err := compress.Parse("topk:0.05")
		if err != nil {
			t.Fatal(err)
		}
		var log lines
		cfg := base(t)
		cfg.Servers, cfg.RunEvery, cfg.Codec = 2, 3, func(kintsugi.Slot) compress.Codec { return codec }
		cfg.Log = &log
		l, err := Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		until(t, l, 20)
		l.KillServer(1)
		if err := l.StartServer(1); err != nil {
			t.Fatal(err)
		}
		if partial {
			l.NewPartialView("a server was killed")
		} else {
			l.NewView("a server was killed")
		}
		if d, err := l.Wait(); err != nil || d.Step != cfg.Steps {
			t.Fatalf("the run ended at step %d: %v", d.Step, err)
		}
		if dropped := log.contain("residual dropped"); dropped == partial {
			t.Errorf("partial restore: %v; residuals dropped: %v", partial, dropped)
		}
	}
}

// lines collects the lines of a log.
type lines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

func (l *lines) contain(what string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.text, []byte(what))
}

// partialEvent waits for the report of a restored shard.
func partialEvent(t *testing.T, l *Cluster) (lost kintsugi.PartialEvent) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		_ = l.Watch(ctx, func(e kintsugi.RunEvent) bool {
			p, ok := e.(kintsugi.PartialEvent)
			if ok {
				lost = p
			}
			return !ok
		})
		if lost != (kintsugi.PartialEvent{}) {
			return lost
		}
	}
	t.Fatal("nobody tells of the shard that came back")
	return lost
}
