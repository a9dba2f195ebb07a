package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// step makes a step of all chunks at once.
func (r *replica) step(c kintsugi.Commit, before, src, dst *version, counted []*held, total *sum) ([]kintsugi.Products, error) {
	m := &making{r: r, commit: c, counted: counted, before: before, src: src, dst: dst, total: total, saved: r.savedFor(c), ended: make(chan struct{})}
	m.begin()
	m.all()
	return m.wait()
}

// desk is a replica that is told what a conductor and three workers would tell it.
type desk struct {
	*testing.T
	r        *replica
	frames   []kintsugi.ChunkRange
	lives    [3]kintsugi.Incarnation // of the workers
	fence    kintsugi.Fence
	change   uint64
	next     kintsugi.Step
	answers  chan kintsugi.ReplicaMessage
	arriving atomic.Int32 // steps that were begun before their commit
	few      int          // gradients are payloads of few values, which are apart by half of this on average; 0: they are all values
}

// newDesk returns a desk. If foresees is false, every step is made when it is committed.
func newDesk(t *testing.T, d kernels.Device, replicas int, foresees bool) *desk {
	t.Helper()
	return newDeskOutside(t, d, replicas, foresees, nil)
}

// newDeskOutside is newDesk with memory outside the process, unless o is nil.
func newDeskOutside(t *testing.T, d kernels.Device, replicas int, foresees bool, o *Outside) *desk {
	t.Helper()
	return newDeskWith(t, Config{Device: d, Schedule: conductor.Schedule{Rule: kintsugi.RuleAdam, LearningRate: 0.01}, Outside: o}, replicas, foresees)
}

// newDeskWith is newDesk with other settings.
func newDeskWith(t *testing.T, cfg Config, replicas int, foresees bool) *desk {
	t.Helper()
	l, err := cfg.Layout, error(nil)
	if l == nil {
		l, err = kintsugi.NewLayout([]kintsugi.Tensor{{Name: "a", Shape: []int{30, 101}}, {Name: "b", Shape: []int{32, 66}}, {Name: "c", Shape: []int{7}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	x := &desk{T: t, answers: make(chan kintsugi.ReplicaMessage, 16), next: 1, lives: [3]kintsugi.Incarnation{1, 1, 1}}
	cfg.Layout, cfg.Threads, cfg.Slots = l, 2, len(x.lives)
	cfg.Load = func(context.Context, kintsugi.View, *Shard) error { return nil }
	cfg.Enter = func(s State) {
		if s == Arriving {
			x.arriving.Add(1)
		}
	}
	s := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	v := kintsugi.View{Number: 1, Line: 1, Fence: 1, Replicas: replicas, Chains: [][]kintsugi.ServerID{{0}}, Servers: []kintsugi.Member{{}}}
	if x.r, err = s.newReplica(ctx, v, 0, l.Split(1)[0], 0); err != nil {
		t.Fatal(err)
	}
	for lo := x.r.chunks.Lo; lo < x.r.chunks.Hi; lo += 25 {
		x.frames = append(x.frames, kintsugi.ChunkRange{Lo: lo, Hi: min(lo+25, x.r.chunks.Hi)})
	}
	if foresees {
		x.r.foresees()
	}
	answers := newOutbox[kintsugi.ReplicaMessage]()
	answers.try = func(m kintsugi.ReplicaMessage) bool { x.answers <- m; return true }
	x.r.replies = append(x.r.replies, answers)
	ended := make(chan struct{})
	go func() { defer close(ended); x.r.run() }()
	t.Cleanup(func() {
		cancel()
		<-ended
		x.wantBuffersBack()
	})
	x.take()
	x.members()
	return x
}

// wantBuffersBack reports a version that nobody uses and that is not free, so that a step would
// need a new buffer.
func (x *desk) wantBuffersBack() {
	v := x.r.versions
	v.mu.Lock()
	defer v.mu.Unlock()
	have := len(v.free)
	for _, y := range []*version{v.current, v.next} {
		if y != nil {
			have++
			if y.pins > 0 {
				x.Errorf("version %d is pinned %d times by nobody", y.step, y.pins)
			}
		}
	}
	if have != v.made {
		x.Errorf("%d of %d buffers are left", have, v.made)
	}
}

func (x *desk) do(f func()) {
	x.Helper()
	if err := x.r.do(f); err != nil {
		x.Error(err)
	}
}

// handle gives a message to the core, and returns when everything that the core asks for is done.
func (x *desk) handle(m kintsugi.ControlMessage) {
	x.Helper()
	x.do(func() { x.r.core.Handle(m) })
	x.do(func() {}) // what another goroutine runs is finished before what follows from it is carried out
}

func (x *desk) take() {
	x.fence++
	x.handle(kintsugi.Take{Line: 1, View: 1, Fence: x.fence})
	<-x.answers
}

func (x *desk) members() {
	x.change++
	x.handle(kintsugi.Members{Line: 1, Fence: x.fence, Change: x.change, Countable: x.countable(x.next - 1)})
	<-x.answers
}

func (x *desk) countable(oldest kintsugi.Step) (list []kintsugi.Countable) {
	for slot, inc := range x.lives {
		list = append(list, kintsugi.Countable{Slot: kintsugi.Slot(slot), Incarnation: inc, Oldest: oldest})
	}
	return list
}

func (x *desk) push(slot int) kintsugi.PushID {
	return kintsugi.PushID{Line: 1, Slot: kintsugi.Slot(slot), Incarnation: x.lives[slot], Version: x.next - 1}
}

// gradient returns value i of a push, which depends only on both.
func gradient(p kintsugi.PushID, i int) float32 {
	h := uint64(i)*0x9e3779b97f4a7c15 + uint64(p.Slot)*0xbf58476d1ce4e5b9 + uint64(p.Version)*0x94d049bb133111eb + uint64(p.Incarnation)<<40
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return float32(h>>40)/(1<<23) - 1
}

// arrives is a push while it arrives on a stream.
type arrives struct {
	x    *desk
	in   landing
	push kintsugi.PushID
}

// begin begins a push, whose first frame is the given one.
func (x *desk) begin(p kintsugi.PushID, frame kintsugi.ChunkRange) *arrives {
	a := &arrives{x: x, push: p, in: landing{answers: newOutbox[kintsugi.HeadMessage]()}}
	if err := a.in.begin(x.r, &transport.Frame{Header: transport.Header{Push: p, Chunks: frame}}); err != nil {
		x.Error(err)
	}
	if a.in.buffer == nil {
		x.Errorf("%v is not accepted", p)
	}
	return a
}

// land lands frames as landValues does.
func (a *arrives) land(frames ...kintsugi.ChunkRange) {
	x, h := a.x, a.in.buffer
	if h.values == nil {
		h.values = make([]float32, x.r.values)
	}
	for _, f := range frames {
		lo, hi := x.r.cfg.Layout.Span(f)
		for i := lo; i < hi; i++ {
			h.values[i] = gradient(a.push, i)
		}
		for i := range h.of(x.r, f) {
			h.of(x.r, f)[i] = landedChunk{have: true}
			if x.few > 0 {
				h.of(x.r, f)[i] = fewOf(x.r.cfg.Layout.Chunks[int(f.Lo)+i], a.push, x.few)
			}
		}
		h.done(x.r, f)
	}
}

// end ends the push: with the error bad, or complete if that is nil.
func (a *arrives) end(bad error) {
	if err := a.in.end(a.x.r, a.push, bad); err != nil {
		a.x.Error(err)
	}
}

// shuffled returns the frames in a drawn order.
func (x *desk) shuffled(rng *rand.Rand) []kintsugi.ChunkRange {
	frames := slices.Clone(x.frames)
	rng.Shuffle(len(frames), func(i, j int) { frames[i], frames[j] = frames[j], frames[i] })
	return frames
}

// arrive lands the pushes of some workers, all at the same time and each in its own order.
func (x *desk) arrive(rng *rand.Rand, slots ...int) {
	var wg sync.WaitGroup
	for _, slot := range slots {
		frames, p := x.shuffled(rng), x.push(slot)
		wg.Go(func() {
			a := x.begin(p, frames[0])
			a.land(frames...)
			a.end(nil)
		})
	}
	wg.Wait()
}

func (x *desk) commit() kintsugi.Commit {
	c := kintsugi.Commit{
		Line: 1, Fence: x.fence, Decided: x.fence, Step: x.next, Scale: 1.0 / 96, Optimizer: x.r.cfg.Schedule.At(x.next), Countable: x.countable(x.next),
	}
	for slot := range x.lives {
		c.Counted = append(c.Counted, kintsugi.Weighted{Push: x.push(slot), Weight: 32})
	}
	return c
}

// stable has a commit applied and returns the answer.
func (x *desk) stable(c kintsugi.Commit) kintsugi.Stable {
	x.Helper()
	x.handle(c)
	s, ok := (<-x.answers).(kintsugi.Stable)
	if !ok || s.Step != c.Step || s.Decided != c.Decided {
		x.Fatalf("the answer to the commit of step %d is %+v", c.Step, s)
	}
	return s
}

func (x *desk) release() {
	x.handle(kintsugi.Released{Line: 1, Fence: x.fence, Step: x.next})
	x.next++
}

// said is all that can be observed of a step.
type said struct {
	products []kintsugi.Products
	arrays   [][]float32
	sum      []float32
}

func (x *desk) seen(s kintsugi.Stable) (all said) {
	all.products = s.Products
	v, _ := x.r.versions.pin(0)
	defer x.r.versions.unpin(v)
	for i := range 1 + v.states {
		all.arrays = append(all.arrays, slices.Clone(v.array(i)))
	}
	x.do(func() {
		if s := x.r.sum; s != nil {
			all.sum = s.values(x.T, &x.r.sums.cut)
		}
	})
	return all
}

// values returns all values of a sum, and checks its parts of few values.
func (s *sum) values(t *testing.T, c *cut) (all []float32) {
	for f := range c.frames {
		b, crc := s.few[f], s.crcs[f]
		if len(b) == 0 {
			b = kernels.Bytes(s.parts[f])
		}
		if transport.Checksum(b) != crc {
			t.Errorf("the checksum of part %d of a sum is of something else", f)
		}
		landed := &sum{parts: make([][]float32, len(c.frames)), crcs: make([]uint32, len(c.frames))}
		landed.reset(c)
		landed.parts[f] = make([]float32, c.size[f])
		if len(s.few[f]) == 0 {
			copy(landed.parts[f], s.parts[f])
		} else if err := landed.land(c, f, slices.Clone(b)); err != nil {
			t.Error(err)
		}
		if err := landed.whole(c, f); err != nil {
			t.Error(err)
		}
		all = append(all, landed.parts[f]...)
	}
	return all
}

func (a said) same(b said) error {
	if !slices.Equal(a.products, b.products) {
		return errors.New("other by-products")
	}
	bits := func(p, q float32) bool { return math.Float32bits(p) == math.Float32bits(q) }
	for i := range a.arrays {
		if !slices.EqualFunc(a.arrays[i], b.arrays[i], bits) {
			return fmt.Errorf("array %d differs", i)
		}
	}
	if !slices.EqualFunc(a.sum, b.sum, bits) {
		return errors.New("the sums differ")
	}
	return nil
}

// story is what happens in a step before it is released. The last item is the commit.
type story struct {
	name string
	tell func(x *desk, rng *rand.Rand) kintsugi.Stable
}

var everyone = []int{0, 1, 2}

var stories = []story{
	{"all is well", func(x *desk, rng *rand.Rand) kintsugi.Stable {
		x.arrive(rng, everyone...)
		return x.stable(x.commit())
	}},
	{"a late chunk is not finite", func(x *desk, rng *rand.Rand) kintsugi.Stable {
		x.arrive(rng, 0, 2)
		frames := x.shuffled(rng)
		a := x.begin(x.push(1), frames[0])
		a.land(frames[1:]...)
		a.end(refusal{kintsugi.ErrNotFinite})
		x.arrive(rng, 1)
		return x.stable(x.commit())
	}},
	{"a worker dies after half of its chunks", func(x *desk, rng *rand.Rand) kintsugi.Stable {
		frames := x.shuffled(rng)
		a := x.begin(x.push(2), frames[0])
		a.land(frames[:len(frames)/2]...)
		x.arrive(rng, 0, 1)
		x.lives[2]++
		x.members()
		x.arrive(rng, 2)
		return x.stable(x.commit())
	}},
	{"a worker dies and is not counted", func(x *desk, rng *rand.Rand) kintsugi.Stable {
		frames := x.shuffled(rng)
		a := x.begin(x.push(1), frames[0])
		x.arrive(rng, 0, 2)
		a.land(frames[1:]...)
		c := x.commit()
		c.Counted, c.Scale = slices.Delete(c.Counted, 1, 2), 1.0/64
		return x.stable(c)
	}},
	{"a stream breaks and the push begins again", func(x *desk, rng *rand.Rand) kintsugi.Stable {
		frames := x.shuffled(rng)
		a := x.begin(x.push(0), frames[0])
		x.arrive(rng, 1, 2)
		a.land(frames[:1]...)
		x.arrive(rng, 0)
		a.land(frames[1:]...) // the earlier stream has not noticed yet
		a.end(nil)
		return x.stable(x.commit())
	}},
	{"the stream before is read late", func(x *desk, rng *rand.Rand) kintsugi.Stable {
		frames := x.shuffled(rng)
		a := x.begin(x.push(0), frames[0])
		x.arrive(rng, 1, 2)
		a.land(frames[:1]...)
		late := x.begin(x.push(0), frames[0]) // what it had brought when it broke, and no more
		late.land(frames[:2]...)
		a.land(frames[1:]...)
		a.end(nil)
		return x.stable(x.commit())
	}},
	{"the stream before is read late, and what it had brought is refused", func(x *desk, rng *rand.Rand) kintsugi.Stable {
		frames := x.shuffled(rng)
		a := x.begin(x.push(0), frames[0])
		late := x.begin(x.push(0), frames[0])
		a.land(frames...)
		a.end(nil)
		x.arrive(rng, 1, 2)
		late.end(refusal{kintsugi.ErrNotFinite})
		return x.stable(x.commit())
	}},
	{"weights that nobody could know", func(x *desk, rng *rand.Rand) kintsugi.Stable {
		x.arrive(rng, everyone...)
		c := x.commit()
		c.Counted[1].Weight, c.Scale = 7, 1.0/71
		return x.stable(c)
	}},
	{"it is decided again by another conductor", func(x *desk, rng *rand.Rand) kintsugi.Stable {
		x.arrive(rng, everyone...)
		x.stable(x.commit())
		x.take()
		c := x.commit()
		c.Counted[0].Weight, c.Scale = 8, 1.0/72
		return x.stable(c)
	}},
}

// A step has the same bits, by-products and sum whether it is made as gradients arrive, in any
// order, or when it is committed, on every device. If the foreseen commit does not come, nothing is
// left behind.
func TestAStepThatIsMadeAsItArrivesIsTheSame(t *testing.T) {
	for i, d := range kernels.Devices() {
		replicas := 1 + i%2
		t.Run(fmt.Sprintf("%s, %d replicas", d.Name(), replicas), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, uint64(i)))
			early, late := newDesk(t, d, replicas, true), newDesk(t, d, replicas, false)
			for n := range 3 * len(stories) {
				s := stories[0]
				if n%3 == 2 { // a step is foreseen after two that are alike
					s = stories[n/3]
				}
				begun := early.arriving.Load()
				a, b := s.tell(early, rng), s.tell(late, rng)
				early.release()
				late.release()
				if err := early.seen(a).same(late.seen(b)); err != nil {
					t.Fatalf("step %d, in which %s: %v", n+1, s.name, err)
				}
				if n%3 == 2 && early.arriving.Load() == begun {
					t.Errorf("step %d, in which %s, was not begun before its commit", n+1, s.name)
				}
			}
			if late.arriving.Load() > 0 {
				t.Error("a step was begun before its commit where nothing is foreseen")
			}
		})
	}
}

// Before the commit a step may be made completely, and nobody sees any of it. If the commit never
// comes, nothing is left of the step.
func TestWhatIsMadeBeforeTheCommitIsSeenByNobody(t *testing.T) {
	x, rng := newDesk(t, kernels.Best(), 2, true), rand.New(rand.NewPCG(1, 2))
	for range 2 {
		x.arrive(rng, everyone...)
		x.stable(x.commit())
		x.release()
	}
	before, err := x.seen(kintsugi.Stable{}), error(nil)
	x.arrive(rng, everyone...)
	var made *making
	x.do(func() { made = x.r.early })
	if made == nil {
		t.Fatal("the third of steps that are alike is not foreseen")
	}
	<-made.ended
	if made.left != 0 {
		t.Errorf("%d chunks are not made, of which every gradient has landed", made.left)
	}
	if err = x.seen(kintsugi.Stable{}).same(before); err != nil {
		t.Errorf("before the commit: %v", err)
	}
	select {
	case m := <-x.answers:
		t.Errorf("before the commit it says %+v", m)
	default:
	}
	if x.r.versions.next != nil {
		t.Error("before the commit there is another version")
	}
	took := x.stable(x.commit())
	if took.Ahead <= 0 {
		t.Errorf("it had been made for %v when it was committed", took.Ahead)
	}
	x.release()
	x.arrive(rng, 0, 1)
	x.begin(x.push(2), x.frames[0]).land(x.frames[0]) // and the view ends
}
