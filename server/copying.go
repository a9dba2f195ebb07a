package server

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// copying is one array that is copied: from and to are of the same length and do not overlap.
type copying struct{ to, from []byte }

// pieceBytes is how much one thread copies at a time. With less to copy in all, one thread is faster
// than several that have to start.
const pieceBytes = 4 << 20

// copyAll copies whole arrays, with all processors. What a server copies when it takes over a shard
// goes to memory that is new, where the system has to clear each page first. That takes longer than
// the copy, and threads can do it side by side. No step is made meanwhile, so nobody else needs the
// processors: this is not for copies that are made beside steps.
func copyAll(arrays ...copying) {
	var pieces []copying
	for _, a := range arrays {
		for len(a.from) > pieceBytes {
			pieces = append(pieces, copying{a.to[:pieceBytes], a.from[:pieceBytes]})
			a.to, a.from = a.to[pieceBytes:], a.from[pieceBytes:]
		}
		pieces = append(pieces, a)
	}
	var next atomic.Int64
	work := func() {
		for {
			i := int(next.Add(1)) - 1
			if i >= len(pieces) {
				return
			}
			copy(pieces[i].to, pieces[i].from)
		}
	}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(pieces)) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}
