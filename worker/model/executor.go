package model

import (
	"errors"
	"fmt"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// New returns a model that executes d on the CPU with Gorgonia. The graph computes batch examples
// at a time. A larger Batch is computed in pieces. A smaller one, or the last piece, is padded with
// examples that do not count. So batch should be the usual size; less than 1 means
// d.Defaults.Batch. A gradient that is computed in pieces has other bits than the gradient of the
// same batch computed at once.
//
// Memory grows with batch: about three times the results of all layers. Evaluations have a graph of
// their own, which is built at the first evaluation.
func New(d *Description, batch int) (Model, error) {
	switch {
	case d.Quadratic != nil:
		return newQuadratic(d), nil
	case d.Factors != nil:
		return &factors{d: d, f: *d.Factors}, nil
	case len(d.Layers) == 0:
		return nil, fmt.Errorf("%w: model %s has no gradient to compute; package rows makes its steps", kintsugi.ErrUsage, d.Name)
	}
	if batch < 1 {
		batch = d.Defaults.Batch
	}
	return newExecutor(d, batch, func(g *gorgonia.ExprGraph, x *gorgonia.Node, params []*gorgonia.Node, train bool) (*gorgonia.Node, []maskInput, error) {
		return d.assemble(x, params, train)
	})
}

// evaluationBatch is the number of examples that an evaluation computes at a time. It is large
// enough for efficient matrix products, and small enough for a second-level cache.
const evaluationBatch = 128

// maskInput is a dropout mask that is an input of a graph.
type maskInput struct {
	layer    int
	rate     float32
	features int
	values   []float32 // batch × features
}

// assembleFunc adds a model to a graph and returns its logits [batch, classes] and its dropout
// masks.
type assembleFunc func(g *gorgonia.ExprGraph, x *gorgonia.Node, params []*gorgonia.Node, train bool) (*gorgonia.Node, []maskInput, error)

// executor computes with two graphs, one for gradients and one for evaluations.
type executor struct {
	d        *Description
	assemble assembleFunc
	gradient *network
	evaluate *network  // nil until the first evaluation
	partial  []float32 // gradient of a piece; allocated for the first batch with several pieces
	closed   bool
}

func newExecutor(d *Description, batch int, assemble assembleFunc) (Model, error) {
	e := &executor{d: d, assemble: assemble}
	var err error
	if e.gradient, err = e.build(batch, true); err != nil {
		return nil, fmt.Errorf("build model %s: %w", d.Name, err)
	}
	return e, nil
}

// network is a compiled graph and its inputs.
type network struct {
	*machine
	batch   int
	x       []float32 // batch × features
	labels  int       // of one example
	targets []float32 // batch × labels × classes, one-hot; rows of zeros are padding
	masks   []maskInput
	loss    *lossStage
	logits  *gorgonia.Value // of the last run; nil when training
}

func (e *executor) build(batch int, train bool) (*network, error) {
	in := e.d.Input
	n := &network{
		batch:   batch,
		x:       make([]float32, batch*in.Features()),
		labels:  in.Labels(),
		targets: make([]float32, batch*in.Labels()*in.Classes),
		loss:    &lossStage{classes: in.Classes, p: make([]float64, in.Classes)},
	}
	var err error
	n.machine, err = compile(e.d.tensors, func(g *gorgonia.ExprGraph, params []*gorgonia.Node) (*gorgonia.Node, error) {
		x := input(g, "x", n.x, batch, in.Channels, in.Height, in.Width)
		logits, masks, err := e.assemble(g, x, params, train)
		if err != nil {
			return nil, err
		}
		if want := (tensor.Shape{batch, in.Labels() * in.Classes}); !logits.Shape().Eq(want) {
			return nil, fmt.Errorf("%w: the logits have shape %v; want %v", kintsugi.ErrUsage, logits.Shape(), want)
		}
		n.masks = masks
		if !train {
			// Allocated separately from n: a Value inside n would keep the whole of n reachable
			// from the graph.
			n.logits = new(gorgonia.Value)
			gorgonia.Read(logits, n.logits)
			return nil, nil
		}
		targets := input(g, "targets", n.targets, batch, in.Labels()*in.Classes)
		return applyStage("loss", n.loss, tensor.ScalarShape(), []bool{true, false}, logits, targets)
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// input adds an input node that is permanently bound to values.
func input(g *gorgonia.ExprGraph, name string, values []float32, shape ...int) *gorgonia.Node {
	return gorgonia.NewTensor(g, gorgonia.Float32, len(shape), gorgonia.WithName(name),
		gorgonia.WithShape(shape...), gorgonia.WithValue(dense(shape, values)))
}

// fill copies examples [lo, hi) of b into the inputs and pads the rest.
func (n *network) fill(b Batch, lo, hi int) {
	features := len(n.x) / n.batch
	clear(n.x[copy(n.x, b.X[lo*features:hi*features]):])
	clear(n.targets)
	classes := n.loss.classes
	for i, y := range b.Y[lo*n.labels : hi*n.labels] {
		n.targets[i*classes+int(y)] = 1
	}
	for _, m := range n.masks {
		used := (hi - lo) * m.features
		DropoutMask(m.values[:used], b.Seed, m.layer, m.rate, lo, m.features)
		clear(m.values[used:])
	}
	n.loss.mean = 1 / float64(len(b.Y))
}

var errClosed = errors.New("the model is closed")

// Tensors lists the parameters.
func (e *executor) Tensors() []kintsugi.Tensor { return e.d.tensors }

// Gradient implements Model.
func (e *executor) Gradient(params, grads []float32, b Batch) (float64, error) {
	if grads == nil {
		return 0, fmt.Errorf("gradient: %w: model %s has no room for the gradient", kintsugi.ErrUsage, e.d.Name)
	}
	if err := e.check(params, grads, b); err != nil {
		return 0, fmt.Errorf("gradient: %w", err)
	}
	n := e.gradient
	sum := 0.0
	for lo := 0; lo < b.N; lo += n.batch {
		into := grads
		if lo > 0 { // a run overwrites its gradient, so later pieces have their own
			if e.partial == nil {
				e.partial = make([]float32, e.d.values)
			}
			into = e.partial
		}
		n.fill(b, lo, min(b.N, lo+n.batch))
		if err := n.run(params, into); err != nil {
			return 0, fmt.Errorf("gradient of model %s: %w", e.d.Name, err)
		}
		sum += n.loss.sum
		if lo > 0 {
			for i, g := range into {
				grads[i] += g
			}
		}
	}
	return sum / float64(len(b.Y)), nil
}

// Evaluate implements Model. If several logits are the largest, the first of them is the answer.
func (e *executor) Evaluate(params []float32, b Batch) (float64, int, error) {
	if err := e.check(params, nil, b); err != nil {
		return 0, 0, fmt.Errorf("evaluate: %w", err)
	}
	if e.evaluate == nil {
		var err error
		if e.evaluate, err = e.build(evaluationBatch, false); err != nil {
			return 0, 0, fmt.Errorf("evaluate: build model %s: %w", e.d.Name, err)
		}
	}
	n := e.evaluate
	sum, correct := 0.0, 0
	for lo := 0; lo < b.N; lo += n.batch {
		hi := min(b.N, lo+n.batch)
		n.fill(b, lo, hi)
		if err := n.run(params, nil); err != nil {
			return 0, 0, fmt.Errorf("evaluate model %s: %w", e.d.Name, err)
		}
		logits := (*n.logits).Data().([]float32)
		for i, y := range b.Y[lo*n.labels : hi*n.labels] {
			row := logits[i*n.loss.classes:][:n.loss.classes]
			sum += crossEntropy(row, int(y), n.loss.p)
			if largest(row) == int(y) {
				correct++
			}
		}
	}
	return sum / float64(len(b.Y)), correct, nil
}

func (e *executor) check(params, grads []float32, b Batch) error {
	if e.closed {
		return errClosed
	}
	if err := e.d.checkVectors(params, grads); err != nil {
		return err
	}
	return e.d.checkBatch(b)
}

// largest returns the index of the largest value, and of several equal ones the first.
func largest(row []float32) int {
	best := 0
	for j, v := range row {
		if v > row[best] {
			best = j
		}
	}
	return best
}

// Close implements Model.
func (e *executor) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	err := e.gradient.Close()
	if e.evaluate != nil {
		err = errors.Join(err, e.evaluate.Close())
	}
	e.gradient, e.evaluate = nil, nil
	return err
}
