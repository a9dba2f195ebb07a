package server

import (
	"sync"

	"github.com/kintsugi-ml/kintsugi"
)

// arrival tells, of a push that has not landed whole, which of its chunks have been verified and
// will not change. Goroutines other than that of its stream may use it.
type arrival struct {
	mu     sync.Mutex
	chunks []kintsugi.ChunkRange // in the order in which they have landed, counted from the first chunk of the shard
	to     *making               // is told of them; nil: none
}

// landed notes that chunks of the shard have landed. Nobody writes them any more.
func (a *arrival) landed(chunks kintsugi.ChunkRange) {
	a.mu.Lock()
	a.chunks = append(a.chunks, chunks)
	to := a.to
	a.mu.Unlock()
	if to != nil {
		to.landed(int(chunks.Lo), int(chunks.Hi))
	}
}

// tell tells m of every chunk once: first those that have landed, then the others as they land.
func (a *arrival) tell(m *making) {
	a.mu.Lock()
	landed := a.chunks
	a.to = m
	a.mu.Unlock()
	for _, chunks := range landed { // more may be appended behind these meanwhile
		m.landed(int(chunks.Lo), int(chunks.Hi))
	}
}

// clear makes a ready for the next push. A making that was told of the one before hears no more.
func (a *arrival) clear() { a.chunks, a.to = a.chunks[:0], nil }
