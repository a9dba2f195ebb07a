package server

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// oneShard returns a shard of all values of a model, with its running checkpoint.
func oneShard(t *testing.T, c Copy) *replica {
	t.Helper()
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "a", Shape: []int{3000}}, {Name: "b", Shape: []int{5}}})
	if err != nil {
		t.Fatal(err)
	}
	chunks := kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(l.Chunks))}
	cfg := &Config{Layout: l, Device: kernels.Best(), Threads: 2, Copy: c, Planner: func(kintsugi.View) (conductor.Planner, error) { return nil, nil },
		Schedule: conductor.Schedule{Rule: kintsugi.RuleSGD}}
	return &replica{joined: func() {}, cfg: cfg, chunks: chunks, values: l.Values, core: shard.New(0, len(l.Chunks), 1, 1, 0), state: state{versions: newVersions(l, chunks, 0)}, log: slog.Default()}
}

// ramp returns values that all differ.
func ramp(n int, by float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = by * float32(i%11-5)
	}
	return x
}

// distances makes a step that changes nothing, and returns how far each chunk is from its saved
// values.
func distances(t *testing.T, r *replica, x []float32, step kintsugi.Step) (d []float64) {
	t.Helper()
	src, dst := &version{params: x}, &version{params: make([]float32, len(x)), step: step}
	c := kintsugi.Commit{Step: step, Scale: 1, Want: kintsugi.WantSaved, Optimizer: kintsugi.Optimizer{Rule: kintsugi.RuleSGD}}
	products, err := r.step(c, nil, src, dst, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range products {
		d = append(d, p.SquaredSaved)
	}
	return d
}

// Saved values that coast are measured where they are by then, no further than they may go. A chunk
// that was saved whole stays where it is until it shows a velocity again.
func TestWhatCoastsIsMeasuredWhereItIs(t *testing.T) {
	r := oneShard(t, Copy{Coasts: 10})
	at := make([]kintsugi.Step, r.chunks.Hi)
	at[1] = 4
	x, v := ramp(r.values, 1), ramp(r.values, 0.25)
	if err := r.holdSaved(&version{params: x}, v, at); err != nil {
		t.Fatal(err)
	}
	there := func(steps ...float32) []float32 { // of chunks 0 and 1, and of all others
		y := make([]float32, len(x))
		for i, c := range r.cfg.Layout.Chunks {
			kernels.Coast(y[c.Lo:c.Hi], x[c.Lo:c.Hi], v[c.Lo:c.Hi], steps[min(i, len(steps)-1)])
		}
		return y
	}
	for step, y := range map[kintsugi.Step][]float32{0: x, 3: there(3, 0, 3), 6: there(6, 2, 6), 12: there(10, 8, 10), 90: there(10)} {
		for i, d := range distances(t, r, y, step) {
			if d != 0 {
				t.Errorf("step %d: chunk %d is at distance² %g from where it has coasted to", step, i, d)
			}
		}
	}
	kept := map[kintsugi.ChunkID]Kept{1: {Params: ramp(r.cfg.Layout.Chunks[1].Len(), 3), Velocity: make([]float32, r.cfg.Layout.Chunks[1].Len())}}
	r.durable(&version{params: x, step: 20}, []kintsugi.ChunkID{0, 1}, kept)
	y := there(0, 0, 10)
	copy(y[r.cfg.Layout.Chunks[1].Lo:], kept[1].Params)
	for i, d := range distances(t, r, y, 25) {
		if d != 0 {
			t.Errorf("chunk %d is at distance² %g from what was kept of it", i, d)
		}
	}
	// What a save may begin with is what is saved, with the velocity, and no later save changes it.
	last := r.cfg.Layout.Chunks[2]
	was := []Kept{r.kept(0), r.kept(1), r.kept(2)}
	r.durable(&version{params: ramp(r.values, 7), step: 30}, []kintsugi.ChunkID{1, 2}, nil)
	for i, want := range []Kept{{x[:r.cfg.Layout.Chunks[0].Hi], make([]float32, r.cfg.Layout.Chunks[0].Hi)}, kept[1], {x[last.Lo:last.Hi], v[last.Lo:last.Hi]}} {
		if !slices.Equal(was[i].Params, want.Params) || !slices.Equal(was[i].Velocity, want.Velocity) {
			t.Errorf("of chunk %d something else is saved than what was kept, or it has another velocity", i)
		}
	}
}

// A restored shard goes on to the step at which its line begins, each chunk from its own step.
func TestALostShardCoastsToWhereItsLineBegins(t *testing.T) {
	r := oneShard(t, Copy{Coasts: 10})
	x := r.versions.take(0)
	copy(x.params, ramp(r.values, 1))
	was, v := slices.Clone(x.params), ramp(r.values, 0.25)
	r.versions.waiting = []*version{x}
	r.velocity, r.lostAt = v, make([]kintsugi.Step, r.chunks.Hi)
	for i := range r.lostAt {
		r.lostAt[i] = 28 + kintsugi.Step(i)
	}
	r.adopt(40)
	for i, c := range r.cfg.Layout.Chunks {
		for j := c.Lo; j < c.Hi; j++ {
			steps := float32(max(0, min(10, 12-i)))
			if want := was[j] + float32(v[j]*steps); x.params[j] != want {
				t.Fatalf("value %d of chunk %d is %g, want %g", j, i, x.params[j], want)
			}
		}
	}
	if r.velocity != nil || x.step != 40 {
		t.Errorf("it would coast again, at step %d", x.step)
	}
}

// What a full checkpoint has is what is saved, unless it could not be written.
func TestACheckpointThatFailsSavesNothing(t *testing.T) {
	for _, failure := range []error{nil, errors.New("no room")} {
		r := oneShard(t, Copy{})
		r.loop, r.saves = newLoop(t.Context(), func() {}), new(sync.WaitGroup)
		x := r.versions.take(5)
		copy(x.params, ramp(r.values, 1))
		r.versions.publish(x)
		before := ramp(r.values, 2)
		if err := r.holdSaved(&version{params: before}, nil, make([]kintsugi.Step, r.chunks.Hi)); err != nil {
			t.Fatal(err)
		}
		r.cfg.Enter = func(State) {}
		r.cfg.Save = func(_ context.Context, _ kintsugi.View, s Shard) (string, uint64, error) {
			if s.Step != 5 || !slices.Equal(s.Params, x.params) {
				t.Errorf("step %d is saved, or with other parameters, want step 5", s.Step)
			}
			return "manifest", 1, failure
		}
		if err := r.do(func() { r.save(5) }); err != nil {
			t.Fatal(err)
		}
		r.saves.Wait()
		want := x.params
		if failure != nil {
			want = before
		}
		for i, c := range r.cfg.Layout.Chunks {
			if !slices.Equal(r.kept(kintsugi.ChunkID(i)).Params, want[c.Lo:c.Hi]) {
				t.Fatalf("the save ends with %v: chunk %d is not what is saved", failure, i)
			}
		}
		if x.pins != 0 {
			t.Errorf("the save ends with %v: the version is still read by %d", failure, x.pins)
		}
	}
}

// Saved values in bf16 take half the memory, and distances are right up to rounding.
func TestHalfOfTheMemoryMeasuresNearly(t *testing.T) {
	r := oneShard(t, Copy{Half: true})
	x := ramp(r.values, 1)
	if err := r.holdSaved(&version{params: x}, nil, make([]kintsugi.Step, r.chunks.Hi)); err != nil {
		t.Fatal(err)
	}
	r.durable(&version{params: x}, r.all(), nil)
	if len(r.saved.half) != 2*r.values || r.saved.values != nil || r.kept(0).Params != nil {
		t.Errorf("%d bytes and %d values for %d parameters", len(r.saved.half), len(r.saved.values), r.values)
	}
	y := slices.Clone(x)
	for i := range y {
		y[i] += 0.5
	}
	for i, d := range distances(t, r, y, 1) {
		if want := 0.25 * float64(r.cfg.Layout.Chunks[i].Len()); math.Abs(d-want) > 0.05*want {
			t.Errorf("chunk %d is at distance² %g, want about %g", i, d, want)
		}
	}
}

// The numbers of values that gradients name are added up until somebody asks: the entries of a
// sparse gradient, all values of another.
func TestNamedValuesAreCountedUntilTheyAreTold(t *testing.T) {
	s := &savedValues{touched: make([]uint32, 2)}
	sparse := kernels.Operand{Encoding: kernels.Sparse32, Data: []byte{1, 1, 0, 0, 0, 0x40, 7}}
	none := kernels.Operand{Encoding: kernels.Sparse32, Data: []byte{0, 0}}
	dense := kernels.Operand{Values: make([]float32, 40)}
	for _, c := range []struct {
		operands []kernels.Operand
		tell     bool
		want     uint32
	}{{[]kernels.Operand{sparse, none}, false, 0}, {[]kernels.Operand{sparse, dense}, false, 0}, {nil, true, 42}, {[]kernels.Operand{none, sparse}, true, 1}} {
		if got := s.count(1, named(c.operands, 40), c.tell); got != c.want {
			t.Errorf("%d operands, told %t: %d, want %d", len(c.operands), c.tell, got, c.want)
		}
	}
}
