package model

import (
	"fmt"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"gorgonia.org/gorgonia"
)

// Custom is a classifier that the user has written as a Gorgonia graph.
type Custom struct {
	Name    string
	Input   Input
	Tensors []kintsugi.Tensor

	// Logits adds the model to the graph of x and returns the logits. x has shape (batch, channels,
	// height, width), and params has one node for each tensor. The logits have shape (batch,
	// Input.Classes), or for sequences (batch, positions·Input.Classes). Logits is called for the
	// graph of gradients and, with another batch, for the graph of evaluations, by one goroutine at
	// a time. It must not build a loss: softmax cross-entropy is added to the logits as one
	// operation, because Gorgonia merges SoftMax and LogSoftMax of one node.
	Logits func(x *gorgonia.Node, params []*gorgonia.Node) (*gorgonia.Node, error)
}

// FromGorgonia returns a model that executes a graph of the user. For batch, see New. The caller
// initialises the parameters.
//
// Gorgonia's Dropout and other operations that draw from a global random generator must not be
// used: a gradient would no longer be a function of its arguments.
//
// Limitation: a panic while the graph is built is returned as an error. An operation that panics
// while the graph runs ends the process, because Gorgonia runs it on a goroutine of its own. Only
// the layers of this package recover there.
// recover there.
func FromGorgonia(c Custom, batch int) (Model, error) {
	if batch < 1 {
		return nil, fmt.Errorf("%w: model %s: a batch of %d examples; it needs at least one", kintsugi.ErrUsage, c.Name, batch)
	}
	if c.Logits == nil || c.Input.Features() <= 0 || c.Input.Classes < 2 {
		return nil, fmt.Errorf("%w: model %s needs Logits, an Input of positive size, and at least two classes", kintsugi.ErrUsage, c.Name)
	}
	layout, err := kintsugi.NewLayout(c.Tensors)
	if err != nil {
		return nil, fmt.Errorf("%w: model %s: %w", kintsugi.ErrUsage, c.Name, err)
	}
	d := &Description{Name: c.Name, Input: c.Input, tensors: c.Tensors, values: layout.Values}
	return newExecutor(d, batch, func(_ *gorgonia.ExprGraph, x *gorgonia.Node, params []*gorgonia.Node, _ bool) (*gorgonia.Node, []maskInput, error) {
		logits, err := c.Logits(x, params)
		if err == nil && logits == nil {
			err = fmt.Errorf("%w: Logits returned no node", kintsugi.ErrUsage)
		}
		return logits, nil, err
	})
}
