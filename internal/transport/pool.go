package transport

import (
	"sync"

	"google.golang.org/grpc/mem"
)

// dataBytes is the most that one HTTP/2 frame of gRPC carries.
const dataBytes = 16 << 10

// pool is where connections take the memory for what they receive. That of gRPC clears a buffer
// each time it hands it out, and a connection then reads all of it over with what has arrived.
type pool struct{ buffers sync.Pool }

var received pool

// Get implements mem.BufferPool. What the buffer holds is arbitrary.
func (p *pool) Get(n int) *[]byte {
	if n > dataBytes {
		return mem.DefaultBufferPool().Get(n)
	}
	b, ok := p.buffers.Get().(*[]byte)
	if !ok {
		x := make([]byte, dataBytes)
		b = &x
	}
	*b = (*b)[:n]
	return b
}

// Put implements mem.BufferPool.
func (p *pool) Put(b *[]byte) {
	if cap(*b) != dataBytes {
		mem.DefaultBufferPool().Put(b)
		return
	}
	p.buffers.Put(b)
}
