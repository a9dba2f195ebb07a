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

// Options say how to compute.
type Options struct {
	// TF32 computes products on the matrix units, with factors of 11 bits and sums in float32: several times faster where
	// products are large.
	TF32 bool
}

// Engine executes a description. It implements model.Model, and is used by one goroutine at a time.
type Engine struct {
	d      *model.Description
	dev    *cuda.Device
	q      *cuda.Queue
	layers chain
	pass   pass

	x, labels, logitsGradient, losses, correct room
	params, grads                              room
	staged                                     []byte // pinned: what goes in, then what comes out
	closed                                     bool
}

var _ model.Model = (*Engine)(nil)

// New returns an engine for d on the device, which must live longer. A description without layers, such as that of "qp", is a
// kintsugi.ErrUsage.
func New(d *model.Description, dev *cuda.Device, o Options) (*Engine, error) {
	if d.Quadratic != nil || len(d.Layers) == 0 {
		return nil, fmt.Errorf("%w: model %s has no layers for a GPU to execute", kintsugi.ErrUsage, d.Name)
	}
	layers, err := build(d)
	if err != nil {
		return nil, fmt.Errorf("GPU engine of model %s: %w", d.Name, err)
	}
	q, err := dev.NewQueue()
	if err != nil {
		return nil, fmt.Errorf("GPU engine of model %s: %w", d.Name, err)
	}
	return &Engine{d: d, dev: dev, q: q, layers: layers, pass: pass{q: q, tf32: o.TF32}}, nil
}

// String says what computes.
func (e *Engine) String() string {
	if e.pass.tf32 {
		return e.dev.String() + ", TF32 products"
	}
	return e.dev.String()
}

// Tensors implements model.Model.
func (e *Engine) Tensors() []kintsugi.Tensor { return e.d.Tensors() }

// Gradient implements model.Model.
func (e *Engine) Gradient(params, grads []float32, b model.Batch) (float64, error) {
	return e.GradientContext(context.Background(), params, grads, b)
}

// GradientContext is Gradient for someone who may stop waiting: when ctx ends it returns ctx's error after the piece of the batch that is under
// way, and grads holds nothing of use. The engine remains usable.
func (e *Engine) GradientContext(ctx context.Context, params, grads []float32, b model.Batch) (float64, error) {
	if e.closed {
		return 0, fmt.Errorf("gradient: %w", errClosed)
	}
	if err := e.d.CheckGradient(params, grads, b); err != nil {
		return 0, err
	}
	sum, _, err := e.compute(ctx, params, grads, b)
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
	sum, correct, err := e.compute(context.Background(), params, nil, b)
	if err != nil {
		return 0, 0, fmt.Errorf("evaluate model %s: %w", e.d.Name, err)
	}
	return sum / float64(len(b.Y)), correct, nil
}

var errClosed = errors.New("the model is closed")

// pieceLabels is how many labels are computed at a time at most: results of all layers are kept for as many.
const pieceLabels = 1024

// compute returns the sum of the losses and the right answers; grads, unless nil, receives the gradient of the mean.
func (e *Engine) compute(ctx context.Context, params, grads []float32, b model.Batch) (sum float64, correct int, err error) {
	p, q := &e.pass, e.q
	p.params, p.train, p.seed = p.grow(&e.params, 4*len(params)), grads != nil, b.Seed
	p.grads = p.grow(&e.grads, 4*len(params))
	q.In(p.params, e.stage(kernels.Bytes(params)))
	if err := q.Wait(); err != nil {
		return 0, 0, err
	}
	labels := len(b.Y) / b.N
	piece := max(1, pieceLabels/labels)
	for lo := 0; lo < b.N; lo += piece {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		p.first, p.n, p.more = lo, min(b.N, lo+piece)-lo, lo > 0
		s, c, err := e.piece(b, lo, 1/float64(len(b.Y)))
		if err != nil {
			return 0, 0, err
		}
		sum, correct = sum+s, correct+c
	}
	if grads == nil {
		return sum, correct, nil
	}
	out := e.room(4 * len(grads))
	q.Out(out, p.grads)
	if err := q.Wait(); err != nil {
		return 0, 0, err
	}
	copy(kernels.Bytes(grads), out)
	return sum, correct, nil
}

// lossArgs is LossArgs of cuda/kernel/layer.cu.
type lossArgs struct {
	logits, labels, d, losses, correct cuda.Ptr
	rows, classes                      uint64
	scale                              float64
}

// piece computes examples from lo on, p.n of them.
func (e *Engine) piece(b model.Batch, lo int, scale float64) (sum float64, correct int, err error) {
	p, q := &e.pass, e.q
	features, labels, classes := len(b.X)/b.N, len(b.Y)/b.N, e.d.Input.Classes
	rows := p.n * labels
	values := kernels.Bytes(b.X[lo*features : (lo+p.n)*features])
	in := e.room(len(values) + 4*rows)
	copy(in, values)
	for i, y := range b.Y[lo*labels : (lo+p.n)*labels] {
		binary.LittleEndian.PutUint32(in[len(values)+4*i:], uint32(y))
	}
	args := lossArgs{
		labels: p.grow(&e.labels, 4*rows), losses: p.grow(&e.losses, 8*rows), correct: p.grow(&e.correct, 4*rows),
		rows: uint64(rows), classes: uint64(classes), scale: scale,
	}
	x := p.grow(&e.x, len(values))
	q.In(x, in[:len(values)])
	q.In(args.labels, in[len(values):])
	args.logits = e.layers.forward(p, x)
	if p.train {
		args.d = p.grow(&e.logitsGradient, 4*rows*classes)
	}
	cuda.Launch(q, "layer", "cross_entropy", line(rows), threads, &args)
	if p.train {
		e.layers.backward(p, args.d)
	}
	if err := q.Wait(); err != nil { // what is staged has been read
		return 0, 0, err
	}
	out := e.room(12 * rows)
	q.Out(out[:8*rows], args.losses)
	q.Out(out[8*rows:], args.correct)
	if err := q.Wait(); err != nil {
		return 0, 0, err
	}
	for i := range rows {
		sum += math.Float64frombits(binary.LittleEndian.Uint64(out[8*i:]))
		correct += int(binary.LittleEndian.Uint32(out[8*rows+4*i:]))
	}
	return sum, correct, nil
}

// room returns n bytes of pinned memory, the same ones each time. Nothing that names them may be under way.
func (e *Engine) room(n int) []byte {
	if len(e.staged) < n {
		e.staged = e.q.Pinned(n + n/4)
		if e.staged == nil { // the queue has the error; what is written here goes nowhere
			return make([]byte, n)
		}
	}
	return e.staged[:n]
}

func (e *Engine) stage(b []byte) []byte {
	to := e.room(len(b))
	copy(to, b)
	return to
}

// Close frees the engine's memory; the device stays open.
func (e *Engine) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	return e.q.Close()
}
