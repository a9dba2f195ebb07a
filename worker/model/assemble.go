package model

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// assembly adds the layers of a description to a graph, one operation for each group of layers that is
// computed together.
type assembly struct {
	d      *Description
	train  bool
	batch  int
	at     int // the next layer
	x      *gorgonia.Node
	params []*gorgonia.Node // those not used yet
	masks  []maskInput
	forks  []branch // those not joined yet

	// needed says that a layer before has parameters. The gradient for the images themselves, which the
	// first layer could compute, is a third of its work and nobody asks for it.
	needed bool
}

// assemble adds d to the graph of x and returns the logits, and the masks its dropout layers read.
func (d *Description) assemble(x *gorgonia.Node, params []*gorgonia.Node, train bool) (*gorgonia.Node, []maskInput, error) {
	a := &assembly{d: d, train: train, batch: x.Shape()[0], x: x, params: params}
	for a.at < len(d.Layers) {
		if err := a.next(); err != nil {
			return nil, nil, fmt.Errorf("layer %d: %w", a.at+1, err)
		}
	}
	return a.x, a.masks, nil
}

// next adds the next layer, and those behind it that are computed with it.
func (a *assembly) next() error {
	i := a.at
	in := a.d.Shapes[i]
	a.at++
	name := fmt.Sprintf("layer%d", i)
	switch l := a.d.Layers[i].(type) {
	case Dense:
		relu := a.follows(ReLU{})
		s := &denseStage{batch: a.batch, in: in.Values(), out: l.Out, relu: relu}
		return a.parametric(l.Name, s)
	case Conv2D:
		plain := a.d.Shapes[a.at]
		relu, pool := a.follows(ReLU{}), 1
		if a.at < len(a.d.Layers) {
			if p, ok := a.d.Layers[a.at].(MaxPool); ok {
				pool = p.Size
				a.at++
			}
		}
		s := newConvStage(l, in, plain, relu, pool, a.batch)
		return a.parametric(l.Name, s)
	case MaxPool:
		return a.apply(name, &poolStage{in: in, size: l.Size}, []bool{a.needed}, a.x)
	case ReLU:
		return a.apply(name, reluStage{}, []bool{a.needed}, a.x)
	case Dropout:
		if !a.train || l.Rate == 0 {
			return nil
		}
		m := maskInput{layer: i, rate: l.Rate, features: in.Values(), values: make([]float32, a.batch*in.Values())}
		a.masks = append(a.masks, m)
		mask := input(a.x.Graph(), name+"/mask", m.values, a.batch, m.features)
		return a.apply(name, dropoutStage{}, []bool{a.needed, false}, a.x, mask)
	case Flatten:
		// Dense reads its input's values in order whatever its shape: nothing to do.
		return nil
	case Embedding, Linear, LayerNorm, Attention, GELU, Fork, Join:
		return a.nextSequence(l, in, name)
	default:
		return fmt.Errorf("no such layer: %T", l)
	}
}

// follows reports whether the next layer is l, and passes it.
func (a *assembly) follows(l Layer) bool {
	if a.at < len(a.d.Layers) && a.d.Layers[a.at] == l {
		a.at++
		return true
	}
	return false
}

// parametric adds a stage with a weight and a bias.
func (a *assembly) parametric(name string, s stage) error {
	w, b := a.params[0], a.params[1]
	a.params = a.params[2:]
	err := a.apply(name, s, []bool{a.needed, true, true}, a.x, w, b)
	a.needed = true
	return err
}

// apply adds a stage that computes up to the layer before a.at. Its result is a matrix with a row for each
// example, an image or not: stages know their shapes.
func (a *assembly) apply(name string, s stage, wrt []bool, inputs ...*gorgonia.Node) error {
	shape := tensor.Shape{a.batch, a.d.Shapes[a.at].Values()}
	y, err := applyStage(name, s, shape, wrt, inputs...)
	a.x = y
	return err
}
