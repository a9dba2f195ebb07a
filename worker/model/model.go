package model

import (
	"fmt"

	kintsugi "github.com/kintsugi-ml/kintsugi"
)

// Batch holds the examples of one gradient.
type Batch struct {
	X    []float32 // N × features, row-major; those of an image are channels × height × width, of a sequence its tokens
	Y    []int32   // N × labels, classes from 0; a sequence has a label for each position
	N    int       // examples
	Seed uint64    // everything random about the gradient is a function of it
}

// Model computes gradients and evaluates parameters. A model is used by one goroutine at a time;
// different models may run at once.
type Model interface {
	// Tensors lists the parameters in the order of the flat vector. The caller must not change it.
	Tensors() []kintsugi.Tensor

	// Gradient overwrites grads with the gradient of the mean loss over the batch and returns that
	// loss, both at params; the mean is over the labels of all examples. It reads params and b and
	// keeps neither. The batch may have any number of examples. The result depends on the bits of
	// params and b alone.
	//
	// An error wrapping kintsugi.ErrUsage means that the arguments do not fit the model. After any
	// error grads holds nothing of use.
	Gradient(params, grads []float32, b Batch) (loss float64, err error)

	// Evaluate returns the mean loss over the batch, without dropout or noise, and how many labels
	// params give correctly.
	Evaluate(params []float32, b Batch) (loss float64, correct int, err error)

	// Close frees what the model holds. The model must not be used afterwards.
	Close() error
}

// checkBatch reports what does not fit. Classes and tokens are checked because a wrong one would index memory.
func (d *Description) checkBatch(b Batch) error {
	features, labels := d.Input.Features(), d.Input.Labels()
	switch {
	case b.N <= 0:
		return fmt.Errorf("%w: a batch of %d examples; it needs at least one", kintsugi.ErrUsage, b.N)
	case len(b.X) != b.N*features:
		return fmt.Errorf("%w: a batch of %d examples has %d values; model %s takes %d per example", kintsugi.ErrUsage, b.N, len(b.X), d.Name, features)
	case len(b.Y) != b.N*labels:
		return fmt.Errorf("%w: a batch of %d examples has %d classes; model %s takes %d per example", kintsugi.ErrUsage, b.N, len(b.Y), d.Name, labels)
	}
	for i, y := range b.Y {
		if y < 0 || int(y) >= d.Input.Classes {
			return fmt.Errorf("%w: label %d is of class %d; model %s has %d classes", kintsugi.ErrUsage, i, y, d.Name, d.Input.Classes)
		}
	}
	if !d.Input.Sequence {
		return nil
	}
	for i, x := range b.X {
		if !(x >= 0 && x < float32(d.Input.Classes)) || x != float32(int(x)) {
			return fmt.Errorf("%w: position %d holds token %v; model %s has %d tokens", kintsugi.ErrUsage, i, x, d.Name, d.Input.Classes)
		}
	}
	return nil
}

// checkVectors reports parameter or gradient vectors of a wrong length; grads is nil in an evaluation.
func (d *Description) checkVectors(params, grads []float32) error {
	if len(params) != d.values {
		return fmt.Errorf("%w: model %s has %d parameters, got %d", kintsugi.ErrUsage, d.Name, d.values, len(params))
	}
	if grads != nil && len(grads) != d.values {
		return fmt.Errorf("%w: model %s has %d parameters, the gradient has room for %d", kintsugi.ErrUsage, d.Name, d.values, len(grads))
	}
	return nil
}
