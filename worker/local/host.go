package local

import (
	"context"
	"fmt"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Gradient computes the gradient of one batch; see worker.Gradient.
type Gradient func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (loss float64, examples int, err error)

// Config configures New. All fields are required.
type Config struct {
	Plan
	Layout   *kintsugi.Layout
	Device   kernels.Device
	Rule     kernels.Rule // of local steps
	Gradient Gradient     // of one batch
}

// New returns a function that takes the local steps of a plan in the memory of the host. Its
// gradient is the way back, its loss and number of examples are those of Plan.Take. Only one
// goroutine at a time may call it. It keeps a copy of the parameters, and the state of the rule: up
// to 12 bytes for each parameter. Errors are those of Plan.Take, with those of Config.Gradient and
// of the device; grads is then unspecified.
func New(cfg Config) Gradient {
	h := newHost(&cfg)
	return func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (loss float64, examples int, err error) {
		h.grads = grads
		return cfg.Take(ctx, h, params, id)
	}
}

// host is a Trainer in the memory of the host.
type host struct {
	*Config
	start   []float32      // the parameters of Begin
	params  []float32      // of the local step that comes next
	grads   []float32      // the gradient at params, and in the end the way back
	state   [][]float32    // of the rule
	tensors []kernels.Step // a step on each tensor, on parts of the arrays above
}

func newHost(cfg *Config) *host {
	h := &host{Config: cfg, params: make([]float32, cfg.Layout.Values)}
	for range cfg.Rule.States() {
		h.state = append(h.state, make([]float32, cfg.Layout.Values))
	}
	lo := 0
	for _, t := range cfg.Layout.Tensors {
		hi := lo + t.Values()
		x := kernels.Step{Rule: cfg.Rule, Operands: make([]kernels.Operand, 1), Params: h.params[lo:hi], Next: h.params[lo:hi]}
		for k, all := range h.state {
			x.State[k], x.NextState[k] = all[lo:hi], all[lo:hi]
		}
		h.tensors, lo = append(h.tensors, x), hi
	}
	return h
}

// Begin implements Trainer.
func (h *host) Begin(params []float32) error {
	h.start = params
	copy(h.params, params)
	for _, all := range h.state {
		clear(all)
	}
	return nil
}

// Gradient implements Trainer.
func (h *host) Gradient(ctx context.Context, id kintsugi.PushID) (loss float64, examples int, err error) {
	return h.Config.Gradient(ctx, h.params, h.grads, id)
}

// SquaredNorm implements Trainer.
func (h *host) SquaredNorm() (sum float64, err error) {
	lo := 0
	for _, t := range h.tensors {
		hi := lo + len(t.Params)
		for part := range slices.Chunk(h.grads[lo:hi], PartValues) {
			squared, err := h.Device.SquaredNorm(part)
			if err != nil {
				return 0, err
			}
			sum += squared
		}
		lo = hi
	}
	return sum, nil
}

// Step implements Trainer.
func (h *host) Step(scale float32, scalars func(tensor int) kernels.Scalars) error {
	lo := 0
	for t := range h.tensors {
		x := &h.tensors[t]
		hi := lo + len(x.Params)
		x.Scalars, x.Scale, x.Operands[0] = scalars(t), scale, kernels.Operand{Weight: 1, Values: h.grads[lo:hi]}
		if _, err := h.Device.Step(x); err != nil {
			return fmt.Errorf("step on tensor %s: %w", h.Layout.Tensors[t].Name, err)
		}
		lo = hi
	}
	return nil
}

// End implements Trainer.
func (h *host) End(rate func(tensor int) float32) error {
	lo := 0
	for t := range h.tensors {
		hi := lo + len(h.tensors[t].Params)
		wayBack(h.grads[lo:hi], h.start[lo:hi], h.params[lo:hi], rate(t))
		lo = hi
	}
	return nil
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
