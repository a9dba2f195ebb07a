package transport

import (
	"sync"

	"google.golang.org/grpc/mem"
)

// dataBytes is the largest payload of one HTTP/2 frame of gRPC.
const dataBytes = 16 << 10

// pool provides the receive buffers of connections. gRPC's own pool clears a buffer each time it
// hands it out, although the connection then overwrites all of it.
type pool struct{ buffers sync.Pool }

var received pool

// Get implements mem.BufferPool. The contents of the buffer are undefined.
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
