package server

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

func newTestVersions(t *testing.T) *versions {
	t.Helper()
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{100}}})
	if err != nil {
		t.Fatal(err)
	}
	return newVersions(l, kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(l.Chunks))}, 1)
}

// write makes the next version and publishes it, as a step does.
func write(v *versions, step kintsugi.Step) *version {
	x := v.take(step)
	for i := range x.params {
		x.params[i] = float32(step)
	}
	v.applied(x)
	v.publish(nil)
	return x
}

func first(v *versions) {
	x := v.take(0)
	v.publish(x)
}

// Two buffers are enough while nobody reads beyond a step.
func TestTwoBuffersTakeTurns(t *testing.T) {
	v := newTestVersions(t)
	first(v)
	seen := make(map[*version]bool)
	for step := range kintsugi.Step(10) {
		seen[write(v, step+1)] = true
	}
	if len(seen) != 2 {
		t.Errorf("ten steps used %d buffers, want 2", len(seen))
	}
}

// A version that a reader has pinned keeps its values, however many steps are made, and they are
// made.
func TestAPinnedVersionIsNeverWritten(t *testing.T) {
	v := newTestVersions(t)
	first(v)
	write(v, 1)
	x, _ := v.pin(1)
	for step := kintsugi.Step(2); step < 20; step++ {
		write(v, step)
		if x.step != 1 || x.params[0] != 1 || x.params[99] != 1 {
			t.Fatalf("at step %d the pinned version 1 reads as version %d with values %v … %v", step, x.step, x.params[0], x.params[99])
		}
	}
	v.unpin(x)
	if n := len(v.free); n != 2 {
		t.Errorf("%d buffers are free when the reader is done, want 2", n)
	}
}

// A reader that waits for a version is woken when it is published, not when it is applied.
func TestAnAppliedVersionIsNotReadable(t *testing.T) {
	v := newTestVersions(t)
	first(v)
	x, changed := v.pin(1)
	if x != nil {
		t.Fatal("version 1 can be read before it exists")
	}
	v.applied(v.take(1))
	select {
	case <-changed:
		t.Fatal("a reader is woken by a version that is not released")
	default:
	}
	if x, _ := v.pin(1); x != nil {
		t.Fatal("version 1 can be read before it is released")
	}
	v.publish(nil)
	<-changed
	if x, _ := v.pin(1); x == nil || x.step != 1 {
		t.Fatal("version 1 is released and cannot be read")
	}
}

// A version that is offered is for readers that name it, until it is withdrawn or another one has
// taken its place.
func TestAnOfferedVersionIsForThoseWhoAskForIt(t *testing.T) {
	v := newTestVersions(t)
	first(v)
	ask := func(atLeast kintsugi.Step, unreleased bool) (*version, <-chan struct{}) {
		return v.pinFor(transport.ReadRequest{AtLeast: atLeast, Unreleased: unreleased})
	}
	_, changed := ask(1, true)
	x := v.take(1)
	v.applied(x)
	if got, _ := ask(1, true); got != nil {
		t.Error("version 1 is sent before it is offered")
	}
	v.offer()
	<-changed
	if got, _ := ask(1, false); got != nil {
		t.Error("version 1 is sent to somebody who wants a released one")
	}
	if got, _ := v.pin(1); got != nil {
		t.Error("version 1 is saved before it is released")
	}
	if got, _ := ask(0, true); got != v.current {
		t.Error("version 1 is sent to somebody whom version 0 is enough for")
	}
	if got, _ := ask(1, true); got != x {
		t.Error("version 1 is not sent to somebody who asks for it")
	}
	v.withdraw()
	if got, _ := ask(1, true); got != nil {
		t.Error("version 1 is sent after it was withdrawn")
	}
	v.offer()
	y := v.take(1)
	if v.applied(y); x.live || x.pins != 1 || slices.Contains(v.free, x) {
		t.Error("the first try at version 1 is given up while somebody reads it")
	}
	if got, _ := ask(1, true); got != nil {
		t.Error("the first try at version 1 is sent, or the second before it is offered")
	}
	v.publish(nil)
	if got, _ := ask(1, true); got != y {
		t.Error("the second try at version 1 is released and not sent")
	}
}

// Readers who may want what has changed are sent a version early only if that is known.
func TestAVersionWithoutMarksIsNotOffered(t *testing.T) {
	for _, marked := range []bool{false, true} {
		v := newTestVersions(t)
		v.marks = true
		first(v)
		x := v.take(1)
		if marked {
			v.mark(x, v.current)
		}
		v.applied(x)
		v.offer()
		got, _ := v.pinFor(transport.ReadRequest{AtLeast: 1, Form: transport.ReadChanges, Unreleased: true})
		if (got == x) != marked {
			t.Errorf("with marks %v, a reader gets %v", marked, got)
		}
	}
}

// A step that is applied again, because another decision replaced the first, takes the first one's
// place.
func TestASecondTryReplacesTheFirst(t *testing.T) {
	v := newTestVersions(t)
	first(v)
	a, b := v.take(1), v.take(1)
	v.applied(a)
	v.applied(b)
	v.publish(nil)
	if x, _ := v.pin(1); x != b {
		t.Error("the first try at step 1 was published, want the second")
	}
}

// Whatever a replica does with its versions, each buffer is free, readable, or read by somebody, and
// what is read is not written.
func TestNoBufferIsLost(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 5))
		v := newTestVersions(t)
		v.keep = seed%2 == 0
		first(v)
		step := kintsugi.Step(0) // of the current version
		var read []*version      // with a pin for each entry
		values := make(map[*version]float32)
		next := func(at kintsugi.Step) *version {
			x := v.take(at)
			for i := range x.params {
				x.params[i] = float32(rng.IntN(1 << 20))
			}
			return x
		}
		for range 300 {
			switch rng.IntN(8) {
			case 0, 1:
				v.applied(next(step + 1))
				if rng.IntN(2) == 0 {
					v.offer()
					x, _ := v.pinFor(transport.ReadRequest{AtLeast: step + 1, Unreleased: true})
					read, values[x] = append(read, x), x.params[0]
				}
				if rng.IntN(4) == 0 { // decided anew
					v.applied(next(step + 1))
				}
				step++
				v.publish(nil)
			case 2:
				v.applied(next(step + 1)) // and not released: the line may end, or a snapshot may come
				v.wait()
				if rng.IntN(2) == 0 {
					v.released()
				}
				if want := step + kintsugi.Step(rng.IntN(3)); v.adopt(want) > want {
					t.Fatalf("seed %d: a version after step %d is adopted for it", seed, want)
				} else {
					step = want
				}
			case 3:
				step += kintsugi.Step(rng.IntN(3))
				v.install(next(step))
			case 4:
				step++
				v.copied(next(step))
				step++
				v.copied(next(step))
				v.copied(next(step)) // the same once more
				if v.publish(nil); v.current.step != step {
					t.Fatalf("seed %d: the newest copy is of step %d, want %d", seed, v.current.step, step)
				}
			case 5:
				v.discard(next(step + 1))
			case 6:
				x, _ := v.pin(0)
				read, values[x] = append(read, x), x.params[0]
				if p := v.pinPrevious(); p != nil {
					read, values[p] = append(read, p), p.params[0]
				}
			default:
				if n := len(read); n > 0 {
					i := rng.IntN(n)
					v.unpin(read[i])
					read[i], read = read[n-1], read[:n-1]
				}
			}
			there := make(map[*version]bool)
			for _, x := range slices.Concat(v.free, v.waiting, read, []*version{v.previous, v.current, v.next}) {
				if x != nil {
					there[x] = true
				}
			}
			if len(there) != v.made {
				t.Fatalf("seed %d: %d of %d buffers are there", seed, len(there), v.made)
			}
			for i, x := range v.free {
				if x.live || x.pins > 0 || slices.Contains(v.free[:i], x) {
					t.Fatalf("seed %d: a buffer that is free is readable, read by %d, or free twice", seed, x.pins)
				}
			}
			for _, x := range read {
				if x.params[0] != values[x] || slices.Contains(v.free, x) {
					t.Fatalf("seed %d: a version that is read was given up", seed)
				}
			}
		}
	}
}

// Frames are encoded once for each version, and cover it.
func TestFramesAreEncodedOnce(t *testing.T) {
	v := newTestVersions(t)
	first(v)
	x := write(v, 1)
	a, b := v.frames(x, transport.ReadRequest{}, false), v.frames(x, transport.ReadRequest{}, false)
	if len(a) == 0 || &a[0] != &b[0] {
		t.Fatal("frames of one version were encoded twice")
	}
	bytes := 0
	for _, f := range a {
		if err := f.encode(kernels.Host); err != nil {
			t.Fatal(err)
		}
		bytes += len(f.bytes)
	}
	if bytes != 4*len(x.params) {
		t.Errorf("frames hold %d bytes of %d", bytes, 4*len(x.params))
	}
	if y := write(v, 2); &v.frames(y, transport.ReadRequest{}, false)[0] == &a[0] {
		t.Error("version 2 has the frames of version 1")
	}
}

// If asked for, the version before the current one is kept for one step, at the cost of one buffer.
func TestTheVersionBeforeIsKept(t *testing.T) {
	v := newTestVersions(t)
	v.keep = true
	first(v)
	if x := v.pinPrevious(); x != nil {
		t.Fatalf("before the first step there is a version %d", x.step)
	}
	seen := make(map[*version]bool)
	for step := kintsugi.Step(1); step < 10; step++ {
		seen[write(v, step)] = true
		x := v.pinPrevious()
		if x == nil || x.step != step-1 || x.params[0] != float32(step-1) {
			t.Fatalf("after step %d the version before is %+v", step, x)
		}
		v.unpin(x)
	}
	if len(seen) != 3 {
		t.Errorf("nine steps used %d buffers, want 3", len(seen))
	}
}

// The products that a commit asks for are those of the two versions before the step.
func TestAStepHasTheProductsThatAreAskedFor(t *testing.T) {
	v := newTestVersions(t)
	n := 100
	version := func(x float32) *version {
		y := v.take(0)
		for i := range y.params {
			y.params[i] = x * float32(i)
		}
		return y
	}
	before, src, dst := version(1), version(0.75), version(0)
	values := make([]float32, n)
	var norm, dot, moved float64
	for i := range values {
		values[i] = 0.5
		norm += 0.25
		dot += 0.5 * -0.25 * float64(i)
		moved += 0.125 * 0.125
	}
	c := kintsugi.Commit{
		Counted: make([]kintsugi.Weighted, 1), Scale: 1, Optimizer: kintsugi.Optimizer{Rule: kintsugi.RuleSGD, LearningRate: 0.25},
		Want: kintsugi.WantDotDisplacement | kintsugi.WantSquaredDisplacement,
	}
	k := newKernelStep(c)
	k.Scalars = Scalars(c.Optimizer, kintsugi.Tensor{})
	k.take(kernels.Operand{Weight: 1, Values: values})
	got, err := k.run(kernels.Best(), before, src, dst, nil, 0, 0, n)
	if want := (kintsugi.Products{SquaredNorm: norm, DotDisplacement: dot, SquaredDisplacement: moved}); err != nil || got != want {
		t.Errorf("products %+v (%v), want %+v", got, err, want)
	}
	got, err = k.run(kernels.Best(), nil, src, dst, nil, 0, 0, n)
	if err != nil || got.DotDisplacement != 0 {
		t.Errorf("without the version before: %+v (%v)", got, err)
	}
}

// If a step asks for it, the kernel measures how far the parameters are from their saved values,
// and the product of that with the gradient. What was saved since is not far.
func TestAStepMeasuresHowFarItIsFromWhatIsSaved(t *testing.T) {
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "a", Shape: []int{3000}}, {Name: "b", Shape: []int{5}}})
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{cfg: &Config{Layout: l, Device: kernels.Best(), Threads: 2, Planner: func(kintsugi.View) (conductor.Planner, error) { return nil, nil }},
		state: state{versions: &versions{}}, chunks: kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(l.Chunks))}, values: l.Values, core: shard.New(0, len(l.Chunks), 1, 1, 0)}
	src, dst := &version{params: make([]float32, l.Values)}, &version{params: make([]float32, l.Values)}
	for i := range src.params {
		src.params[i] = float32(i % 8)
	}
	if err := r.holdSaved(&version{params: make([]float32, l.Values)}, nil, make([]kintsugi.Step, len(l.Chunks))); err != nil {
		t.Fatal(err)
	}
	r.durable(src, []kintsugi.ChunkID{0}, nil)
	h := &held{chunks: make([]landedChunk, len(l.Chunks)), values: make([]float32, l.Values)}
	for i := range h.values {
		h.values[i] = 2
	}
	c := kintsugi.Commit{Step: 1, Counted: []kintsugi.Weighted{{Weight: 1}}, Scale: 1, Optimizer: kintsugi.Optimizer{Rule: kintsugi.RuleSGD, LearningRate: 0.25}}
	if products, err := r.step(c, nil, src, dst, []*held{h}, nil); err != nil || products[0].SquaredSaved != 0 || products[1].DotSaved != 0 {
		t.Errorf("nobody has asked, and it measures %+v (%v)", products, err)
	}
	c.Want = kintsugi.WantSaved
	products, err := r.step(c, nil, src, dst, []*held{h}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, chunk := range l.Chunks {
		var squared, dot float64
		for j := chunk.Lo; j < chunk.Hi; j++ {
			saved := float32(0)
			if i == 0 {
				saved = src.params[j]
			}
			squared += float64(dst.params[j]-saved) * float64(dst.params[j]-saved)
			dot += 2 * float64(src.params[j]-saved)
		}
		want := kintsugi.Products{SquaredNorm: 4 * float64(chunk.Len()), SquaredSaved: squared, DotSaved: dot, Touched: uint32(2 * chunk.Len())}
		if products[i] != want {
			t.Errorf("chunk %d: %+v, want %+v", i, products[i], want)
		}
	}
}

// A chunk that nobody assigns keeps its bits, and its distance from its saved values. Of several
// pushes that name it, the last one counts.
func TestAssignKeepsWhatNobodyNames(t *testing.T) {
	const n = 40
	src, dst := &version{params: make([]float32, n)}, &version{params: make([]float32, n)}
	for i := range src.params {
		src.params[i] = float32(math.Copysign(float64(i%3), -1)) // including −0
	}
	saved := &savedValues{values: make([]float32, n)}
	c := kintsugi.Commit{Scale: 0.5, Counted: make([]kintsugi.Weighted, 2), Optimizer: kintsugi.Optimizer{Rule: kintsugi.RuleAssign}}
	empty := kernels.Operand{Weight: 3, Encoding: kernels.Sparse32, Data: []byte{0, 0}}
	k := newKernelStep(c)
	k.take(empty)
	k.take(empty)
	got, err := k.run(kernels.Best(), nil, src, dst, saved, 0, 0, n)
	if want := (kintsugi.Products{SquaredSaved: kernels.SquaredNorm(src.params)}); err != nil || got != want {
		t.Errorf("products %+v (%v), want %+v", got, err, want)
	}
	for i, v := range dst.params {
		if math.Float32bits(v) != math.Float32bits(src.params[i]) {
			t.Fatalf("value %d was %v and is %v", i, src.params[i], v)
		}
	}
	k = newKernelStep(c)
	k.take(kernels.Operand{Weight: 1, Values: make([]float32, n)})
	k.take(kernels.Operand{Weight: 3, Encoding: kernels.Sparse32, Data: []byte{1, 1, 0, 0, 0, 0x40, 7}})
	k.take(empty)
	if _, err := k.run(kernels.Best(), nil, src, dst, nil, 0, 0, n); err != nil {
		t.Fatal(err)
	}
	for i, v := range dst.params {
		if want := float32(2); i != 7 && v != 0 || i == 7 && v != want {
			t.Errorf("value %d is %v", i, v)
		}
	}
}

// A reader that has an earlier version and takes the changes since then has the version, and little
// is sent if little changed, of a chunk too.
func TestChangesMakeTheVersion(t *testing.T) {
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "rows", Shape: []int{900, 16}}, {Name: "odd", Shape: []int{41, 7}}, {Name: "w", Shape: []int{3, 700}}, {Name: "b", Shape: []int{5}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, chunks := range []kintsugi.ChunkRange{{Hi: kintsugi.ChunkID(len(l.Chunks))}, {Lo: 3, Hi: kintsugi.ChunkID(len(l.Chunks)) - 1}} {
		v := newVersions(l, chunks, 1)
		v.marks = true
		first(v)
		r := rand.New(rand.NewPCG(1, 2))
		had := map[kintsugi.Step][]float32{0: slices.Clone(v.current.params)}
		all, sent := 0, 0
		for step := kintsugi.Step(1); step <= 60; step++ {
			x := v.take(step)
			copy(x.params, v.current.params)
			n := len(x.params)
			switch step % 4 {
			case 0:
				x.params[r.IntN(n)] = 0
			case 1, 2: // rows
				for range r.IntN(6) {
					lo := r.IntN(n)
					for i := lo; i < min(lo+20, n); i++ {
						x.params[i] = r.Float32()
					}
				}
			case 3: // a chunk or two
				if step%8 == 3 {
					lo := r.IntN(n)
					for i := lo; i < min(lo+2000, n); i++ {
						x.params[i] = r.Float32()
					}
				}
			}
			v.applied(x)
			v.publish(nil)
			for have, params := range had {
				got := slices.Clone(params)
				n := receive(t, v, got, v.frames(x, transport.ReadRequest{Form: transport.ReadChanges, Have: have}, false))
				if !sameBits(got, x.params) {
					t.Fatalf("the changes from version %d do not make version %d", have, step)
				}
				if have == step-1 && step%4 != 3 {
					sent += n
					all += 4 * len(got)
				}
			}
			had[step] = slices.Clone(x.params)
		}
		if 30*sent > all || sent == 0 {
			t.Errorf("%d bytes of %d were sent, of which up to six times 20 values changed in a step", sent, all)
		}
	}
}

// receive takes frames into params, as a worker does, and returns their size in bytes.
func receive(t *testing.T, v *versions, params []float32, frames []*frame) (size int) {
	t.Helper()
	base, _ := v.layout.Span(v.chunks)
	last := v.chunks.Lo
	for _, f := range frames {
		if err := f.encode(kernels.Host); err != nil {
			t.Fatal(err)
		}
		if f.chunks.Lo < last {
			t.Fatalf("a frame of chunks [%d, %d) comes after chunk %d", f.chunks.Lo, f.chunks.Hi, last)
		}
		if f.crc != transport.Checksum(f.bytes) {
			t.Fatal("a frame has another checksum than it says")
		}
		last = f.chunks.Hi
		size += len(f.bytes)
		lo, hi := v.layout.Span(f.chunks)
		if f.codec == 0 {
			copy(kernels.Bytes(params[lo-base:hi-base]), f.bytes)
			continue
		}
		rest := f.bytes
		for _, c := range v.layout.Chunks[f.chunks.Lo:f.chunks.Hi] {
			n, err := kernels.Check(kernels.Sparse32, c.Len(), rest)
			if err != nil {
				t.Fatal(err)
			}
			kernels.SetNamed(params[c.Lo-base:c.Hi-base], kernels.Sparse32, rest[:n])
			rest = rest[n:]
		}
		if len(rest) > 0 {
			t.Fatalf("%d bytes are left of a frame", len(rest))
		}
	}
	return size
}

func sameBits(x, y []float32) bool { return bytes.Equal(kernels.Bytes(x), kernels.Bytes(y)) }

// A reader that always names other versions is answered, and fills no memory.
func TestWhatIsKeptOfChangesIsBounded(t *testing.T) {
	v := newTestVersions(t)
	v.marks = true
	first(v)
	x := write(v, 1)
	for have := range kintsugi.Step(10_000) {
		list := v.frames(x, transport.ReadRequest{Form: transport.ReadChanges, Have: have}, false)
		if some := len(list) > 0; some != (have == 0) {
			t.Fatalf("%d frames have changed since version %d", len(list), have)
		}
	}
	if n := len(x.pulled.changes); n > 1000 {
		t.Errorf("the changes since %d versions are kept", n)
	}
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "rows", Shape: []int{4000, 16}}})
	if err != nil {
		t.Fatal(err)
	}
	v = newVersions(l, kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(l.Chunks))}, 1)
	v.marks = true
	first(v)
	for step := kintsugi.Step(1); step <= 199; step++ {
		x = v.take(step)
		copy(x.params, v.current.params)
		x.params[320*step] = float32(step)
		v.applied(x)
		v.publish(nil)
	}
	for have := range kintsugi.Step(199) {
		v.frames(x, transport.ReadRequest{Form: transport.ReadChanges, Have: have}, false)
	}
	kept := 0
	for _, list := range x.pulled.changes {
		for _, f := range list {
			if f.named != nil {
				kept += cap(f.bytes)
			}
		}
	}
	if whole := 4 * len(x.params); kept > whole+whole/8 || kept < whole/2 {
		t.Errorf("changes of %d bytes are kept of a version of %d", kept, whole)
	}
}
