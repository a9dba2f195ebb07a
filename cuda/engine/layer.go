package engine

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi/cuda"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// layer computes one layer of a description. It owns the arrays it returns. Results and gradients
// hold one row for each example.
type layer interface {
	// forward returns the result for the examples at x. It must not change x.
	forward(p *pass, x cuda.Ptr) cuda.Ptr

	// backward writes the gradients of the layer's parameters, beside, and returns the gradient for
	// x, given the one for the result of the forward before, which it may overwrite before it reads
	// it beside. Nobody reads what a layer returns that is told at construction that no layer
	// before it has parameters: it returns 0.
	backward(p *pass, dy cuda.Ptr) cuda.Ptr
}

// pass is what the layers need to know of the piece of a batch that is computed.
type pass struct {
	lane               // of the way through the layers, and back
	side          lane // of what that does not wait for; see beside
	precision     cuda.Precision
	params, grads cuda.Ptr
	n             int    // examples of the piece
	first         int    // number in the batch of the piece's first example
	seed          uint64 // of the batch's masks
	train         bool
	more          bool // gradients are added to those of the batch's earlier pieces
	last          bool // no piece comes after
	moved         bool // an array is somewhere else than before
}

// lane is a queue with what its products need.
type lane struct {
	q        *cuda.Queue
	blas     *cuda.BLAS // nil: products are the kernels'
	partRoom room       // parts of products, until they are added
}

// beside runs f, which queues gradients of parameters: they are computed beside what is queued
// behind them. What f reads must stay as it is until meet, or the end of the piece.
func (p *pass) beside(f func()) {
	p.side.q.After(p.q)
	p.lane, p.side = p.side, p.lane
	f()
	p.lane, p.side = p.side, p.lane
}

// meet lets all that is queued from now on come after what was queued beside.
func (p *pass) meet() { p.q.After(p.side.q) }

// room is an array that grows.
type room struct {
	at   cuda.Ptr
	size int
}

// grow returns an array of n bytes, the same one unless it is too small. What it holds is not defined.
func (p *pass) grow(r *room, n int) cuda.Ptr {
	if r.size < n {
		p.q.Free(r.at)
		r.at, r.size, p.moved = p.q.Array(n), n, true
		if r.at == 0 { // the queue has the error, and does nothing; who comes next asks again
			r.size = 0
		}
	}
	return r.at
}

// pinned is memory of the host that grows.
type pinned struct {
	b    []byte
	none bool // it is not pinned: the queue had an error
}

// pin returns n bytes, the same ones unless they are too few. Nothing that names them may be under way.
func (p *pass) pin(r *pinned, n int) []byte {
	if len(r.b) < n || r.none {
		r.b, p.moved = p.q.Pinned(n+n/4), true
		if r.none = r.b == nil; r.none { // what is written here goes nowhere
			r.b = make([]byte, n)
		}
	}
	return r.b[:n]
}

// tensor is where a parameter lies in the flat vectors: at value lo.
type tensor struct{ lo int }

func (t tensor) of(flat cuda.Ptr) cuda.Ptr { return flat + cuda.Ptr(4*t.lo) }

// threads of a block, of all kernels of layers.
const threads = 256

// line is a grid with a thread for each of n values.
func line(n int) [3]int { return [3]int{ceil(n, threads), 1, 1} }

// warps is a grid with a warp for each of n rows.
func warps(n int) [3]int { return [3]int{ceil(n, threads/32), 1, 1} }

func ceil(n, size int) int { return (n + size - 1) / size }

// chain is layers one after the other.
type chain []layer

// A layer that prepares is told before each piece, and queues what is new with each: what layers
// queue otherwise may be done again as a program, which nothing of the host is part of.
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

// keeps reports whether backward leaves the gradient that it is given as it is: the last layer
// reads it only, and those before are given another array.
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

// build returns what computes groups of layers.
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
