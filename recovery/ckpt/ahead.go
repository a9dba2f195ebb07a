package ckpt

import (
	"iter"
	"sync"

	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// windowBytes is how much of a segment is read at once where chunks lie one after the other. A
// guess: enough for the read-ahead of a disk, and little enough that a few windows stay in the
// cache until they are verified.
const windowBytes = 1 << 20

// atOnce returns how many reads a file system should have at once, and of how many bytes.
func atOnce(fsys vfs.FS) (reads, bytes int) {
	if d, ok := fsys.(vfs.Distant); ok {
		return d.AtOnce()
	}
	return 1, windowBytes
}

// inOrder calls get for 0 to n−1 and yields the results in that order. Up to workers calls run at
// once, in goroutines; each begins after those for smaller numbers have begun, and at most ahead
// results are made that were not yielded yet. Without workers, get is called as its result is wanted.
// When the loop ends, no call is running.
func inOrder[T any](n, workers, ahead int, get func(int) T) iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		if workers == 0 {
			for i := range n {
				if !yield(i, get(i)) {
					return
				}
			}
			return
		}
		type job struct {
			i      int
			result chan T
		}
		jobs, results, enough := make(chan job), make(chan chan T, ahead), make(chan struct{})
		var all sync.WaitGroup
		defer all.Wait()
		defer close(enough)
		all.Go(func() {
			defer close(jobs)
			defer close(results)
			for i := range n {
				j := job{i: i, result: make(chan T, 1)}
				select {
				case results <- j.result:
				case <-enough:
					return
				}
				select {
				case jobs <- j:
				case <-enough:
					return
				}
			}
		})
		for range workers {
			all.Go(func() {
				for j := range jobs {
					j.result <- get(j.i)
				}
			})
		}
		i := 0
		for r := range results {
			if !yield(i, <-r) {
				return
			}
			i++
		}
	}
}

// askEach is inOrder for short questions to a file system: several are asked at once if it is far away.
func askEach[T any](fsys vfs.FS, n int, ask func(int) T) iter.Seq2[int, T] {
	reads, _ := atOnce(fsys)
	if reads == 1 {
		return inOrder(n, 0, 0, ask)
	}
	return inOrder(n, min(n, reads), 2*reads, ask)
}

// shardRead is what came of reading a shard manifest.
type shardRead struct {
	m   *ShardManifest
	ref ShardRef
	err error
}

// readShards is ReadShard for several files, in that order.
func readShards(fsys vfs.FS, dir string, files []string) iter.Seq2[int, shardRead] {
	return askEach(fsys, len(files), func(i int) (r shardRead) {
		r.m, r.ref, r.err = ReadShard(fsys, dir, files[i])
		return r
	})
}
