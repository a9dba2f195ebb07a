package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/kernelstest"
)

// shelfFor returns a shelf for the sums of a model of several frames, in memory that two replicas
// share.
func shelfFor(t *testing.T) (*shelf, *sums) {
	t.Helper()
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{300, 777}}, {Name: "b", Shape: []int{333}}})
	if err != nil {
		t.Fatal(err)
	}
	c := &sums{cut: newCut(l, kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(l.Chunks))})}
	memory, _, closeName, err := shm.CreateSegment(c.shelfBytes(), shm.Writable)
	if err != nil {
		t.Skipf("no shared memory here: %v", err)
	}
	t.Cleanup(closeName)
	f := c.newShelf(memory)
	if f == nil {
		t.Fatalf("%d bytes are no room for a shelf", c.shelfBytes())
	}
	return f, c
}

// Every part of every sum on a shelf has its own memory, which contains the chunks of the part.
func TestSumsOnAShelfDoNotOverlap(t *testing.T) {
	f, c := shelfFor(t)
	if len(c.frames) < 2 {
		t.Fatalf("%d frames, want several", len(c.frames))
	}
	value := func(slot, part, i int) float32 { return float32(slot*1_000_000 + part*100_000 + i%100_000) }
	for slot, x := range f.slots {
		for part, values := range x.sum.parts {
			for i := range values {
				values[i] = value(slot, part, i)
			}
		}
	}
	for slot, x := range f.slots {
		for chunk, part := range c.of {
			lo := c.lo[part]
			if got := x.sum.chunk(&c.cut, chunk, lo+5, lo+9); len(got) != 4 || got[0] != value(slot, part, 5) || got[3] != value(slot, part, 8) {
				t.Fatalf("values 5 to 8 of part %d of sum %d, by its chunk %d, are %v", part, slot, chunk, got)
			}
		}
		for part, values := range x.sum.parts {
			if last := len(values) - 1; values[0] != value(slot, part, 0) || values[last] != value(slot, part, last) {
				t.Fatalf("part %d of sum %d was written over", part, slot)
			}
		}
	}
}

// While a replica catches up, many sums may wait for it. Their memory is given back.
func TestThePoolKeepsFewSums(t *testing.T) {
	_, c := shelfFor(t)
	p := &sums{cut: c.cut}
	var taken []*sum
	for range 3 * keptSums {
		taken = append(taken, p.take())
	}
	for _, s := range taken {
		p.unpin(s)
	}
	if len(p.free) != keptSums {
		t.Errorf("the pool keeps %d sums, want %d", len(p.free), keptSums)
	}
}

// A part of few values can be taken by a replica on an accelerator, which steps from all values. What
// is no such part is an error.
func TestAnAcceleratorGetsAllValuesOfASum(t *testing.T) {
	_, c := shelfFor(t)
	p := &sums{cut: c.cut, arrays: kernelstest.Apart(kernels.Host).NewArrays(c.values)}
	s := p.take()
	rng := rand.New(rand.NewPCG(2, 3))
	for f := range p.frames {
		want, payload := make([]float32, p.size[f]), []byte(nil)
		first, last := p.chunksOf(f)
		for i := first; i < last; i++ {
			x := want[p.at[i]-p.lo[f]:][:p.values[i]]
			at := int32(rng.IntN(len(x)))
			x[at] = rng.Float32()
			payload = kernels.AppendRuns(payload, x, []kernels.Run{{Lo: at, Hi: at + 1}})
		}
		for _, bad := range [][]byte{payload[:len(payload)-1], append(slices.Clone(payload), 0)} {
			if err := s.land(&p.cut, f, bad); !errors.Is(err, kintsugi.ErrCorrupt) {
				t.Errorf("part %d, of %d bytes instead of %d: %v", f, len(bad), len(payload), err)
			}
		}
		if err := s.land(&p.cut, f, payload); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(s.parts[f], want) || len(s.few[f]) > 0 || s.crcs[f] != transport.Checksum(kernels.Bytes(want)) {
			t.Errorf("part %d does not have all values", f)
		}
	}
}

// A sum that is used again, from the pool or from a shelf, is like a new one, whether it was made
// before or has landed, and of few values or of all.
func TestNothingIsLeftOfTheSumBefore(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	f, c := shelfFor(t)
	pool := &sums{cut: c.cut}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	// payload returns a chunk that names n of its values.
	payload := func(chunk, n int) (b []byte) {
		x := make([]float32, c.values[chunk])
		var runs []kernels.Run
		for i := range n {
			at := int32(i * len(x) / n)
			x[at] = rng.Float32()
			runs = append(runs, kernels.Run{Lo: at, Hi: at + 1})
		}
		return kernels.AppendRuns(nil, x, runs)
	}
	made := func(s *sum, few bool) {
		t.Helper()
		s.begin(&c.cut)
		want := make([][]byte, len(c.frames))
		for i, part := range c.of {
			if few {
				b := payload(i, 1+rng.IntN(30))
				s.named[i], want[part] = append(s.named[i], b...), append(want[part], b...)
			}
			if err := s.chunkMade(&c.cut, i); err != nil {
				t.Fatal(err)
			}
		}
		for part, b := range want {
			if !few {
				b = kernels.Bytes(s.parts[part])
			}
			if few && !slices.Equal(s.few[part], b) || !few && len(s.few[part]) > 0 || s.crcs[part] != transport.Checksum(b) {
				t.Errorf("part %d is not what was made of it (of few values: %v)", part, few)
			}
		}
	}
	landed := func(s *sum, few bool) {
		t.Helper()
		for part := range c.frames {
			var b []byte
			for i := range c.of {
				if few && c.of[i] == part {
					b = append(b, payload(i, 1+rng.IntN(30))...)
				}
			}
			if few {
				if err := s.land(&c.cut, part, b); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for name, take := range map[string]func() *sum{"the pool": pool.take, "a shelf": func() *sum { return f.take(&c.cut) }} {
		var before *sum
		again := 0
		for round := range 40 {
			s := take()
			if s == before {
				again++
			}
			if before = s; s.await(over, 0) != nil || slices.ContainsFunc(s.few, notEmpty) || slices.ContainsFunc(s.named, notEmpty) {
				t.Fatalf("%s, round %d: something is left of the sum before", name, round)
			}
			switch few := rng.IntN(2) == 0; rng.IntN(3) {
			case 0:
				made(s, few)
			case 1:
				landed(s, few)
			default:
				s.begin(&c.cut) // and is given up
			}
			pool.unpin(s)
		}
		if again < 5 {
			t.Errorf("%s: a sum was used again %d times, want some", name, again)
		}
		if lent := pool.lent(nil); len(lent.few) != len(c.frames) || len(lent.named) != len(c.of) {
			t.Errorf("a sum in the memory of another process has no room for few values")
		}
	}
}

func notEmpty(b []byte) bool { return len(b) > 0 }

// Whatever is decided anew, and however slow the next replica is, nobody writes a sum that it still
// reads or that is kept here, and in steady state there is always room.
func TestASumIsNotWrittenWhileItIsRead(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		f, c := shelfFor(t)
		unpin := (&sums{}).unpin
		var kept *sum                 // kept here
		var reads []*sum              // by the next replica: sums that it was sent and has not given up, ascending
		var applied int               // how many of reads it has applied
		again, steady := false, false // the step is decided anew
		step, fence := kintsugi.Step(0), kintsugi.Fence(1)
		for range 40 {
			if !again {
				step++
			}
			fence++
			s := f.take(&c.cut)
			if s == nil {
				if steady {
					t.Fatalf("seed %d: no room at step %d", seed, step)
				}
				s = &sum{}
				s.pins.Store(1)
			}
			if s == kept || slices.Contains(reads, s) {
				t.Fatalf("seed %d: the sum of step %d is written where one is still read", seed, step)
			}
			s.step, s.decided = step, fence
			if f.send(s) {
				reads = append(reads, s)
			}
			unpin(kept)
			kept = s
			if again = rng.IntN(5) == 0; again {
				steady = false
				continue // before the next replica has applied it
			}
			// The next replica applies all that it was sent, the newest last, and answers for some.
			// Then it gives up what came before.
			for applied = range reads {
				f.applied(reads[applied].step, reads[applied].decided)
			}
			if len(reads) > 1 {
				reads = reads[len(reads)-1:]
			}
			steady = len(reads) == 1 && reads[0] == kept
		}
	}
}
