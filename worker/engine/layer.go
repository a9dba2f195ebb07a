package engine

import (
	"context"
	"fmt"

	"github.com/kintsugi-ml/kintsugi/kernels/blas"
	"github.com/kintsugi-ml/kintsugi/kernels/nn"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// layer computes one layer of a description, or several that are computed together. It owns the arrays it returns,
// and keeps those it is given until the pass is over. Results and gradients hold one row for each example.
type layer interface {
	// forward returns the result for the examples x. It must not change x.
	forward(p *pass, x []float32) []float32

	// backward writes the gradients of the layer's parameters to p.grads, reports them with p.ready, and returns
	// the gradient for x, given the one for the result of the forward before. It may overwrite dy. Nobody reads
	// what a layer returns that is told at construction that no layer before it has parameters: it returns nil.
	backward(p *pass, dy []float32) []float32
}

// pass is what the layers need to know of the piece of a batch that is computed.
type pass struct {
	ctx    context.Context
	params []float32
	grads  []float32 // nil in an evaluation
	labels []int32   // classes of the piece
	n      int       // examples of the piece
	first  int       // number in the batch of the piece's first example
	seed   uint64    // of the batch's masks
	train  bool      // dropout drops
	more   bool      // gradients are added to those of the batch's earlier pieces
	last   bool      // no piece comes after

	*pool
	blas  blas.Gemm
	dev   nn.Device
	final func(lo, hi int) // nil: nobody wants to know
	waits func(lo, hi int) // nil: all parameters are there
}

// need waits until values [lo, hi) of the parameters are there.
func (p *pass) need(lo, hi int) {
	if p.waits != nil && p.train {
		p.waits(lo, hi)
	}
}

// ready reports that values [lo, hi) of the gradient are final, unless another piece follows.
func (p *pass) ready(lo, hi int) {
	if p.final != nil && p.last {
		p.final(lo, hi)
	}
}

// keep returns the factor of what a gradient held before: 0, or 1 if there were pieces before.
func (p *pass) keep() float32 {
	if p.more {
		return 1
	}
	return 0
}

// tensor is where a parameter lies in the flat vectors.
type tensor struct{ lo, hi int }

func (t tensor) of(flat []float32) []float32 { return flat[t.lo:t.hi:t.hi] }

// grow returns an array of n values, the same one unless it is too short. What it holds is not defined.
func grow[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n)
	}
	return (*s)[:n]
}

// chain is layers one after the other.
type chain []layer

// forward stops early when the pass's context ends.
func (c chain) forward(p *pass, x []float32) []float32 {
	for _, l := range c {
		if p.ctx.Err() != nil {
			return nil
		}
		x = l.forward(p, x)
	}
	return x
}

func (c chain) backward(p *pass, dy []float32) []float32 {
	for i := len(c) - 1; i >= 0; i-- {
		if p.ctx.Err() != nil {
			return nil
		}
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

func build(d *model.Description) (chain, error) {
	b := &builder{d: d}
	var c chain
	for b.at < len(d.Layers) {
		l, err := b.next()
		if err != nil {
			return nil, fmt.Errorf("layer %d: %w", b.at, err)
		}
		if l != nil {
			c = append(c, l)
		}
	}
	return c, nil
}

// next returns the next layer, with those behind it that are computed with it, or nil if there is nothing to compute.
func (b *builder) next() (layer, error) {
	i := b.at
	in := b.d.Shapes[i]
	b.at++
	needed := b.needed
	switch l := b.d.Layers[i].(type) {
	case model.Dense:
		b.needed = true
		w, bias := b.tensor(in.Values()*l.Out), b.tensor(l.Out)
		return newDense(w, bias, in.Values(), l.Out, b.follows(model.ReLU{}), needed), nil
	case model.Conv2D:
		b.needed = true
		w, bias := b.tensor(l.Filters*in.Channels*l.Kernel*l.Kernel), b.tensor(l.Filters)
		relu, pool := b.follows(model.ReLU{}), 1
		if b.at < len(b.d.Layers) {
			if q, ok := b.d.Layers[b.at].(model.MaxPool); ok {
				pool = q.Size
				b.at++
			}
		}
		return newConv(w, bias, in, l, relu, pool, needed), nil
	case model.MaxPool:
		return newPooling(in, l.Size, needed), nil
	case model.ReLU:
		return newReLU(in.Values(), needed), nil
	case model.Dropout:
		if l.Rate == 0 {
			return nil, nil
		}
		return newDropout(i, l.Rate, in.Values(), needed), nil
	case model.Flatten:
		return nil, nil // rows hold an image's values in order already
	case model.Embedding, model.Linear, model.LayerNorm, model.Attention, model.GELU, model.Fork:
		return b.nextSequence(i, needed)
	default:
		return nil, fmt.Errorf("no such layer: %T", l)
	}
}

// follows reports whether the next layer is l, and passes it.
func (b *builder) follows(l model.Layer) bool {
	if b.at < len(b.d.Layers) && b.d.Layers[b.at] == l {
		b.at++
		return true
	}
	return false
}

// tensor takes the next n parameters.
func (b *builder) tensor(n int) tensor {
	t := tensor{b.offset, b.offset + n}
	b.offset += n
	return t
}
