package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cuda"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// Options say how an Engine computes.
type Options struct {
	Products Products

	// Precision is the format to which the factors of products are rounded. TF32 and BF16 use the
	// matrix units, which are several times faster for large products. Parameters, activations and
	// gradients are float32 in any case.
	Precision cuda.Precision

	// Library is the path of cuBLAS; "" means where the system finds it. See cuda.Queue.OpenBLAS.
	Library string
}

// Engine executes a description. It implements model.Model. One goroutine uses it at a time.
type Engine struct {
	d      *model.Description
	dev    *cuda.Device
	q      *cuda.Queue
	link   *cuda.Queue // copies to and from the GPU while q computes
	side   *cuda.Queue // computes gradients of parameters while q goes on with those of results
	layers chain
	spans  []model.Span // by layer, the range of its parameters
	pass   pass
	stage  stage

	products string // a description of what multiplies matrices

	examples, logitsGradient, losses, correct room
	params, grads                             room
	paramsIn, batchIn, gradsOut, found        pinned

	programs map[shape]cuda.Program // by shape, once a piece of it was computed without moving arrays; 0: none yet
	eager    error                  // why no program can be captured; nil: one can
	replayed int

	// final, unless nil, is called with the values of the gradient that are final for work queued
	// on link from then on: layer by layer, the last layer first. Then the host does not fetch
	// these values.
	final  func(lo, hi int)
	closed bool
}

var _ model.Model = (*Engine)(nil)

// New returns an engine for d on the device, which must outlive the engine. It returns a
// kintsugi.ErrUsage for a description without layers, such as that of "qp". If the options require
// cuBLAS and it cannot be used, the error wraps cuda.ErrNoBLAS.
func New(d *model.Description, dev *cuda.Device, o Options) (*Engine, error) {
	if d.Quadratic != nil || len(d.Layers) == 0 {
		return nil, fmt.Errorf("%w: model %s has no layers for a GPU to execute", kintsugi.ErrUsage, d.Name)
	}
	groups := d.Groups(model.Grouping{})
	layers, err := build(groups)
	if err != nil {
		return nil, fmt.Errorf("GPU engine of model %s: %w", d.Name, err)
	}
	e := &Engine{d: d, dev: dev, layers: layers, programs: make(map[shape]cuda.Program)}
	for _, g := range groups {
		e.spans = append(e.spans, g.Params)
	}
	for _, q := range []**cuda.Queue{&e.q, &e.link, &e.side, &e.stage.q} {
		if *q, err = dev.NewQueue(); err != nil {
			return nil, errors.Join(fmt.Errorf("GPU engine of model %s: %w", d.Name, err), e.Close())
		}
	}
	e.pass = pass{lane: lane{q: e.q}, side: lane{q: e.side}, precision: o.Precision}
	if err := e.openProducts(o); err != nil {
		return nil, errors.Join(fmt.Errorf("GPU engine of model %s: %w", d.Name, err), e.Close())
	}
	return e, nil
}

// String names the device and what computes products.
func (e *Engine) String() string { return e.dev.String() + ", products by " + e.Products() }

// Tensors implements model.Model.
func (e *Engine) Tensors() []kintsugi.Tensor { return e.d.Tensors() }

// Gradient implements model.Model.
func (e *Engine) Gradient(params, grads []float32, b model.Batch) (float64, error) {
	return e.GradientContext(context.Background(), params, grads, b)
}

// GradientContext is Gradient with a context. When ctx ends, it returns the error of ctx after the
// piece of the batch that is being computed; the contents of grads are then unspecified. The engine
// remains usable.
func (e *Engine) GradientContext(ctx context.Context, params, grads []float32, b model.Batch) (float64, error) {
	if e.closed {
		return 0, fmt.Errorf("gradient: %w", errClosed)
	}
	if err := e.d.CheckGradient(params, grads, b); err != nil {
		return 0, err
	}
	sum, _, err := e.compute(ctx, params, grads, true, b)
	if err != nil {
		return 0, fmt.Errorf("gradient of model %s: %w", e.d.Name, err)
	}
	return sum / float64(len(b.Y)), nil
}

// Evaluate implements model.Model.
func (e *Engine) Evaluate(params []float32, b model.Batch) (float64, int, error) {
	if e.closed {
		return 0, 0, fmt.Errorf("evaluate: %w", errClosed)
	}
	if err := e.d.CheckEvaluate(params, b); err != nil {
		return 0, 0, err
	}
	sum, correct, err := e.compute(context.Background(), params, nil, false, b)
	if err != nil {
		return 0, 0, fmt.Errorf("evaluate model %s: %w", e.d.Name, err)
	}
	return sum / float64(len(b.Y)), correct, nil
}

var errClosed = errors.New("the model is closed")

// The largest number of images, or of positions of text, that are computed at a time: the results
// of all layers are kept for that many. A convolution keeps its windows, several times the size of
// its input; a position of text takes less memory.
const (
	pieceImages    = 1024
	piecePositions = 2048
)

// compute returns the sum of the losses and the number of correct answers. If params is nil, they
// are those that the GPU has. If train is set, it computes the gradient of the mean loss; grads,
// unless nil, receives it.
func (e *Engine) compute(ctx context.Context, params, grads []float32, train bool, b model.Batch) (sum float64, correct int, err error) {
	p := &e.pass
	p.train, p.seed, p.there = train, b.Seed, params == nil
	size := 4 * e.d.Values()
	p.params, p.grads = p.grow(&e.params, size), p.grow(&e.grads, size)
	if !p.there {
		copy(p.pin(&e.paramsIn, size), kernels.Bytes(params))
	}
	if grads != nil {
		p.pin(&e.gradsOut, size)
	}
	ahead := e.stage.take(b)
	defer e.stage.leave(ahead)
	piece := e.pieceOf()
	for lo := 0; lo < b.N; lo += piece {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		p.first, p.n = lo, min(b.N, lo+piece)-lo
		p.more, p.last = lo > 0, lo+p.n == b.N
		s, c, err := e.piece(b, ahead, grads != nil)
		if err != nil {
			return 0, 0, err
		}
		sum, correct = sum+s, correct+c
	}
	copy(kernels.Bytes(grads), e.gradsOut.b)
	return sum, correct, nil
}

// pieceOf returns the largest number of examples that are computed at a time.
func (e *Engine) pieceOf() int {
	if in := e.d.Input; in.Sequence {
		return max(1, piecePositions/in.Labels())
	}
	return pieceImages
}

// piece computes the examples of a batch that the pass describes. ahead, unless nil, is the buffer
// that holds the staged batch.
func (e *Engine) piece(b model.Batch, ahead *buffer, out bool) (sum float64, correct int, err error) {
	p := &e.pass
	rows := p.n * e.d.Input.Labels()
	x := e.bring(b, ahead)
	found := p.pin(&e.found, 12*rows)
	e.layers.prepare(p)
	e.issue(shape{n: p.n, labels: len(b.Y), rows: rows, train: p.train, there: p.there, more: p.more, last: p.last, out: out, final: e.final != nil}, func() {
		e.queue(x, found, len(b.Y), out)
	})
	if err := e.q.Wait(); err != nil {
		return 0, 0, err
	}
	for i := range rows {
		sum += math.Float64frombits(binary.LittleEndian.Uint64(found[8*i:]))
		correct += int(binary.LittleEndian.Uint32(found[8*rows+4*i:]))
	}
	return sum, correct, nil
}

// bring queues the copy of a piece's examples to the place where they are computed, and returns its
// address. It copies from the staged buffer or from the host. It is not part of a program, so that
// a program always finds its examples in one place.
func (e *Engine) bring(b model.Batch, ahead *buffer) cuda.Ptr {
	p := &e.pass
	_, size := e.sizes(p.n)
	x := p.grow(&e.examples, size)
	if ahead != nil {
		e.q.Copy(x, ahead.at+e.place(p.first), size)
		return x
	}
	in := p.pin(&e.batchIn, size)
	e.lay(in, b, p.first, p.n)
	e.q.In(x, in)
	return x
}

// lossArgs mirrors LossArgs of cuda/kernel/layer.cu.
type lossArgs struct {
	logits, labels, d, losses, correct cuda.Ptr
	rows, classes                      uint64
	scale                              float64
}

// queue queues a piece. link copies the parameters of a layer to the GPU while earlier layers
// compute. It also copies the losses, and the gradient of a layer, to the host while the remaining
// layers compute. No work of another piece is running: each piece is waited for.
func (e *Engine) queue(x cuda.Ptr, found []byte, labels int, out bool) {
	p, q := &e.pass, e.q
	rows := len(found) / 12
	classes, _ := e.sizes(p.n)
	args := lossArgs{
		labels: x + cuda.Ptr(classes), losses: p.grow(&e.losses, 8*rows), correct: p.grow(&e.correct, 4*rows),
		rows: uint64(rows), classes: uint64(e.d.Input.Classes), scale: 1 / float64(labels),
	}
	for i, l := range e.layers {
		if s := e.spans[i]; !p.there && !p.more && s.Len() > 0 {
			e.link.In(p.params+cuda.Ptr(4*s.Lo), e.paramsIn.b[4*s.Lo:4*s.Hi])
			q.After(e.link)
		}
		x = l.forward(p, x)
	}
	args.logits = x
	if p.train {
		args.d = p.grow(&e.logitsGradient, 4*rows*e.d.Input.Classes)
	}
	cuda.Launch(q, "layer", "cross_entropy", warps(rows), threads, &args)
	e.link.After(q)
	e.link.Out(found[:8*rows], args.losses)
	e.link.Out(found[8*rows:], args.correct)
	if p.train {
		e.backward(args.d, out)
	}
	q.After(e.link)
}

func (e *Engine) backward(dy cuda.Ptr, out bool) {
	p := &e.pass
	for i := len(e.layers) - 1; i >= 0; i-- {
		dy = e.layers[i].backward(p, dy)
		s := e.spans[i]
		if !p.last || s.Len() == 0 || e.final == nil && !out {
			continue
		}
		e.link.After(e.side)
		if e.final != nil {
			e.final(s.Lo, s.Hi)
		}
		if out {
			e.link.Out(e.gradsOut.b[4*s.Lo:4*s.Hi], p.grads+cuda.Ptr(4*s.Lo))
		}
	}
	p.meet() // also where link has waited for all of it, since this passes the errors of side on
}

// shape determines what work a piece queues, except for the addresses of arrays.
type shape struct {
	n, labels, rows               int
	train, there, more, last, out bool
	final                         bool
}

// mostPrograms limits the memory that programs take.
const mostPrograms = 32

// issue runs the work that f queues. It queues the work of a new shape directly. The next time, if
// no array has moved, it captures the work as a program, which then runs in one launch.
func (e *Engine) issue(s shape, f func()) {
	if e.pass.moved || len(e.programs) > mostPrograms {
		e.forget()
	}
	program, known := e.programs[s]
	if program == 0 && known && e.eager == nil {
		e.q.Capture()
		if !s.more && !s.there { // link gets parameters first; it belongs to the program only once it waits for q
			e.link.After(e.q)
		}
		f()
		var err error
		if program, err = e.q.Captured(); err != nil {
			e.eager = err // queueing the work directly either works or gives this error again
		}
		e.programs[s] = program
	}
	if program != 0 {
		e.q.Replay(program)
		e.replayed++
		return
	}
	f()
	if e.pass.moved {
		e.forget()
	}
	e.programs[s] = 0
}

// forget drops the programs, since they name arrays that are gone.
func (e *Engine) forget() {
	for _, p := range e.programs {
		e.q.Forget(p)
	}
	clear(e.programs)
	e.pass.moved = false
}

// Eager returns why pieces can no longer be computed in one launch. nil: they are, from the second
// piece of a shape on.
func (e *Engine) Eager() error { return e.eager }

// Replayed returns the number of pieces of batches that were computed in one launch.
func (e *Engine) Replayed() int { return e.replayed }

// Close frees the engine's memory. The device stays open.
func (e *Engine) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	var err error
	if e.q != nil {
		e.forget()
		err = e.q.Close()
	}
	for _, q := range []*cuda.Queue{e.link, e.side} {
		if q != nil {
			err = errors.Join(err, q.Close())
		}
	}
	return errors.Join(err, e.stage.close())
}
