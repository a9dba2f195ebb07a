package engine

import (
	"context"
	"fmt"

	"github.com/kintsugi-ml/kintsugi/kernels/blas"
	"github.com/kintsugi-ml/kintsugi/kernels/nn"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// layer computes one layer of a description, or several together. It owns the arrays that it
// returns. It may keep its arguments until the pass is over. Results and gradients have one row for
// each example.
type layer interface {
	// forward returns the result for the input x. It must not change x.
	forward(p *pass, x []float32) []float32

	// backward computes the gradients of the last forward, given dy, the gradient of its result. It
	// writes the gradients of the layer's parameters to p.grads, reports them with p.ready, and
	// returns the gradient of x. It may overwrite dy. If no earlier layer has parameters, the
	// gradient of x is not needed: the layer was told so when it was made, and returns nil.
	backward(p *pass, dy []float32) []float32
}

// pass is the state of computing one piece of a batch, for its layers.
type pass struct {
	ctx    context.Context
	params []float32
	grads  []float32 // nil in an evaluation
	labels []int32   // classes of the piece
	n      int       // examples of the piece
	first  int       // index in the batch of the piece's first example
	seed   uint64    // of the batch's masks
	train  bool      // dropout is active
	more   bool      // earlier pieces of the batch have left gradients, which are added to
	last   bool      // this is the last piece of the batch

	*pool
	blas  blas.Gemm
	dev   nn.Device
	final func(lo, hi int) // see Options.Ready; may be nil
	waits func(lo, hi int) // see Options.Need; nil: all parameters are there
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

// keep returns the factor for the previous contents of a gradient: 1 if there were earlier pieces,
// otherwise 0.
func (p *pass) keep() float32 {
	if p.more {
		return 1
	}
	return 0
}

// tensor is the range of a parameter tensor in the flat vectors.
type tensor struct{ lo, hi int }

func (t tensor) of(flat []float32) []float32 { return flat[t.lo:t.hi:t.hi] }

// grow returns an array of n values with undefined contents. It reuses *s if that is large enough.
func grow[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n)
	}
	return (*s)[:n]
}

// chain is a list of layers that follow one another.
type chain []layer

// forward computes all layers in order. If the context ends, it returns nil.
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

// build returns the layers that compute the given groups.
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
	w, b := tensor{g.W.Lo, g.W.Hi}, tensor{g.B.Lo, g.B.Hi}
	switch l := g.Layer.(type) {
	case model.Dense:
		return newDense(w, b, g.In.Values(), l.Out, g.ReLU, g.Needed), nil
	case model.Conv2D:
		return newConv(w, b, g.In, l, g.ReLU, g.Pool, g.Needed), nil
	case model.MaxPool:
		return newPooling(g.In, l.Size, g.Needed), nil
	case model.ReLU:
		return newReLU(g.In.Values(), g.Needed), nil
	case model.Dropout:
		return newDropout(g.Index, l.Rate, g.In.Values(), g.Needed), nil
	case model.Embedding:
		return newEmbedding(w, b, l.Width), nil
	case model.Linear:
		return newLinear(w, b, g.In.Height, g.In.Width, l.Out, g.Needed), nil
	case model.LayerNorm:
		return newNorm(w, b, g.In.Width, g.Needed), nil
	case model.GELU:
		return newGELU(g.Needed), nil
	case model.Attention:
		return newAttention(g.In, l, g.Needed), nil
	case model.Fork:
		inside, err := build(g.Inside)
		return &residual{inside: inside, needed: g.Needed}, err
	}
	return nil, fmt.Errorf("no such layer: %T", g.Layer)
}
