package engine

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi/cuda"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// layer computes one layer of a description. It owns the arrays that it returns. Results and
// gradients have one row for each example.
type layer interface {
	// forward returns the result for the examples at x. It must not change x.
	forward(p *pass, x cuda.Ptr) cuda.Ptr

	// backward returns the gradient for the x of the last forward, and queues the gradients of the
	// layer's parameters on the side queue. dy is the gradient for the result of that forward.
	// backward may overwrite dy, but only before work on the side queue reads it. If no layer
	// before this one has parameters, which it learns at construction, nobody reads the result and
	// it returns 0.
	backward(p *pass, dy cuda.Ptr) cuda.Ptr
}

// pass is what the layers need to know about the piece of a batch that is being computed.
type pass struct {
	lane               // of the way forward through the layers, and back
	side          lane // of work that this way does not wait for; see beside
	precision     cuda.Precision
	params, grads cuda.Ptr
	n             int    // examples of the piece
	first         int    // number in the batch of the piece's first example
	seed          uint64 // from which the batch's dropout masks are drawn
	train         bool
	there         bool // the parameters are on the GPU already
	more          bool // gradients are added to those of the batch's earlier pieces
	last          bool // this is the batch's last piece
	moved         bool // the address of an array has changed
}

// lane is a queue with the resources of its products.
type lane struct {
	q        *cuda.Queue
	blas     *cuda.BLAS // nil: the kernels of this program compute products
	partRoom room       // for the parts of products, until they are added up
}

// beside runs f, which queues gradients of parameters. They are computed on the side queue, at the
// same time as the work that is queued next. What f reads must not change until meet, or until the
// end of the piece.
func (p *pass) beside(f func()) {
	p.side.q.After(p.q)
	p.lane, p.side = p.side, p.lane
	f()
	p.lane, p.side = p.side, p.lane
}

// meet makes work that is queued from now on wait for the work that was queued by beside.
func (p *pass) meet() { p.q.After(p.side.q) }

// room is an array that grows.
type room struct {
	at   cuda.Ptr
	size int
}

// grow returns an array of at least n bytes, with unspecified contents. It is the same array as
// before unless that was too small.
func (p *pass) grow(r *room, n int) cuda.Ptr {
	if r.size < n {
		p.q.Free(r.at)
		r.at, r.size, p.moved = p.q.Array(n), n, true
		if r.at == 0 { // the queue has an error and does nothing; the next call allocates again
			r.size = 0
		}
	}
	return r.at
}

// pinned is pinned memory of the host that grows.
type pinned struct {
	b    []byte
	none bool // the queue had an error, and b is not pinned
}

// pin returns n bytes of pinned memory: the same memory as before unless that was too small. No
// work that names the memory may be running.
func (p *pass) pin(r *pinned, n int) []byte {
	if len(r.b) < n || r.none {
		r.b, p.moved = p.q.Pinned(n+n/4), true
		if r.none = r.b == nil; r.none { // nothing is copied from or to this memory
			r.b = make([]byte, n)
		}
	}
	return r.b[:n]
}

// tensor is the position of a parameter in the flat vectors: its first value is value lo.
type tensor struct{ lo int }

func (t tensor) of(flat cuda.Ptr) cuda.Ptr { return flat + cuda.Ptr(4*t.lo) }

// threads is the number of threads of a block, for all kernels of layers.
const threads = 256

// line returns a grid with a thread for each of n values.
func line(n int) [3]int { return [3]int{ceil(n, threads), 1, 1} }

// warps returns a grid with a warp for each of n rows.
func warps(n int) [3]int { return [3]int{ceil(n, threads/32), 1, 1} }

func ceil(n, size int) int { return (n + size - 1) / size }

// chain is layers, one after another.
type chain []layer

// prepares is implemented by layers that queue something new for each piece; prepare is called
// before the piece. All other work of a layer may be replayed as a program, to which the host
// contributes nothing.
type prepares interface{ prepare(p *pass) }

func (c chain) prepare(p *pass) {
	for _, l := range c {
		if l, ok := l.(prepares); ok {
			l.prepare(p)
		}
	}
}

func (c chain) forward(p *pass, x cuda.Ptr) cuda.Ptr {
	for _, l := range c {
		x = l.forward(p, x)
	}
	return x
}

func (c chain) backward(p *pass, dy cuda.Ptr) cuda.Ptr {
	for i := len(c) - 1; i >= 0; i-- {
		dy = c[i].backward(p, dy)
	}
	return dy
}

// keeps reports whether backward leaves the gradient that it is given unchanged. The last layer
// gets this gradient and only reads it; the layers before it get another array.
func (c chain) keeps() bool {
	if len(c) == 0 {
		return true
	}
	switch l := c[len(c)-1].(type) {
	case *dense:
		return !l.relu
	case *norm, *attention:
		return true
	}
	return false
}

// build returns the layers that compute the groups.
func build(groups []model.Group) (chain, error) {
	var c chain
	for _, g := range groups {
		l, err := newLayer(g)
		if err != nil {
			return nil, fmt.Errorf("layer %d: %w", g.Index+1, err)
		}
		c = append(c, l)
	}
	return c, nil
}

func newLayer(g model.Group) (layer, error) {
	w, b, in := tensor{g.W.Lo}, tensor{g.B.Lo}, g.In
	switch l := g.Layer.(type) {
	case model.Dense:
		return &dense{w: w, b: b, rows: 1, in: in.Values(), out: l.Out, relu: g.ReLU, needed: g.Needed}, nil
	case model.Conv2D:
		return newConv(w, b, in, l, g.ReLU, g.Needed), nil
	case model.MaxPool:
		return &pooling{in: in, size: l.Size, needed: g.Needed}, nil
	case model.ReLU:
		return &relu{values: in.Values(), needed: g.Needed}, nil
	case model.Dropout:
		return &dropout{layer: g.Index, rate: l.Rate, values: in.Values(), needed: g.Needed}, nil
	case model.Embedding:
		return &embedding{tokens: w, positions: b, vocabulary: g.W.Len() / l.Width, length: in.Width, width: l.Width}, nil
	case model.Linear:
		return &dense{w: w, b: b, rows: in.Height, in: in.Width, out: l.Out, needed: g.Needed}, nil
	case model.LayerNorm:
		return &norm{w: w, b: b, rows: in.Height, width: in.Width, needed: g.Needed}, nil
	case model.GELU:
		return &gelu{values: in.Values(), needed: g.Needed}, nil
	case model.Attention:
		return &attention{length: in.Height, heads: l.Heads, size: in.Width / 3 / l.Heads, needed: g.Needed}, nil
	case model.Fork:
		inside, err := build(g.Inside)
		return &residual{inside: inside, values: in.Values(), needed: g.Needed}, err
	}
	return nil, fmt.Errorf("no such layer: %T", g.Layer)
}
