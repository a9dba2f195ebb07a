// Package local makes one gradient of several local steps: local SGD (Stich, 2019) and its
// descendants, such as FedOpt (Reddi et al., 2021) and DiLoCo (Douillard et al., 2023).
//
// A worker that takes H local steps trains on a copy of the parameters, with an optimizer of its
// own, on H batches. What it pushes is the way back, the pseudo-gradient: the parameters that it
// began with, less those that it arrived at, in units of the learning rate. For servers this is a
// gradient like any other. With plain SGD at that rate, the parameters become the mean of the
// workers' models; other rules go on from there. Gradients and parameters travel once for H
// batches.
//
// The optimizer of local steps begins anew in each gradient: its state is zero, and Adam's bias
// corrections count from the gradient's first step. So a gradient remains a pure function of the
// parameters and its id, as package worker requires, and a worker that died computes the same one
// again. The price is that momentum and second moments are learnt anew every H batches.
//
// A [Plan] says which steps are taken, and a [Trainer] takes them: that of [New] in the memory of
// the host, and that of package cuda/engine in the memory of a GPU. Both come to the same bits if
// their gradients have the same. A program may take the steps of a plan by itself: see package
// program.
package local

import (
	"context"
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Plan says which local steps make a gradient. All fields are required, except Clipped.
type Plan struct {
	// Steps is the number H of local steps in one gradient. Local step i of the gradient on version
	// v computes the gradient that the id with version v·H + i names, so it has the batch that a
	// run without local steps would have in step v·H + i + 1. H must be at least 1.
	Steps int

	// Scalars returns the scalars of a step for a tensor, given by its index in the layout, in local
	// step i of the gradient on a version. i counts from 0.
	Scalars func(version kintsugi.Step, i, tensor int) kernels.Scalars

	// Rate is the learning rate by which the way back is divided, for a tensor and a version. It is
	// near that of the local steps, so that what is pushed is near the sum of their gradients,
	// however far the rate has fallen. If it is 0, so must those of the local steps be.
	Rate func(version kintsugi.Step, tensor int) float32

	// Clipped returns the factor that scales the gradient of a local step, from its squared norm.
	// nil: 1, and no norm is computed.
	Clipped func(squaredNorm float64) float64
}

// PartValues is the number of values of the parts in which norms are computed: so many parts that
// each multiprocessor of a GPU has several, and few enough that their sums are soon added.
const PartValues = 8 << 10

// Trainer takes local steps on parameters and optimizer state of its own. Its methods are called in
// this order: Begin; for each local step Gradient, SquaredNorm if the plan clips, and Step; then
// End. After an error, or whenever the context of a gradient ends, the next call is Begin.
type Trainer interface {
	// Begin sets the parameters, which do not change until End, and the state of the optimizer to
	// zero.
	Begin(params []float32) error

	// Gradient computes the gradient of the batch that id names, at the trainer's parameters. It
	// returns the mean loss, and the number of examples.
	Gradient(ctx context.Context, id kintsugi.PushID) (loss float64, examples int, err error)

	// SquaredNorm returns the squared norm of that gradient: the sum of those of the parts of
	// tensors, in their order. A part has PartValues values, or what is left of its tensor.
	SquaredNorm() (float64, error)

	// Step takes a step along that gradient times scale. scalars are by tensor.
	Step(scale float32, scalars func(tensor int) kernels.Scalars) error

	// End makes the pseudo-gradient: the parameters of Begin less the trainer's, divided by the
	// rate of their tensor. Where that is 0, so is the pseudo-gradient.
	End(rate func(tensor int) float32) error
}

// At returns the id of the batch of local step i of the gradient that id names.
func (p *Plan) At(id kintsugi.PushID, i int) kintsugi.PushID {
	id.Version = id.Version*kintsugi.Step(p.Steps) + kintsugi.Step(i)
	return id
}

// Take takes the local steps of the gradient that id names, from params on. It returns the mean of
// the losses, each before its local step, and the number of examples in all batches. Errors are
// those of the trainer and of the context, with the local step in which they came.
func (p *Plan) Take(ctx context.Context, t Trainer, params []float32, id kintsugi.PushID) (loss float64, examples int, err error) {
	if err := t.Begin(params); err != nil {
		return 0, 0, fmt.Errorf("begin local steps: %w", err)
	}
	for i := range p.Steps {
		l, n, err := p.step(ctx, t, id, i)
		if err != nil {
			return 0, 0, fmt.Errorf("local step %d of %d: %w", i+1, p.Steps, err)
		}
		loss, examples = loss+l, examples+n
	}
	if err := t.End(func(tensor int) float32 { return p.Rate(id.Version, tensor) }); err != nil {
		return 0, 0, fmt.Errorf("end local steps: %w", err)
	}
	return loss / float64(p.Steps), examples, nil
}

// step takes local step i.
func (p *Plan) step(ctx context.Context, t Trainer, id kintsugi.PushID, i int) (loss float64, examples int, err error) {
	if loss, examples, err = t.Gradient(ctx, p.At(id, i)); err != nil {
		return 0, 0, err
	}
	if err := ctx.Err(); err != nil { // a gradient that was given up is not one to step along
		return 0, 0, err
	}
	scale := float32(1)
	if p.Clipped != nil {
		squared, err := t.SquaredNorm()
		if err != nil {
			return 0, 0, fmt.Errorf("norm: %w", err)
		}
		if !math.IsNaN(squared) { // else what is pushed is not finite either, and the worker says so
			scale = float32(p.Clipped(squared))
		}
	}
	return loss, examples, t.Step(scale, func(tensor int) kernels.Scalars { return p.Scalars(id.Version, i, tensor) })
}
