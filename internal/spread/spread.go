// Package spread copies large arrays with all processors.
package spread

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Array is one array that is copied. To and From are of the same length and do not overlap.
type Array struct{ To, From []byte }

// pieceBytes is how much one thread copies at a time. With less to copy in all, one thread is faster
// than several that have to start.
const pieceBytes = 4 << 20

// Copy copies whole arrays, with all processors: one of them rarely reaches what memory can move,
// least of all into memory that is new, where the system has to clear each page first. It is for
// copies that somebody waits for with nothing else to do.
func Copy(arrays ...Array) {
	var pieces []Array
	for _, a := range arrays {
		for len(a.From) > pieceBytes {
			pieces = append(pieces, Array{a.To[:pieceBytes], a.From[:pieceBytes]})
			a.To, a.From = a.To[pieceBytes:], a.From[pieceBytes:]
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
			copy(pieces[i].To, pieces[i].From)
			// Nothing here is where Go can interrupt a goroutine, and it takes all processors: without
			// this, nobody else would run until the last piece, no message would be answered, and no
			// garbage collected.
			runtime.Gosched()
		}
	}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(pieces)) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}
