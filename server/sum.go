package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// sum is the scaled sum of a step's gradients on a shard: what the replicas that are not heads
// apply. The newest sum is kept as long as a replica behind may lack it. It is cut into the frames
// that it travels in, so that one part can be on its way while the next one is made.
type sum struct {
	step    kintsugi.Step
	decided kintsugi.Fence
	parts   [][]float32   // by frame of the shard
	crcs    []uint32      // of the parts that are made
	few     [][]byte      // by part: its chunks as payloads, one behind the other; empty: it is in parts
	named   [][]byte      // by chunk: its payload, of the scaled sum of few values; empty: it is in parts
	landed  bool          // named lies in few
	array   kernels.Array // on an accelerator, with the parts as its host side; nil: the sum is on the host alone
	pins    atomic.Int32

	left []atomic.Int32  // by part, how many of its chunks are not made yet
	made []chan struct{} // by part, closed when it is made; nil: all are

	memory *shm.Segment // in which the parts lie; nil: in this process alone
	places []uint32     // of the parts in memory, if another process is to read them there
}

// begin prepares the sum to be made chunk by chunk.
func (s *sum) begin(c *cut) {
	s.left, s.made = make([]atomic.Int32, len(c.frames)), make([]chan struct{}, len(c.frames))
	for i, f := range c.frames {
		s.left[i].Store(int32(f.Hi - f.Lo))
		s.made[i] = make(chan struct{})
	}
}

// chunk returns chunk i of the shard, its values [lo, hi).
func (s *sum) chunk(c *cut, i, lo, hi int) []float32 {
	f := c.of[i]
	return s.parts[f][lo-c.lo[f] : hi-c.lo[f]]
}

// chunkMade notes that chunk i is made. The call for the last chunk of a part computes the checksum
// of the part, while it is in the cache.
func (s *sum) chunkMade(c *cut, i int) error {
	f := c.of[i]
	if s.left[f].Add(-1) > 0 {
		return nil
	}
	first, last := c.chunksOf(f)
	if slices.ContainsFunc(s.named[first:last], func(b []byte) bool { return len(b) == 0 }) {
		if err := s.whole(c, f); err != nil { // one of the chunks has all values, and so must the others
			return err
		}
	} else {
		s.few[f] = s.few[f][:0]
		for _, b := range s.named[first:last] {
			s.few[f] = append(s.few[f], b...)
		}
		s.crcs[f] = transport.Checksum(s.few[f])
	}
	close(s.made[f])
	return nil
}

// whole makes a part have all values of its chunks.
func (s *sum) whole(c *cut, f int) error {
	first, last := c.chunksOf(f)
	for i := first; i < last; i++ {
		if len(s.named[i]) == 0 {
			continue
		}
		if err := kernels.Host.Decode(s.parts[f][c.at[i]-c.lo[f]:][:c.values[i]], kernels.Sparse32, s.named[i]); err != nil {
			return err
		}
		s.named[i] = s.named[i][:0]
	}
	s.few[f], s.crcs[f] = s.few[f][:0], transport.Checksum(kernels.Bytes(s.parts[f]))
	return nil
}

// land takes a part of few values, of which b are the payloads. b belongs to the sum from now on. On an
// accelerator, which steps from all values, the part gets them.
func (s *sum) land(c *cut, f int, b []byte) error {
	s.few[f], s.landed = b, true
	first, last := c.chunksOf(f)
	for i := first; i < last; i++ {
		n, err := kernels.Check(kernels.Sparse32, c.values[i], b)
		if err != nil {
			return fmt.Errorf("%w: part of a sum: %w", kintsugi.ErrCorrupt, err)
		}
		s.named[i], b = b[:n], b[n:]
	}
	if len(b) > 0 {
		return fmt.Errorf("%w: part of a sum: %d bytes are left", kintsugi.ErrCorrupt, len(b))
	}
	if s.array == nil {
		return nil
	}
	return s.whole(c, f)
}

// reset makes a sum that was used before be written again.
func (s *sum) reset(c *cut) {
	s.made = nil
	if s.few == nil {
		s.few, s.named = make([][]byte, len(c.frames)), make([][]byte, len(c.of))
	}
	for i := range s.few {
		s.few[i] = s.few[i][:0]
	}
	if s.landed { // otherwise what is made next would be written over while it is put together
		clear(s.named)
		s.landed = false
	}
	for i := range s.named {
		s.named[i] = s.named[i][:0]
	}
}

// await waits until a part is made, or until ctx ends.
func (s *sum) await(ctx context.Context, part int) error {
	if s.made == nil {
		return nil
	}
	select {
	case <-s.made[part]:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cut describes how the sums of a shard are cut into frames.
type cut struct {
	frames []kintsugi.ChunkRange
	lo     []int // by frame, the index of its first value in the shard
	size   []int // by frame, the number of its values
	of     []int // by chunk, its frame
	at     []int // by chunk, the index of its first value in the shard
	values []int // by chunk, the number of its values
	total  int   // number of values of the shard
}

// chunksOf returns the chunks [first, last) of a frame.
func (c *cut) chunksOf(f int) (first, last int) {
	base := c.frames[0].Lo
	return int(c.frames[f].Lo - base), int(c.frames[f].Hi - base)
}

func newCut(l *kintsugi.Layout, chunks kintsugi.ChunkRange) cut {
	c := cut{frames: transport.Frames(l, chunks)}
	first, end := l.Span(chunks)
	c.total = end - first
	for i, f := range c.frames {
		lo, hi := l.Span(f)
		c.lo, c.size = append(c.lo, lo-first), append(c.size, hi-lo)
		for _, chunk := range l.Chunks[f.Lo:f.Hi] {
			c.of, c.at, c.values = append(c.of, i), append(c.at, chunk.Lo-first), append(c.values, chunk.Len())
		}
	}
	return c
}

// sums is the pool of sums of one shard, for all views in which this server holds it. A sum whose
// pins are never given back, because a connection broke, is left to the garbage collector.
type sums struct {
	cut
	arrays kernels.Arrays // on an accelerator; nil: on the host

	mu   sync.Mutex
	free []*sum
}

// take returns a sum to write, pinned once.
func (p *sums) take() *sum {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.free) - 1; last >= 0 {
		s := p.free[last]
		p.free = p.free[:last]
		s.reset(&p.cut)
		s.pins.Store(1)
		return s
	}
	s := &sum{crcs: make([]uint32, len(p.frames))}
	s.reset(&p.cut)
	if p.arrays != nil {
		s.array = p.arrays.NewArray()
	}
	for i, n := range p.size {
		if s.array != nil {
			s.parts = append(s.parts, s.array.Host()[p.lo[i]:p.lo[i]+n])
		} else {
			s.parts = append(s.parts, make([]float32, n))
		}
	}
	s.pins.Store(1)
	return s
}

// lent returns a sum whose parts will lie in the memory of another process.
func (p *sums) lent(memory *shm.Segment) *sum {
	s := &sum{crcs: make([]uint32, len(p.frames)), parts: make([][]float32, len(p.frames)), memory: memory}
	s.reset(&p.cut)
	s.pins.Store(1)
	return s
}

// keptSums is how many sums the pool keeps for later. More than these are in use only while a replica
// catches up, and their memory is given back.
const keptSums = 4

// unpin gives back one pin of s. s may be nil.
func (p *sums) unpin(s *sum) {
	if s == nil || s.pins.Add(-1) > 0 || s.memory != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < keptSums {
		p.free = append(p.free, s)
	}
}

// shelf is memory for sums that a replica shares with the replica before it. The replica before
// writes a sum there and sends the places of its parts. The replica after reads the sum in place.
// Its answer that a step is applied means that it does not need the sums before that step any more.
// The loop of the replica before owns the shelf.
type shelf struct {
	slots [shelfSlots]slot
	order uint64
}

// shelfSlots is the number of sums that a shelf has room for: one that both sides keep, one that is
// being made or applied, and one more in case that step is decided anew.
const shelfSlots = 3

type slot struct {
	sum   *sum
	order uint64 // the order in which it was sent; 0: the replica after does not need it any more
}

// shelfBytes returns the size of a shelf in bytes; 0 with an accelerator, which has host memory of
// its own.
func (p *sums) shelfBytes() int {
	if p.arrays != nil {
		return 0
	}
	var places transport.Places
	for range shelfSlots {
		for _, n := range p.size {
			places.Take(4 * n)
		}
	}
	return places.Bytes()
}

// newShelf returns the shelf in memory. It returns nil if there is no memory, it is too small, or
// sums come from an accelerator.
func (p *sums) newShelf(memory *shm.Segment) *shelf {
	if memory == nil || p.arrays != nil {
		return nil
	}
	var places transport.Places
	f := &shelf{}
	for i := range f.slots {
		s := &sum{crcs: make([]uint32, len(p.frames)), memory: memory}
		s.reset(&p.cut)
		for _, n := range p.size {
			place := places.Take(4 * n)
			b := transport.Put(memory, place, 4*n)
			if b == nil {
				return nil
			}
			s.parts, s.places = append(s.parts, kernels.Floats(b)), append(s.places, place)
		}
		f.slots[i].sum = s
	}
	return f
}

// take returns a sum to write, pinned once, or nil if both sides still need all of them.
func (f *shelf) take(c *cut) *sum {
	for _, x := range f.slots {
		if x.order == 0 && x.sum.pins.CompareAndSwap(0, 1) {
			x.sum.reset(c)
			return x.sum
		}
	}
	return nil
}

// send notes that a sum is sent, and reports whether it lies on the shelf.
func (f *shelf) send(s *sum) bool {
	for i := range f.slots {
		if x := &f.slots[i]; x.sum == s {
			f.order++
			x.order = f.order
			return true
		}
	}
	return false
}

// applied notes that the replica after has applied a sum. It does not need those that were sent
// before.
func (f *shelf) applied(step kintsugi.Step, decided kintsugi.Fence) {
	for _, x := range f.slots {
		if x.order == 0 || x.sum.step != step || x.sum.decided != decided {
			continue
		}
		for i := range f.slots {
			if f.slots[i].order < x.order {
				f.slots[i].order = 0
			}
		}
		return
	}
}
