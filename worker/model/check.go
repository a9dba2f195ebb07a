package model

import (
	"fmt"

	kintsugi "github.com/kintsugi-ml/kintsugi"
)

// CheckGradient returns a kintsugi.ErrUsage if the arguments of Model.Gradient do not fit the
// description. Engines call it before they compute, because a wrong class or length would lead to a
// wrong index.
func (d *Description) CheckGradient(params, grads []float32, b Batch) error {
	if grads == nil {
		return fmt.Errorf("gradient: %w: model %s has no room for the gradient", kintsugi.ErrUsage, d.Name)
	}
	return d.check("gradient", params, grads, b)
}

// CheckEvaluate does the same for the arguments of Model.Evaluate.
func (d *Description) CheckEvaluate(params []float32, b Batch) error {
	return d.check("evaluate", params, nil, b)
}

// CheckBatch returns a kintsugi.ErrUsage if a batch does not fit the description.
func (d *Description) CheckBatch(b Batch) error { return d.checkBatch(b) }

func (d *Description) check(what string, params, grads []float32, b Batch) error {
	if err := d.checkVectors(params, grads); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := d.checkBatch(b); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
