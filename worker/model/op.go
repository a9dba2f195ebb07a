package model

import (
	"fmt"
	"hash"
	"hash/fnv"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// stage is one step of a described model, as arithmetic on slices. A stage belongs to one graph: it
// may keep values of forward for backward.
type stage interface {
	// forward computes y from the inputs in, and overwrites it.
	forward(y []float32, in [][]float32)

	// backward overwrites d[i] with the gradient of in[i]. y is the result of forward on the same
	// inputs, and dy is the gradient of y. d[i] is nil if that gradient is not needed.
	backward(d, in [][]float32, y, dy []float32)
}

// Gorgonia composes a convolution of a dozen operations, and each of these allocates its result
// anew in every run: a step of LeNet costs 34 MB and 2,200 allocations. A layerOp makes a whole
// layer one operation, and keeps the memory of its result. Gorgonia still derives the gradient and
// orders the operations; a stage does the arithmetic.
type layerOp struct {
	name  string // unique in the graph: Gorgonia merges nodes whose operations have the same hash
	dims  []int  // number of dimensions of each input
	shape tensor.Shape
	wrt   []bool // which inputs have a gradient; nil: none
	stage stage

	run    func(in [][]float32, y []float32)
	result gorgonia.Value
	values []float32 // of result
}

// newLayerOp returns an operation on inputs with the shapes of the given nodes.
func newLayerOp(name string, shape tensor.Shape, inputs []*gorgonia.Node) *layerOp {
	o := &layerOp{name: name, shape: shape}
	for _, n := range inputs {
		o.dims = append(o.dims, n.Dims())
	}
	o.values = make([]float32, shape.TotalSize())
	if len(shape) > 0 {
		o.result = dense(shape, o.values)
	}
	return o
}

// dense wraps a slice in a tensor, without copying it.
func dense(shape []int, values []float32) *tensor.Dense {
	return tensor.New(tensor.WithEngine(gorgonia.StandardEngine{}), tensor.WithShape(shape...), tensor.WithBacking(values))
}

// applyStage adds a stage on the given inputs to their graph.
func applyStage(name string, s stage, shape tensor.Shape, wrt []bool, inputs ...*gorgonia.Node) (*gorgonia.Node, error) {
	o := newLayerOp(name, shape, inputs)
	o.stage, o.wrt = s, wrt
	o.run = func(in [][]float32, y []float32) { s.forward(y, in) }
	return gorgonia.ApplyOpWithName(o, name, inputs...)
}

// Do computes the operation. Gorgonia calls it on a goroutine of its own, where no caller could
// recover a panic, so Do returns a panic as an error.
func (o *layerOp) Do(values ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, fmt.Errorf("%s: %v", o.name, p)
		}
	}()
	in := make([][]float32, len(values))
	for i, value := range values {
		switch data := value.Data().(type) {
		case []float32:
			in[i] = data
		case float32:
			in[i] = []float32{data}
		default:
			return nil, fmt.Errorf("%s: input %d holds %T, not float32", o.name, i, data)
		}
	}
	o.run(in, o.values)
	if len(o.shape) == 0 {
		return gorgonia.NewF32(o.values[0]), nil
	}
	return o.result, nil
}

// SymDiff adds one operation that computes the gradients of all inputs into one vector, because an
// operation of Gorgonia has one result. For each gradient it adds an operation that returns its
// part of that vector.
func (o *layerOp) SymDiff(inputs gorgonia.Nodes, output, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	total := 0
	for i, wanted := range o.wrt {
		if wanted {
			total += inputs[i].Shape().TotalSize()
		}
	}
	all := append(append(gorgonia.Nodes{}, inputs...), output, grad)
	back := newLayerOp(o.name+"/gradient", tensor.Shape{total}, all)
	back.run = func(in [][]float32, packed []float32) {
		d := make([][]float32, len(inputs))
		for i, wanted := range o.wrt {
			if wanted {
				n := len(in[i])
				d[i], packed = packed[:n:n], packed[n:]
			}
		}
		o.stage.backward(d, in[:len(inputs)], in[len(inputs)], in[len(inputs)+1])
	}
	packed, err := gorgonia.ApplyOp(back, all...)
	if err != nil {
		return nil, err
	}
	grads := make(gorgonia.Nodes, len(inputs))
	lo := 0
	for i, wanted := range o.wrt {
		if !wanted {
			continue
		}
		shape := inputs[i].Shape()
		hi := lo + shape.TotalSize()
		take := newLayerOp(fmt.Sprintf("%s/gradient/%d", o.name, i), shape, []*gorgonia.Node{packed})
		// The result is the part itself, without a copy: back always writes to the same vector.
		take.values = back.values[lo:hi:hi]
		take.result = dense(shape, take.values)
		take.run = func([][]float32, []float32) {}
		if grads[i], err = gorgonia.ApplyOp(take, packed); err != nil {
			return nil, err
		}
		lo = hi
	}
	return grads, nil
}

// The following methods are required by gorgonia.Op.

func (o *layerOp) Arity() int           { return len(o.dims) }
func (o *layerOp) DiffWRT(n int) []bool { return o.wrt }

// ReturnsPtr is true and OverwritesInput is −1: results are not written into the memory of other
// nodes.
func (o *layerOp) ReturnsPtr() bool     { return true }
func (o *layerOp) OverwritesInput() int { return -1 }

// CallsExtern is false although a BLAS may be called: with true, Gorgonia would allocate and zero a
// result in each run, which would not be used.
func (o *layerOp) CallsExtern() bool { return false }

func (o *layerOp) String() string                                        { return o.name }
func (o *layerOp) WriteHash(h hash.Hash)                                 { h.Write([]byte("kintsugi " + o.name)) }
func (o *layerOp) Hashcode() uint32                                      { h := fnv.New32a(); o.WriteHash(h); return h.Sum32() }
func (o *layerOp) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) { return o.shape, nil }

func (o *layerOp) Type() hm.Type {
	var types []hm.Type
	for _, d := range append(append([]int{}, o.dims...), len(o.shape)) {
		if d == 0 {
			types = append(types, tensor.Float32)
		} else {
			types = append(types, gorgonia.TensorType{Dims: d, Of: tensor.Float32})
		}
	}
	return hm.NewFnType(types...)
}
