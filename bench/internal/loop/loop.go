// Package loop makes the steps of a run in one process, as the baseline of runs on a cluster.
package loop

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// Loop makes the steps of a run in one process. A step is that of a run which counts one
// gradient of each worker: their mean by examples, each clipped, and each tensor at its learning
// rate. It has the bits of such a run, if gradients are sent as they are.
type Loop struct {
	layout    *kintsugi.Layout
	clipping  agg.Config
	Params    []float32
	Gradients [][]float32    // by worker, all tensors
	examples  []int          // of the gradients
	tensors   []kernels.Step // a step on each tensor, on parts of the arrays above
}

// New returns a loop whose parameters, gradients and optimizer state are zero. clipNorm is
// the longest norm that a gradient counts with; 0 bounds nothing.
func New(l *kintsugi.Layout, rule kintsugi.Rule, workers int, clipNorm float64) *Loop {
	x := &Loop{
		layout: l, clipping: agg.Config{ClipNorm: clipNorm}, Params: make([]float32, l.Values), Gradients: make([][]float32, workers), examples: make([]int, workers),
		tensors: make([]kernels.Step, len(l.Tensors)),
	}
	for i := range x.Gradients {
		x.Gradients[i] = make([]float32, l.Values)
	}
	var state [2][]float32
	for i := range rule.States() {
		state[i] = make([]float32, l.Values)
	}
	lo := 0
	for i, t := range l.Tensors {
		hi := lo + t.Values()
		s := kernels.Step{Rule: kernels.Rule(rule), Params: x.Params[lo:hi], Next: x.Params[lo:hi]}
		for k := range s.Rule.States() {
			s.State[k], s.NextState[k] = state[k][lo:hi], state[k][lo:hi]
		}
		for _, g := range x.Gradients {
			s.Operands = append(s.Operands, kernels.Operand{Values: g[lo:hi]})
		}
		x.tensors[i], lo = s, hi
	}
	return x
}

// Count says that gradients[worker] is the mean gradient of so many examples, and measures it if it
// may have to be clipped. It may be called for several workers at once.
func (x *Loop) Count(worker, examples int) {
	x.examples[worker] = examples
	weight := float64(examples)
	if x.clipping.ClipNorm > 0 {
		squared := 0.0
		for _, c := range x.layout.Chunks { // in the order of a ticket
			squared += kernels.SquaredNorm(x.Gradients[worker][c.Lo:c.Hi])
		}
		weight *= x.clipping.Clipped(squared)
	}
	for i := range x.tensors {
		x.tensors[i].Operands[worker].Weight = float32(weight)
	}
}

// Step makes a step on the gradients that were counted, one of each worker.
func (x *Loop) Step(o kintsugi.Optimizer) error {
	examples := 0
	for _, n := range x.examples {
		examples += n
	}
	for i := range x.tensors {
		s := &x.tensors[i]
		s.Scalars, s.Scale = server.TensorScalars(o, x.layout, i), float32(1/float64(examples))
		if _, err := kernels.Best().Step(s); err != nil {
			return fmt.Errorf("step on tensor %s: %w", x.layout.Tensors[i].Name, err)
		}
	}
	return nil
}
