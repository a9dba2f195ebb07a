package engine

import (
	"encoding/binary"
	"sync"

	"github.com/kintsugi-ml/kintsugi/cuda"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// stage is the place on the GPU where batches wait for their gradients. It has two buffers: while
// the gradient of the batch in one buffer is computed, the next batch is copied into the other.
type stage struct {
	filling sync.Mutex // held while a buffer is filled, and during close
	q       *cuda.Queue

	mu      sync.Mutex
	buffers [2]buffer
	next    int  // the buffer that is filled next
	used    int  // number of batches that were staged when they were needed
	off     bool // there is no memory for it, or the engine is closed
}

// buffer is memory for one batch, piece after piece.
type buffer struct {
	batch model.Batch // the batch in the buffer; none if N is 0
	busy  bool        // its gradient is being computed

	at     cuda.Ptr
	size   int
	pinned []byte
}

// Stage copies a batch to the GPU through pinned memory, while other work runs there, and returns
// when the batch has arrived. A gradient or evaluation of this very batch then begins without a
// copy. The batch is recognised by its Seed and by the memory of its X and Y, which must not have
// been written to since; any other batch is copied when it is needed. The last two staged batches
// are kept, and a batch is not replaced while its gradient is computed. Stage is a hint: if a batch
// cannot be staged, it is copied when it is needed. Any goroutine may call Stage at any time, also
// after Close.
func (e *Engine) Stage(b model.Batch) {
	s := &e.stage
	s.filling.Lock()
	defer s.filling.Unlock()
	if e.d.CheckBatch(b) != nil { // the gradient will return the error
		return
	}
	t := s.empty()
	if t == nil {
		return
	}
	piece := e.pieceOf()
	_, rest := e.sizes(1 + (b.N-1)%piece) // size of the last piece
	size := int(e.place((b.N-1)/piece*piece)) + rest
	s.grow(t, size)
	if len(t.pinned) >= size { // otherwise the queue has an error
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

// Staged returns the number of gradients and evaluations whose batch was already on the GPU when
// they began.
func (e *Engine) Staged() int {
	e.stage.mu.Lock()
	defer e.stage.mu.Unlock()
	return e.stage.used
}

// empty empties the buffer that is to be filled next and returns it; nil: none is free.
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

// grow makes a buffer at least size bytes large.
func (s *stage) grow(t *buffer, size int) {
	if t.size < size {
		s.q.Free(t.at)
		t.at, t.size = s.q.Array(size), size
	}
	if len(t.pinned) < size {
		t.pinned = s.q.Pinned(size)
	}
}

// take returns the buffer that holds batch b, and protects it until leave; nil: no buffer holds it.
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

// sizes returns the size in bytes of the values of n examples, which is also the offset of their
// labels, and the size of both together.
func (e *Engine) sizes(n int) (values, both int) {
	values = ceil(4*n*e.d.Input.Features(), 16) * 16
	return values, values + ceil(4*n*e.d.Input.Labels(), 16)*16
}

// place returns the offset in a buffer of the piece whose first example has this number.
func (e *Engine) place(first int) cuda.Ptr {
	_, size := e.sizes(e.pieceOf())
	return cuda.Ptr(first / e.pieceOf() * size)
}

// lay writes n examples of a batch, from number lo on, and their labels to to.
func (e *Engine) lay(to []byte, b model.Batch, lo, n int) {
	features, labels := e.d.Input.Features(), e.d.Input.Labels()
	copy(to, kernels.Bytes(b.X[lo*features:(lo+n)*features]))
	at, _ := e.sizes(n)
	for i, y := range b.Y[lo*labels : (lo+n)*labels] {
		binary.LittleEndian.PutUint32(to[at+4*i:], uint32(y))
	}
}
