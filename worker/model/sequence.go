package model

import (
	"fmt"
	"math"

	kintsugi "github.com/kintsugi-ml/kintsugi"
)

// A sequence is a matrix with a row for each position: the Shape 1×positions×values. The layers of
// this file compute on such matrices. All of them except Attention treat each row independently.

// Embedding is the first layer of a model for sequences. Row t of its result is the sum of two
// table rows: the row of the token at position t in the first table, and row t of the second. Its
// tensors are tokens [Classes, Width] and positions [positions, Width].
type Embedding struct {
	Name  string
	Width int
}

// Linear computes y = x·w + b for each row. Its tensors are w [values, Out] and b [Out].
type Linear struct {
	Name string
	Out  int
}

// LayerNorm shifts and scales each row to mean 0 and variance 1, then multiplies by w and adds b,
// elementwise (Ba, Kiros, Hinton 2016): y = (x − mean)/√(variance + LayerNormEpsilon)·w + b. The
// variance is the mean of (x − mean)². Its tensors are w [values] and b [values].
type LayerNorm struct{ Name string }

// LayerNormEpsilon keeps the result finite for a row of equal values.
const LayerNormEpsilon = 1e-5

// Attention is causal scaled dot-product attention with several heads (Vaswani et al. 2017, §3.2).
// It has no parameters: the projections before and after it are Linear layers. Each row of its
// input consists of the query, the key and the value of its position, a third of the row each. Each
// third is divided into Heads heads of d values. Row t of head h of the result is Σ p·value over
// the positions s ≤ t, where p is the softmax over those s of query t · key s / √d. So the result
// has a third of the input's values, with the heads in order.
type Attention struct{ Heads int }

// GELU computes x·½·(1 + tanh(√(2/π)·(x + 0.044715·x³))) of each value (Hendrycks, Gimpel 2016).
// This equals x/(1 + exp(−2·√(2/π)·(x + 0.044715·x³))).
type GELU struct{}

// Fork and Join enclose the layers of a residual block. Join adds the input of the Fork to the
// output of the layer before it. Blocks may be nested or follow one another. The shapes at both
// ends of a block are equal.
type (
	Fork struct{}
	Join struct{}
)

func (Embedding) layer() {}
func (Linear) layer()    {}
func (LayerNorm) layer() {}
func (Attention) layer() {}
func (GELU) layer()      {}
func (Fork) layer()      {}
func (Join) layer()      {}

// addSequence does what add does, for the layers of this file.
func (d *Description) addSequence(l Layer, in Shape) (Shape, error) {
	if _, ok := l.(Embedding); !ok && in.Channels != 1 {
		return Shape{}, fmt.Errorf("%T takes a matrix, 1×rows×values, and gets %v", l, in)
	}
	switch l := l.(type) {
	case Embedding:
		if l.Width <= 0 {
			return Shape{}, fmt.Errorf("embedding %s has %d values a token", l.Name, l.Width)
		}
		if !d.Input.Sequence || len(d.Shapes) > 1 {
			return Shape{}, fmt.Errorf("embedding %s must be the first layer of a model of sequences", l.Name)
		}
		d.addTensor(l.Name+"/tokens", d.Input.Classes, l.Width)
		d.addTensor(l.Name+"/positions", in.Width, l.Width)
		return Shape{1, in.Width, l.Width}, nil
	case Linear:
		if l.Out <= 0 {
			return Shape{}, fmt.Errorf("linear %s has %d outputs", l.Name, l.Out)
		}
		d.addTensors(l.Name, l.Out, in.Width, l.Out)
		return Shape{1, in.Height, l.Out}, nil
	case LayerNorm:
		d.addTensors(l.Name, in.Width, in.Width)
		return in, nil
	case Attention:
		if l.Heads <= 0 || in.Width%(3*l.Heads) != 0 {
			return Shape{}, fmt.Errorf("attention with %d heads on rows of %d values; it needs a query, a key and a value of equal size for each head",
				l.Heads, in.Width)
		}
		return Shape{1, in.Height, in.Width / 3}, nil
	default: // GELU, Fork, Join
		return in, nil
	}
}

// checkBlocks returns an error for a Fork without a Join or a Join without a Fork. It is called
// when all layers have been added.
func (d *Description) checkBlocks() error {
	var open []int
	for i, l := range d.Layers {
		switch l.(type) {
		case Fork:
			open = append(open, i)
		case Join:
			if len(open) == 0 {
				return fmt.Errorf("%w: model %s: layer %d joins what was not forked", kintsugi.ErrUsage, d.Name, i+1)
			}
			from := open[len(open)-1]
			open = open[:len(open)-1]
			if d.Shapes[from] != d.Shapes[i] {
				return fmt.Errorf("%w: model %s: layer %d adds %v to the %v that entered the fork, layer %d",
					kintsugi.ErrUsage, d.Name, i+1, d.Shapes[from], d.Shapes[i], from+1)
			}
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("%w: model %s: layer %d forks and nothing joins", kintsugi.ErrUsage, d.Name, open[0]+1)
	}
	return nil
}

// joins returns the number of residual blocks.
func (d *Description) joins() int {
	n := 0
	for _, l := range d.Layers {
		if l == (Join{}) {
			n++
		}
	}
	return n
}

// The limits of the initial embeddings, for a standard deviation of 0.2, and of the weights of the
// logits, for 0.02. With embeddings of 0.02 the stream consists mainly of what the blocks add and
// hardly of the tokens, and the loss after 200 steps is 0.15 nats higher.
var (
	embeddingLimit = 0.2 * math.Sqrt(3)
	logitsLimit    = 0.02 * math.Sqrt(3)
)
