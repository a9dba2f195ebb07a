package machine

import (
	"sync"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/stream"
)

// tile is the number of values of one array that a bound processes before it turns to the next
// array. The kernels do about the same, as they keep a tile of the sum in the first-level cache.
const tile = 512

// spread calls f for each of n chunks, repeated times times, on the given number of threads. A
// thread has the same chunks each time, which may then stay in its cache.
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

// moved describes the memory traffic of an operation: for each chunk, the pieces of its arrays that
// it reads and writes.
type moved struct {
	values        int // number in all chunks
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

// bound returns operations that only move the same bytes, in each way that might be the fastest.
// The fastest one of a round is the bound: see Fastest.
func (m *moved) bound(name string, threads int) []*bench.Timed {
	var all []*bench.Timed
	for way := range stream.Past | stream.Ahead + 1 {
		past := way&stream.Past != 0
		if past && (m.writes == nil || !kernels.Streams(int(m.bytes()))) { // such stores would evict what should stay in the cache
			continue
		}
		parts := max(1, m.values/len(m.reads)/tile)
		all = append(all, &bench.Timed{
			Row: bench.Row{
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

// ways are the names of the ways in package stream.
var ways = [...]string{"plain", "past the caches", "fetched ahead", "fetched ahead, past the caches"}

// bounds measures the bounds of this machine by themselves: copy, triad, and reading k arrays at
// once.
func (a *arena) bounds(threads int, ks []int) []*bench.Timed {
	var all []*bench.Timed
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

// arena is memory shared by the operations of one group, one group after the other.
type arena struct {
	memory  []float32
	used    int
	size    int // bytes in all arrays of one operation together
	threads int
}

// chunkValues is the largest number of values in a chunk.
const chunkValues = 1 << 16

func (a *arena) reset() { a.used = 0 }

// values returns the number of values of each of n float32 arrays, so that together they have the
// size of the arena. It is a whole number of chunks for each thread or, if that is less than one,
// one smaller chunk each.
func (a *arena) values(n int) int {
	each := a.size / (4 * n)
	if chunk := chunkValues * a.threads; each >= chunk {
		return each / chunk * chunk
	}
	return max(1, each/a.threads/tile) * tile * a.threads
}

// chunk returns the number of values in a chunk.
func (a *arena) chunk(values int) int { return min(chunkValues, values/a.threads) }

// take returns an array. No two arrays begin at the same offset in a page, since they would compete
// for the same cache lines.
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

// move adds an array of the given number of values to the pieces of each chunk, for the bound of an
// operation.
func (a *arena) move(pieces *[][][]byte, array []byte, values int) {
	chunks := values / a.chunk(values)
	if *pieces == nil {
		*pieces = make([][][]byte, chunks)
	}
	for c := range chunks {
		(*pieces)[c] = append((*pieces)[c], array[len(array)/chunks*c:][:len(array)/chunks])
	}
}

// newArena returns an arena for operations whose arrays have size bytes together, and some reserve.
// It writes every page, since reads of unwritten memory would all use the one page of zeros.
func newArena(size, threads int) *arena {
	a := &arena{memory: make([]float32, (3*size+1<<20)/4), size: size, threads: threads}
	for i := range a.memory {
		a.memory[i] = 1
	}
	return a
}
