package model

import (
	"fmt"
	"runtime"
	"sync"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"gorgonia.org/gorgonia"
)

// construction is held while a graph is built, differentiated and compiled. Gorgonia numbers groups
// and caches the hashes of shared constants in package variables without a lock. Running a graph
// needs no lock.
var construction sync.Mutex

// UseBLAS makes Gorgonia, and the layers here, compute matrix products with impl. It applies to the
// whole process: call it once, before the first model computes.
//
// Without it, Gorgonia uses gonum with its defaults. That computes on GOMAXPROCS goroutines. Also,
// its dot products depend on whether the addresses of their operands are multiples of 16, so the
// last bits of a gradient could depend on the buffer of the parameters. The implementations in
// package kernels/blas have neither property.
func UseBLAS(impl gorgonia.BLAS) {
	construction.Lock()
	defer construction.Unlock()
	gorgonia.Use(impl)
}

// machine runs one graph on Gorgonia's tape machine. It works around these pitfalls of Gorgonia:
//
//   - A run without a Reset does nothing and reports no error: run resets.
//   - Derivatives are added to the bound gradients, never assigned: run clears them first.
//   - SoftMax and LogSoftMax of one node are merged, and one of the two is then wrong: the loss is
//     an operation of this package that uses neither.
//   - The virtual machine has a finalizer and is part of a cycle with everything that a Read can
//     reach. A cycle with a finalizer is never freed: compile removes the finalizer.
//   - Graphs cannot be constructed concurrently: compile holds a lock.
//   - A gradient of a single value is replaced by a scalar in other memory: run binds the gradients
//     anew.
type machine struct {
	vm      gorgonia.VM
	params  []*gorgonia.Node
	tensors []kintsugi.Tensor
}

// compile calls build to construct a graph, and compiles it. build returns the node to
// differentiate, or nil for an evaluation. A panic in Gorgonia is returned as an error.
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

// run computes the graph at params and overwrites grads; grads is nil in an evaluation. The nodes
// are bound to the slices themselves, so a run makes only a few small allocations, whatever the
// size of the model.
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
