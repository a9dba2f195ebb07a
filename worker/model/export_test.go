package model

import (
	"gorgonia.org/gorgonia"
)

// Attach attaches witness to the graphs of m, so that it lives as long as they do.
func Attach(m Model, witness *[1 << 16]byte) {
	e := m.(*executor)
	for _, n := range []*network{e.gradient, e.evaluate} {
		g := n.params[0].Graph()
		o := newLayerOp("witness", nil, nil)
		o.run = func([][]float32, []float32) { _ = witness[0] }
		gorgonia.NewUniqueNode(gorgonia.In(g), gorgonia.WithOp(o), gorgonia.WithType(gorgonia.Float32), gorgonia.WithName("witness"))
	}
}
