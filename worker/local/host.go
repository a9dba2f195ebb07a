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
package local

import (
	"context"
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Gradient computes the gradient of one batch; see worker.Gradient.
type Gradient func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (loss float64, examples int, err error)

// Config configures New. All fields are required, except Clipped.
type Config struct {
	Layout   *kintsugi.Layout
	Device   kernels.Device
	Gradient Gradient // of one batch

	// Steps is the number H of local steps in one gradient. Local step i of the gradient on version
	// v computes the gradient that the id with version v·H + i names, so it has the batch that a
	// run without local steps would have in step v·H + i + 1. H must be at least 1.
	Steps int

	// Rule is the rule of local steps. Scalars returns its scalars for a tensor, given by its
	// index in the layout, in local step i of the gradient on a version. i counts from 0.
	Rule    kernels.Rule
	Scalars func(version kintsugi.Step, i, tensor int) kernels.Scalars

	// Rate is the learning rate by which the way back is divided, for a tensor and a version. It is
	// near that of the local steps, so that what is pushed is near the sum of their gradients,
	// however far the rate has fallen. If it is 0, so must those of the local steps be.
	Rate func(version kintsugi.Step, tensor int) float32

	// Clipped returns the factor that scales the gradient of a local step, from its squared norm.
	// nil: 1, and no norm is computed.
	Clipped func(squaredNorm float64) float64
}

// steps takes the local steps of a gradient.
type steps struct {
	Config
	params  []float32      // of the local step that comes next
	state   [][]float32    // of the rule
	tensors []kernels.Step // a step on each tensor, on parts of the arrays above
}

// New returns a function that takes Config.Steps local steps, and whose gradient is params less the
// parameters that these arrive at, divided by Config.Rate. It returns the mean of the losses, each
// before its local step, and the number of examples in all batches. Only one goroutine at a time
// may call it. It keeps a copy of the parameters, and the state of the rule: up to 12 bytes for
// each parameter. Errors are those of Config.Gradient, of the context and of the device, with the
// local step in which they came; grads is then unspecified.
func New(cfg Config) Gradient {
	s := &steps{Config: cfg, params: make([]float32, cfg.Layout.Values)}
	for range cfg.Rule.States() {
		s.state = append(s.state, make([]float32, cfg.Layout.Values))
	}
	lo := 0
	for _, t := range cfg.Layout.Tensors {
		hi := lo + t.Values()
		x := kernels.Step{Rule: cfg.Rule, Operands: make([]kernels.Operand, 1), Scale: 1, Params: s.params[lo:hi], Next: s.params[lo:hi]}
		for k, all := range s.state {
			x.State[k], x.NextState[k] = all[lo:hi], all[lo:hi]
		}
		s.tensors, lo = append(s.tensors, x), hi
	}
	return s.gradient
}

func (s *steps) gradient(ctx context.Context, params, grads []float32, id kintsugi.PushID) (loss float64, examples int, err error) {
	copy(s.params, params)
	for _, all := range s.state {
		clear(all)
	}
	for i := range s.Steps {
		at := id
		at.Version = id.Version*kintsugi.Step(s.Steps) + kintsugi.Step(i)
		l, n, err := s.Gradient(ctx, s.params, grads, at)
		if err == nil {
			err = ctx.Err() // a gradient that was given up is not one to step along
		}
		if err == nil {
			err = s.step(id.Version, i, grads)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("local step %d of %d: %w", i+1, s.Steps, err)
		}
		loss, examples = loss+l, examples+n
	}
	lo := 0
	for t := range s.tensors {
		hi := lo + len(s.tensors[t].Params)
		wayBack(grads[lo:hi], params[lo:hi], s.params[lo:hi], s.Rate(id.Version, t))
		lo = hi
	}
	return loss / float64(s.Steps), examples, nil
}

// wayBack sets grads to the way from end to start, in units of rate.
func wayBack(grads, start, end []float32, rate float32) {
	if rate == 0 {
		clear(grads) // the local steps have not moved anything either
		return
	}
	for i, p := range end {
		grads[i] = (start[i] - p) / rate
	}
}

// step takes one local step along grads.
func (s *steps) step(version kintsugi.Step, i int, grads []float32) error {
	weight := float32(1)
	if s.Clipped != nil {
		squared, err := s.Device.SquaredNorm(grads)
		if err != nil {
			return fmt.Errorf("norm: %w", err)
		}
		if !math.IsNaN(squared) { // else what is pushed is not finite either, and the worker says so
			weight = float32(s.Clipped(squared))
		}
	}
	lo := 0
	for t := range s.tensors {
		x := &s.tensors[t]
		hi := lo + len(x.Params)
		x.Scalars, x.Operands[0] = s.Scalars(version, i, t), kernels.Operand{Weight: weight, Values: grads[lo:hi]}
		if _, err := s.Device.Step(x); err != nil {
			return fmt.Errorf("step on tensor %s: %w", s.Layout.Tensors[t].Name, err)
		}
		lo = hi
	}
	return nil
}
