package model

import (
	"fmt"

	kintsugi "github.com/kintsugi-ml/kintsugi"
)

// Batch holds the examples of one gradient.
type Batch struct {
	X    []float32 // N × features, row-major; an image is channels × height × width, a sequence its tokens
	Y    []int32   // N × labels; classes count from 0, and a sequence has a label for each position
	N    int       // number of examples
	Seed uint64    // seed of everything random in the gradient
}

// Model computes gradients and evaluates parameters. Only one goroutine may use a model at a time;
// different models may be used at the same time.
type Model interface {
	// Tensors lists the parameters in the order of the flat vector. The caller must not change it.
	Tensors() []kintsugi.Tensor

	// Gradient overwrites grads with the gradient of the mean loss over the batch at params, and
	// returns that loss. The mean is over the labels of all examples. params and grads have one
	// value per parameter. Gradient does not change params or b, and keeps neither. The batch may
	// have any number of examples. The result depends only on the bits of params and b.
	//
	// An error that wraps kintsugi.ErrUsage means that the arguments do not fit the model. After
	// any error the contents of grads are undefined.
	Gradient(params, grads []float32, b Batch) (loss float64, err error)

	// Evaluate returns the mean loss over the batch, without dropout or noise, and the number of
	// labels that are predicted correctly. It has the same errors as Gradient.
	Evaluate(params []float32, b Batch) (loss float64, correct int, err error)

	// Close frees the memory of the model. The model must not be used afterwards.
	Close() error
}

// checkBatch returns an error if the batch does not fit. It checks classes and tokens because they
// are used as indices.
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

// checkVectors returns an error if the parameter or gradient vector has a wrong length. grads is
// nil in an evaluation.
func (d *Description) checkVectors(params, grads []float32) error {
	if len(params) != d.values {
		return fmt.Errorf("%w: model %s has %d parameters, got %d", kintsugi.ErrUsage, d.Name, d.values, len(params))
	}
	if grads != nil && len(grads) != d.values {
		return fmt.Errorf("%w: model %s has %d parameters, the gradient has room for %d", kintsugi.ErrUsage, d.Name, d.values, len(grads))
	}
	return nil
}
