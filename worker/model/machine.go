package model

import (
	"fmt"
	"runtime"
	"sync"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"gorgonia.org/gorgonia"
)

// construction is held while a graph is built, differentiated and compiled: Gorgonia numbers groups and
// caches the hashes of shared constants in package variables without a lock. Running needs none.
var construction sync.Mutex

// UseBLAS makes Gorgonia, and the layers here, compute their products with impl. It concerns the whole
// process: call it once, before the first model computes.
//
// Without it Gorgonia's default remains, gonum as it comes: it computes on GOMAXPROCS goroutines, and its
// dot products depend on whether their operands' addresses are multiples of 16, so that the last bits of a
// gradient could depend on which buffer the parameters lie in. Package kernels/blas has implementations
// without either property.
func UseBLAS(impl gorgonia.BLAS) {
	construction.Lock()
	defer construction.Unlock()
	gorgonia.Use(impl)
}

// machine runs one graph on Gorgonia's tape machine. It is the one place that knows Gorgonia's traps:
//
//   - A run without a Reset does nothing and reports no error: run resets.
//   - Derivatives are added to the bound gradients, never assigned: run clears them.
//   - SoftMax and LogSoftMax of one node are merged and one of them is wrong: the loss is an operation
//     of ours that needs neither.
//   - A finalizer on the virtual machine makes a cycle with everything a Read can reach, and a cycle
//     with a finalizer is never freed: compile removes it.
//   - Construction races with construction: compile holds a lock.
//   - A gradient of a single value is replaced by a scalar that is no longer ours: run binds anew.
type machine struct {
	vm      gorgonia.VM
	params  []*gorgonia.Node
	tensors []kintsugi.Tensor
}

// compile builds a graph with build, which returns the node to differentiate, or nil for an evaluation,
// and compiles it. What panics in there is returned as an error.
func compile(tensors []kintsugi.Tensor, build func(g *gorgonia.ExprGraph, params []*gorgonia.Node) (loss *gorgonia.Node, err error)) (m *machine, err error) {
	construction.Lock()
	defer construction.Unlock()
	defer func() {
		if p := recover(); p != nil {
			m, err = nil, fmt.Errorf("%v", p)
		}
	}()
	g := gorgonia.NewGraph()
	m = &machine{tensors: tensors}
	for _, t := range tensors {
		m.params = append(m.params, gorgonia.NewTensor(g, gorgonia.Float32, len(t.Shape), gorgonia.WithShape(t.Shape...), gorgonia.WithName(t.Name)))
	}
	loss, err := build(g, m.params)
	if err != nil {
		return nil, err
	}
	var opts []gorgonia.VMOpt
	if loss != nil {
		if _, err := gorgonia.Grad(loss, m.params...); err != nil {
			return nil, fmt.Errorf("differentiate: %w", err)
		}
		opts = append(opts, gorgonia.BindDualValues(m.params...))
	} else {
		opts = append(opts, gorgonia.EvalMode())
	}
	vm := gorgonia.NewTapeMachine(g, opts...)
	runtime.SetFinalizer(vm, nil)
	m.vm = vm
	return m, nil
}

// run computes the graph at params and overwrites grads; grads is nil in an evaluation. The nodes are
// bound to the slices themselves: a few small allocations, whatever the size of the model.
func (m *machine) run(params, grads []float32) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("run: %v", p)
		}
	}()
	clear(grads)
	lo := 0
	for i, t := range m.tensors {
		hi := lo + t.Values()
		if err := gorgonia.Let(m.params[i], dense(t.Shape, params[lo:hi:hi])); err != nil {
			return fmt.Errorf("bind %s: %w", t.Name, err)
		}
		if grads != nil {
			gorgonia.WithGrad(dense(t.Shape, grads[lo:hi:hi]))(m.params[i])
		}
		lo = hi
	}
	m.vm.Reset()
	if err := m.vm.RunAll(); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

// Close closes the virtual machine.
func (m *machine) Close() error { return m.vm.Close() }
