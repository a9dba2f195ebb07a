package engine

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi/cuda"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// layer computes one layer of a description. It owns the arrays it returns. Results and gradients hold one row for each example.
type layer interface {
	// forward returns the result for the examples at x. It must not change x.
	forward(p *pass, x cuda.Ptr) cuda.Ptr

	// backward writes the gradients of the layer's parameters and returns the gradient for x, given the one for the result of
	// the forward before, which it may overwrite. Nobody reads what a layer returns that is told at construction that no
	// layer before it has parameters: it returns 0.
	backward(p *pass, dy cuda.Ptr) cuda.Ptr
}

// pass is what the layers need to know of the piece of a batch that is computed.
type pass struct {
	q             *cuda.Queue
	tf32          bool
	blas          *cuda.BLAS // of q; nil: products are the kernels'
	params, grads cuda.Ptr
	n             int    // examples of the piece
	first         int    // number in the batch of the piece's first example
	seed          uint64 // of the batch's masks
	train         bool
	more          bool // gradients are added to those of the batch's earlier pieces
	last          bool // no piece comes after
	moved         bool // an array is somewhere else than before
}

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
	}
	return r.at
}

// pinned is memory of the host that grows.
type pinned struct{ b []byte }

// pin returns n bytes, the same ones unless they are too few. Nothing that names them may be under way.
func (p *pass) pin(r *pinned, n int) []byte {
	if len(r.b) < n {
		if r.b, p.moved = p.q.Pinned(n+n/4), true; r.b == nil { // the queue has the error; what is written here goes nowhere
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

// A layer that prepares is told before each piece: what it queues may be done again as a program, which nothing of the host is part of.
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

// builder composes the layers of a description.
type builder struct {
	d      *model.Description
	at     int  // the next layer
	offset int  // of the next parameter
	needed bool // a layer before has parameters, so that a gradient for its result is wanted
}

// span is the values [lo, hi) of the flat vectors.
type span struct{ lo, hi int }

// build returns the layers of a description, and where the parameters of each are.
func build(d *model.Description) (c chain, spans []span, err error) {
	b := &builder{d: d}
	for b.at < len(d.Layers) {
		s := span{lo: b.offset}
		l, err := b.next()
		if err != nil {
			return nil, nil, fmt.Errorf("layer %d: %w", b.at, err)
		}
		if s.hi = b.offset; l != nil {
			c, spans = append(c, l), append(spans, s)
		}
	}
	return c, spans, nil
}

// next returns the next layer, with a ReLU behind it that is computed with it, or nil if there is nothing to compute.
func (b *builder) next() (layer, error) {
	i := b.at
	in := b.d.Shapes[i]
	b.at++
	needed := b.needed
	switch l := b.d.Layers[i].(type) {
	case model.Dense:
		b.needed = true
		w, bias := b.tensor(in.Values()*l.Out), b.tensor(l.Out)
		return &dense{w: w, b: bias, rows: 1, in: in.Values(), out: l.Out, relu: b.relu(), needed: needed}, nil
	case model.Linear:
		b.needed = true
		w, bias := b.tensor(in.Width*l.Out), b.tensor(l.Out)
		return &dense{w: w, b: bias, rows: in.Height, in: in.Width, out: l.Out, needed: needed}, nil
	case model.Conv2D:
		b.needed = true
		w, bias := b.tensor(l.Filters*in.Channels*l.Kernel*l.Kernel), b.tensor(l.Filters)
		return newConv(w, bias, in, l, b.relu(), needed), nil
	case model.MaxPool:
		return &pooling{in: in, size: l.Size, needed: needed}, nil
	case model.ReLU:
		return &relu{values: in.Values(), needed: needed}, nil
	case model.Dropout:
		if l.Rate == 0 {
			return nil, nil
		}
		return &dropout{layer: i, rate: l.Rate, values: in.Values(), needed: needed}, nil
	case model.Flatten:
		return nil, nil // rows hold an image's values in order already
	default:
		return b.nextSequence(i, needed)
	}
}

// relu reports whether the next layer is a ReLU, and passes it.
func (b *builder) relu() bool {
	if b.at < len(b.d.Layers) && b.d.Layers[b.at] == (model.ReLU{}) {
		b.at++
		return true
	}
	return false
}

// tensor takes the next n parameters.
func (b *builder) tensor(n int) tensor {
	t := tensor{b.offset}
	b.offset += n
	return t
}
