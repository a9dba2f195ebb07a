package bench

import (
	"sync"

	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/stream"
)

// tile is how many values of an array the bounds go through before they turn to the next array: about what the
// kernels do, which keep a tile of the sum in the first-level cache.
const tile = 512

// spread calls f for each of n chunks, times over, on so many threads. A thread has the same chunks each time, so
// that they may stay in its cache.
func spread(threads, n, times int, f func(chunk int)) {
	var all sync.WaitGroup
	for t := range threads {
		all.Go(func() {
			for range times {
				for c := n * t / threads; c < n*(t+1)/threads; c++ {
					f(c)
				}
			}
		})
	}
	all.Wait()
}

// moved is what an operation reads and writes: for each chunk the pieces of its arrays.
type moved struct {
	values        int // of all chunks
	reads, writes [][][]byte
}

func (m *moved) bytes() int64 {
	total := 0
	for _, chunks := range [][][][]byte{m.reads, m.writes} {
		for _, arrays := range chunks {
			for _, a := range arrays {
				total += len(a)
			}
		}
	}
	return int64(total)
}

// bound returns the operations that move the same bytes and do nothing else, in each way that may be the fastest. The
// fastest one of a round is the bound: see Fastest.
func (m *moved) bound(name string, threads int) []*Timed {
	var all []*Timed
	for way := range stream.Past | stream.Ahead + 1 {
		past := way&stream.Past != 0
		if past && (m.writes == nil || !kernels.Streams(int(m.bytes()))) { // such stores would take from the cache what belongs there
			continue
		}
		parts := max(1, m.values/len(m.reads)/tile)
		all = append(all, &Timed{
			Row: Row{
				Name: name, Device: "memory", Variant: ways[way], K: len(m.reads[0]), DType: "bytes",
				Threads: threads, Elements: m.values, Bytes: m.bytes(),
			},
			Run: func(times int) {
				spread(threads, len(m.reads), times, func(c int) {
					var writes [][]byte
					if m.writes != nil {
						writes = m.writes[c]
					}
					stream.Move(parts, m.reads[c], writes, way)
				})
			},
		})
	}
	return all
}

// ways names the ways of package stream.
var ways = [...]string{"plain", "past the caches", "fetched ahead", "fetched ahead, past the caches"}

// bounds are the rates of this machine by themselves: copy, triad, and reading k arrays at once.
func (a *arena) bounds(threads int, ks []int) []*Timed {
	var all []*Timed
	add := func(name string, reads, writes int) {
		a.reset()
		m := moved{values: a.values(reads + writes)}
		for range reads {
			a.move(&m.reads, kernels.Bytes(a.take(m.values)), m.values)
		}
		for range writes {
			a.move(&m.writes, kernels.Bytes(a.take(m.values)), m.values)
		}
		all = append(all, m.bound(name, threads)...)
	}
	add("copy", 1, 1)
	add("triad", 2, 1)
	for _, k := range ks {
		add("read", k, 0)
	}
	return all
}

// arena is memory that the operations of one group share, one group after the other.
type arena struct {
	memory  []float32
	used    int
	size    int // bytes that the arrays of one operation should have
	threads int
}

// chunkValues is how many values the largest chunks have.
const chunkValues = 1 << 16

func (a *arena) reset() { a.used = 0 }

// values returns how many values each of n arrays of float32 has, so that together they have the size of the arena: a
// whole number of chunks for each thread, or, where that is less than one, a chunk that fits.
func (a *arena) values(n int) int {
	each := a.size / (4 * n)
	if chunk := chunkValues * a.threads; each >= chunk {
		return each / chunk * chunk
	}
	return max(1, each/a.threads/tile) * tile * a.threads
}

// chunk returns the chunks' length.
func (a *arena) chunk(values int) int { return min(chunkValues, values/a.threads) }

// take returns an array. Two arrays never start at the same place of a page, which would have them compete for the same
// lines of the cache.
func (a *arena) take(n int) []float32 {
	const line = 16
	at := a.used
	a.used += (n+line-1)/line*line + 5*line
	if a.used > len(a.memory) {
		panic("bench: the arena is too small")
	}
	return a.memory[at:][:n:n]
}

// takeBytes returns an array of bytes.
func (a *arena) takeBytes(n int) []byte { return kernels.Bytes(a.take((n + 3) / 4))[:n] }

// move cuts an array of so many values into the pieces of the chunks, for the bound of an operation.
func (a *arena) move(pieces *[][][]byte, array []byte, values int) {
	chunks := values / a.chunk(values)
	if *pieces == nil {
		*pieces = make([][][]byte, chunks)
	}
	for c := range chunks {
		(*pieces)[c] = append((*pieces)[c], array[len(array)/chunks*c:][:len(array)/chunks])
	}
}

// newArena returns an arena for operations whose arrays have so many bytes together, and for some more. Every page
// of it is written, or reads of it would find the one page of zeros.
func newArena(size, threads int) *arena {
	a := &arena{memory: make([]float32, (3*size+1<<20)/4), size: size, threads: threads}
	for i := range a.memory {
		a.memory[i] = 1
	}
	return a
}
