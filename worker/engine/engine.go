package engine

import (
	"context"
	"errors"
	"fmt"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels/blas"
	"github.com/kintsugi-ml/kintsugi/kernels/nn"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// Options select what computes. The zero value means one thread and the fastest kernels of the
// machine.
type Options struct {
	// Threads is the number of threads that compute one gradient. The result does not depend on it.
	// Default: 1.
	Threads int

	// BLAS computes matrix products. It must be opened with one thread, since the engine has its
	// own threads. Default: blas.Open("auto", 1).
	BLAS blas.Gemm

	// Device computes everything else. Default: nn.Best().
	Device nn.Device

	// Ready, if set, is called during a gradient when its values [lo, hi) are final: layer by
	// layer, the last layer first. The goroutine that called Gradient calls it. If a gradient ends
	// with an error, the values that were not reported are undefined.
	Ready func(lo, hi int)

	// Need, if set, is called during a gradient before values [lo, hi) of the parameters are read:
	// layer by layer, the first layer first. It returns when these values are there. It also
	// returns when they will never come and the context of the gradient has ended. The goroutine
	// that called Gradient calls it.
	Need func(lo, hi int)
}

// Engine executes a description. It implements model.Model. Only one goroutine may use an Engine at
// a time.
type Engine struct {
	d      *model.Description
	layers chain
	loss   *loss
	pass   pass
	closed bool
}

var _ model.Model = (*Engine)(nil)

// pieceOf returns the largest number of examples in a piece: 256, or for sequences as many as have
// 1024 labels. The memory of the layers' results is proportional to it.
func pieceOf(in model.Input) int {
	if labels := in.Labels(); labels > 1 {
		return max(1, 1024/labels)
	}
	return 256
}

// New returns an engine for d. A description without layers, such as that of "qp", is a
// kintsugi.ErrUsage; model.New executes such descriptions. Close frees the engine's threads and
// memory.
func New(d *model.Description, o Options) (*Engine, error) {
	if d.Quadratic != nil || len(d.Layers) == 0 {
		return nil, fmt.Errorf("%w: model %s has no layers for an engine to execute", kintsugi.ErrUsage, d.Name)
	}
	if o.BLAS == nil {
		impl, err := blas.Open("auto", 1)
		if err != nil {
			return nil, fmt.Errorf("engine of model %s: %w", d.Name, err)
		}
		o.BLAS = blas.GemmOf(impl)
	}
	if o.Device == nil {
		o.Device = nn.Best()
	}
	layers, err := build(d.Groups(model.Grouping{Pool: true}))
	if err != nil {
		return nil, fmt.Errorf("engine of model %s: %w", d.Name, err)
	}
	e := &Engine{d: d, layers: layers, loss: newLoss(d.Input.Classes)}
	e.pass = pass{pool: newPool(o.Threads), blas: o.BLAS, dev: o.Device, final: o.Ready, waits: o.Need}
	return e, nil
}

// String returns what computes, such as "avx512, OpenBLAS 0.3.21, 1 thread; engine threads: 2".
func (e *Engine) String() string {
	return fmt.Sprintf("%s, %s; engine threads: %d", e.pass.dev.Name(), e.pass.blas, e.pass.threads)
}

// Tensors implements model.Model.
func (e *Engine) Tensors() []kintsugi.Tensor { return e.d.Tensors() }

// Gradient implements model.Model.
func (e *Engine) Gradient(params, grads []float32, b model.Batch) (float64, error) {
	return e.GradientContext(context.Background(), params, grads, b)
}

// GradientContext is Gradient with a context. When ctx ends, it returns the error of ctx within the
// time of one layer's computation on one piece of the batch. The contents of grads are then
// undefined, but the engine remains usable.
func (e *Engine) GradientContext(ctx context.Context, params, grads []float32, b model.Batch) (float64, error) {
	if e.closed {
		return 0, fmt.Errorf("gradient: %w", errClosed)
	}
	if err := e.d.CheckGradient(params, grads, b); err != nil {
		return 0, err
	}
	rows := len(b.Y) // one for each label
	e.pass.train = true
	sum, _, err := e.pieces(ctx, params, grads, b, 1/float64(rows))
	if err != nil {
		return 0, err
	}
	return sum / float64(rows), nil
}

// Evaluate implements model.Model.
func (e *Engine) Evaluate(params []float32, b model.Batch) (float64, int, error) {
	if e.closed {
		return 0, 0, fmt.Errorf("evaluate: %w", errClosed)
	}
	if err := e.d.CheckEvaluate(params, b); err != nil {
		return 0, 0, err
	}
	e.pass.train = false
	sum, correct, err := e.pieces(context.Background(), params, nil, b, 0)
	return sum / float64(len(b.Y)), correct, err
}

var errClosed = errors.New("the model is closed")

// pieces computes a batch, one piece after the other. It returns the sum of the losses and the
// number of correct labels. scale is the weight of one loss in the gradient.
func (e *Engine) pieces(ctx context.Context, params, grads []float32, b model.Batch, scale float64) (sum float64, correct int, err error) {
	p := &e.pass
	p.ctx, p.params, p.grads, p.seed = ctx, params, grads, b.Seed
	defer func() { p.ctx, p.params, p.grads, p.labels = nil, nil, nil, nil }()
	features, labels := len(b.X)/b.N, len(b.Y)/b.N
	piece := pieceOf(e.d.Input)
	for lo := 0; lo < b.N; lo += piece {
		hi := min(b.N, lo+piece)
		p.first, p.n, p.more, p.last = lo, hi-lo, lo > 0, hi == b.N
		p.labels = b.Y[lo*labels : hi*labels]
		logits := e.layers.forward(p, b.X[lo*features:hi*features])
		if err := ctx.Err(); err != nil {
			return 0, 0, fmt.Errorf("gradient of model %s: %w", e.d.Name, err)
		}
		s, c, d := e.loss.compute(p, logits, scale)
		sum, correct = sum+s, correct+c
		if grads == nil {
			continue
		}
		e.layers.backward(p, d)
		if err := ctx.Err(); err != nil {
			return 0, 0, fmt.Errorf("gradient of model %s: %w", e.d.Name, err)
		}
	}
	return sum, correct, nil
}

// Close ends the engine's threads and frees its memory. It may be called again.
func (e *Engine) Close() error {
	if !e.closed {
		e.closed = true
		e.pass.close()
		e.layers, e.loss = nil, nil
	}
	return nil
}
