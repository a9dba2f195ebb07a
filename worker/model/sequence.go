package model

import (
	"fmt"
	"math"

	kintsugi "github.com/kintsugi-ml/kintsugi"
)

// A sequence is a matrix with a row for each position: the Shape 1×positions×values. The layers of this file
// compute on matrices; all but Attention treat each row by itself.

// Embedding is the first layer of a model of sequences: row t is the row of the token at position t in the
// first table plus row t of the second. Its tensors are tokens [Classes, Width] and positions
// [positions, Width].
type Embedding struct {
	Name  string
	Width int
}

// Linear computes y = x·w + b of each row. Its tensors are w [values, Out] and b [Out]. On a vector it would be
// Dense.
type Linear struct {
	Name string
	Out  int
}

// LayerNorm moves and scales each row to mean 0 and variance 1, then multiplies by w and adds b, value by
// value (Ba, Kiros, Hinton 2016): y = (x − mean)/√(variance + LayerNormEpsilon)·w + b. The variance is the mean of
// (x − mean)². Its tensors are w [values] and b [values].
type LayerNorm struct{ Name string }

// LayerNormEpsilon keeps a row of equal values finite.
const LayerNormEpsilon = 1e-5

// Attention is causal scaled dot-product attention with several heads (Vaswani et al. 2017, §3.2), without
// parameters: the projections before and after it are Linear layers. Each row of its input holds the query,
// the key and the value of its position, a third of the row each, and each third is cut into Heads heads of
// d values. Row t of head h of the result is Σ p·value of positions s ≤ t, where p is the softmax over
// those s of query t · key s / √d. So a result has a third of the input's values, the heads in order.
type Attention struct{ Heads int }

// GELU computes x·½·(1 + tanh(√(2/π)·(x + 0.044715·x³))) of each value (Hendrycks, Gimpel 2016). That is
// x/(1 + exp(−2·√(2/π)·(x + 0.044715·x³))).
type GELU struct{}

// Fork and Join enclose the layers of a residual block: Join adds what entered the Fork to what leaves the
// layer before it. Blocks may be nested, and lie beside one another; both ends have one shape.
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

// addSequence is add for the layers of this file.
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

// checkBlocks reports forks and joins that do not belong together. The description is complete but for them.
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

// joins counts the residual blocks.
func (d *Description) joins() int {
	n := 0
	for _, l := range d.Layers {
		if l == (Join{}) {
			n++
		}
	}
	return n
}

// The ranges of initial embeddings, whose standard deviation is 0.2, and of the weights that give logits, 0.02. With
// embeddings of 0.02 the stream is what the blocks add and hardly the tokens, and 200 steps end 0.15 nats higher.
var (
	embeddingLimit = 0.2 * math.Sqrt(3)
	logitsLimit    = 0.02 * math.Sqrt(3)
)
