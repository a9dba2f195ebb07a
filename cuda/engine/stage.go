package engine

import (
	"encoding/binary"
	"sync"

	"github.com/kintsugi-ml/kintsugi/cuda"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// stage is where batches wait on the GPU for the gradient that is computed of them. It has two
// buffers: while a gradient is computed of the batch in one, the batch that follows is copied to
// the other.
type stage struct {
	filling sync.Mutex // held by whoever fills a buffer, and for good by close
	q       *cuda.Queue

	mu      sync.Mutex
	buffers [2]buffer
	next    int  // the buffer that is filled next
	used    int  // how many batches were there when they were asked for
	off     bool // memory for it cannot be had, or the engine is closed
}

// buffer is memory for one batch, its pieces one after the other.
type buffer struct {
	batch model.Batch // that is in it; none if N is 0
	busy  bool        // a gradient is computed of it

	at     cuda.Ptr
	size   int
	pinned []byte
}

// Stage copies a batch to the GPU through pinned memory, beside whatever is computed there, and
// returns when it is there. A gradient of it then begins without it: of this very batch, that is
// one with the same Seed, whose X and Y lie in the same memory and have not been written to since.
// Any other gradient takes what it is given. The two batches that were staged last are kept; one
// that a gradient is computed of is not replaced. Stage is a hint: what cannot be staged is copied
// when it is asked for. Any goroutine may call it at any time, also after Close.
func (e *Engine) Stage(b model.Batch) {
	s := &e.stage
	s.filling.Lock()
	defer s.filling.Unlock()
	if e.d.CheckBatch(b) != nil { // the gradient says why
		return
	}
	t := s.empty()
	if t == nil {
		return
	}
	piece := e.pieceOf()
	_, rest := e.sizes(1 + (b.N-1)%piece) // of the last piece
	size := int(e.place((b.N-1)/piece*piece)) + rest
	s.grow(t, size)
	if len(t.pinned) >= size { // else the queue has an error
		for lo := 0; lo < b.N; lo += piece {
			e.lay(t.pinned[e.place(lo):], b, lo, min(piece, b.N-lo))
		}
		s.q.In(t.at, t.pinned[:size])
	}
	err := s.q.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.off = true
		return
	}
	t.batch = b
}

// Staged returns of how many gradients and evaluations the batch was on the GPU when they began.
func (e *Engine) Staged() int {
	e.stage.mu.Lock()
	defer e.stage.mu.Unlock()
	return e.stage.used
}

// empty returns the buffer that is filled next, in which nothing is from then on; nil: there is none.
func (s *stage) empty() *buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.buffers[s.next]
	if s.off || t.busy {
		return nil
	}
	s.next ^= 1
	t.batch = model.Batch{}
	return t
}

// grow makes room for size bytes in a buffer.
func (s *stage) grow(t *buffer, size int) {
	if t.size < size {
		s.q.Free(t.at)
		t.at, t.size = s.q.Array(size), size
	}
	if len(t.pinned) < size {
		t.pinned = s.q.Pinned(size)
	}
}

// take returns the buffer that a batch is in, which stays as it is until leave; nil: it is in none.
func (s *stage) take(b model.Batch) *buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.buffers {
		t := &s.buffers[i]
		if t.batch.N == b.N && t.batch.Seed == b.Seed && &t.batch.X[0] == &b.X[0] && &t.batch.Y[0] == &b.Y[0] {
			t.busy = true
			s.used++
			return t
		}
	}
	return nil
}

func (s *stage) leave(t *buffer) {
	if t != nil {
		s.mu.Lock()
		t.busy = false
		s.mu.Unlock()
	}
}

func (s *stage) close() error {
	s.filling.Lock()
	defer s.filling.Unlock()
	s.mu.Lock()
	s.off = true
	s.mu.Unlock()
	if s.q == nil {
		return nil
	}
	return s.q.Close()
}

// sizes returns how many bytes the values of n examples take where they are computed, which is
// where their labels begin, and how many both take.
func (e *Engine) sizes(n int) (values, both int) {
	values = ceil(4*n*e.d.Input.Features(), 16) * 16
	return values, values + ceil(4*n*e.d.Input.Labels(), 16)*16
}

// place returns where in a buffer the piece begins whose first example is this one.
func (e *Engine) place(first int) cuda.Ptr {
	_, size := e.sizes(e.pieceOf())
	return cuda.Ptr(first / e.pieceOf() * size)
}

// lay writes n examples of a batch, from number lo on, and their labels.
func (e *Engine) lay(to []byte, b model.Batch, lo, n int) {
	features, labels := e.d.Input.Features(), e.d.Input.Labels()
	copy(to, kernels.Bytes(b.X[lo*features:(lo+n)*features]))
	at, _ := e.sizes(n)
	for i, y := range b.Y[lo*labels : (lo+n)*labels] {
		binary.LittleEndian.PutUint32(to[at+4*i:], uint32(y))
	}
}
