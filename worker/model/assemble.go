package model

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// assembly adds the layers of a description to a graph, as one operation for each group of layers.
type assembly struct {
	train  bool
	batch  int
	x      *gorgonia.Node
	params []*gorgonia.Node // of the layers that are still to be added
	masks  []maskInput
}

// assemble adds d to the graph of x. It returns the logits, and the masks that the dropout layers
// read.
func (d *Description) assemble(x *gorgonia.Node, params []*gorgonia.Node, train bool) (*gorgonia.Node, []maskInput, error) {
	a := &assembly{train: train, batch: x.Shape()[0], x: x, params: params}
	err := a.add(d.Groups(Grouping{Pool: true}))
	return a.x, a.masks, err
}

func (a *assembly) add(groups []Group) error {
	for _, g := range groups {
		if err := a.group(g); err != nil {
			return fmt.Errorf("layer %d: %w", g.Index+1, err)
		}
	}
	return nil
}

func (a *assembly) group(g Group) error {
	in, name := g.In, fmt.Sprintf("layer%d", g.Index)
	switch l := g.Layer.(type) {
	case Dense:
		return a.parametric(l.Name, g, &denseStage{batch: a.batch, in: in.Values(), out: l.Out, relu: g.ReLU})
	case Conv2D:
		return a.parametric(l.Name, g, newConvStage(l, in, g.ReLU, g.Pool, a.batch))
	case MaxPool:
		return a.apply(name, g, &poolStage{in: in, size: l.Size}, []bool{g.Needed}, a.x)
	case ReLU:
		return a.apply(name, g, reluStage{}, []bool{g.Needed}, a.x)
	case Dropout:
		return a.dropout(name, g, l)
	case Embedding:
		return a.parametric(l.Name, g, embeddingStage{in.Width, l.Width})
	case Linear:
		return a.parametric(l.Name, g, linearStage(a.batch*in.Height, in.Width, l.Out))
	case LayerNorm:
		return a.parametric(l.Name, g, normStage{in.Width})
	case Attention:
		return a.apply(name, g, &attentionStage{positions: in.Height, heads: l.Heads, size: in.Width / 3 / l.Heads}, []bool{g.Needed}, a.x)
	case GELU:
		return a.apply(name, g, geluStage{}, []bool{g.Needed}, a.x)
	case Fork:
		from := a.x
		if err := a.add(g.Inside); err != nil {
			return err
		}
		return a.apply(name, g, joinStage{}, []bool{g.Needed || g.Params.Len() > 0, g.Needed}, a.x, from)
	default:
		return fmt.Errorf("no such layer: %T", l)
	}
}

func (a *assembly) dropout(name string, g Group, l Dropout) error {
	if !a.train {
		return nil
	}
	m := maskInput{layer: g.Index, rate: l.Rate, features: g.In.Values(), values: make([]float32, a.batch*g.In.Values())}
	a.masks = append(a.masks, m)
	mask := input(a.x.Graph(), name+"/mask", m.values, a.batch, m.features)
	return a.apply(name, g, dropoutStage{}, []bool{g.Needed, false}, a.x, mask)
}

// parametric adds a stage with a weight and a bias.
func (a *assembly) parametric(name string, g Group, s stage) error {
	w, b := a.params[0], a.params[1]
	a.params = a.params[2:]
	return a.apply(name, g, s, []bool{g.Needed, true, true}, a.x, w, b)
}

// apply adds a stage that computes a group. Its result is a matrix with a row for each example,
// even if the example is an image: stages know their shapes.
func (a *assembly) apply(name string, g Group, s stage, wrt []bool, inputs ...*gorgonia.Node) error {
	y, err := applyStage(name, s, tensor.Shape{a.batch, g.Out.Values()}, wrt, inputs...)
	a.x = y
	return err
}
