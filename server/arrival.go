package server

import (
	"sync"

	"github.com/kintsugi-ml/kintsugi"
)

// arrival is what is known, beyond the stream on which it arrives, of a push that has not landed
// whole: which of its chunks have been verified and stay as they are.
type arrival struct {
	mu     sync.Mutex
	chunks []kintsugi.ChunkRange // in the order in which they have landed, counted from the first chunk of the shard
	to     *making               // to be told of them; nil: none
}

// landed notes chunks of the shard. They are not written any more.
func (a *arrival) landed(chunks kintsugi.ChunkRange) {
	a.mu.Lock()
	a.chunks = append(a.chunks, chunks)
	to := a.to
	a.mu.Unlock()
	if to != nil {
		to.landed(int(chunks.Lo), int(chunks.Hi))
	}
}

// tell has m told of every chunk, once: of those that have landed, and then of the others as they land.
func (a *arrival) tell(m *making) {
	a.mu.Lock()
	landed := a.chunks
	a.to = m
	a.mu.Unlock()
	for _, chunks := range landed { // of which there will be more, behind these
		m.landed(int(chunks.Lo), int(chunks.Hi))
	}
}

// clear makes a that of the next push. Nobody is told of the one before.
func (a *arrival) clear() { a.chunks, a.to = a.chunks[:0], nil }
