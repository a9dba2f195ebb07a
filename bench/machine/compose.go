package machine

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	models "github.com/kintsugi-ml/kintsugi/worker/model"
)

// compose returns d as a network of Gorgonia's own operations, or nil if it has a layer that
// Gorgonia does not support.
func compose(d *models.Description, batch int) (models.Model, error) {
	for _, l := range d.Layers {
		switch l.(type) {
		case models.Dense, models.Conv2D, models.MaxPool, models.ReLU, models.Dropout, models.Flatten:
		default:
			return nil, nil
		}
	}
	return models.FromGorgonia(models.Custom{
		Name: d.Name, Input: d.Input, Tensors: d.Tensors(),
		Logits: func(x *gorgonia.Node, params []*gorgonia.Node) (*gorgonia.Node, error) {
			var err error
			for i, l := range d.Layers {
				if x, params, err = composeLayer(l, d.Shapes[i], x, params); err != nil {
					return nil, err
				}
			}
			return x, nil
		},
	}, batch)
}

// composeLayer adds a layer to the graph of x. It returns the result, and the parameters that the
// layer did not use.
func composeLayer(l models.Layer, in models.Shape, x *gorgonia.Node, params []*gorgonia.Node) (*gorgonia.Node, []*gorgonia.Node, error) {
	batch := x.Shape()[0]
	switch l := l.(type) {
	case models.Dense:
		y, err := flat(x, batch, in)
		if err == nil {
			y, err = gorgonia.Mul(y, params[0])
		}
		if err == nil {
			y, err = addBias(y, params[1], tensor.Shape{1, l.Out}, 0)
		}
		return y, params[2:], err
	case models.Conv2D:
		y, err := gorgonia.Conv2d(x, params[0], tensor.Shape{l.Kernel, l.Kernel}, []int{l.Pad, l.Pad}, []int{1, 1}, []int{1, 1})
		if err == nil {
			y, err = addBias(y, params[1], tensor.Shape{1, l.Filters, 1, 1}, 0, 2, 3)
		}
		return y, params[2:], err
	case models.MaxPool:
		y, err := gorgonia.MaxPool2D(x, tensor.Shape{l.Size, l.Size}, []int{0, 0}, []int{l.Size, l.Size})
		return y, params, err
	case models.ReLU:
		y, err := gorgonia.Rectify(x)
		return y, params, err
	case models.Dropout:
		y, err := gorgonia.Dropout(x, float64(l.Rate))
		return y, params, err
	default: // Flatten
		y, err := flat(x, batch, in)
		return y, params, err
	}
}

// flat converts images to rows.
func flat(x *gorgonia.Node, batch int, in models.Shape) (*gorgonia.Node, error) {
	if x.Dims() == 2 {
		return x, nil
	}
	return gorgonia.Reshape(x, tensor.Shape{batch, in.Values()})
}

func addBias(y, b *gorgonia.Node, shape tensor.Shape, along ...byte) (*gorgonia.Node, error) {
	b, err := gorgonia.Reshape(b, shape)
	if err != nil {
		return nil, err
	}
	return gorgonia.BroadcastAdd(y, b, nil, along)
}
