package engine

import (
	"context"
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cuda"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/worker/local"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// Local takes local steps on the GPU. Parameters come to it once for all of them, and only what they
// come to leaves it: encoded by [Compressed.Local], or with Fetch. It has the bits of local.New, for
// gradients of the same engine. One goroutine uses it at a time.
type Local struct {
	e     *Engine
	batch func(id kintsugi.PushID) model.Batch
	steps *cuda.Stepper
	spans []model.Span // by tensor
	start cuda.Ptr     // the parameters of Begin, once they are on the GPU
	came  []float32    // the parameters of Begin, until they are on the GPU
	out   []byte       // pinned: the pseudo-gradient, for Fetch
}

var _ local.Trainer = (*Local)(nil)

// NewLocal returns a trainer that takes local steps with a rule, along gradients that e computes of
// the batches that batch returns. From Begin to the end of Fetch or of Compressed.Local, e must
// compute nothing else. Closing e frees the memory of the result: 4 bytes for each parameter, and 4
// for each value that the rule keeps.
func NewLocal(e *Engine, rule kernels.Rule, batch func(id kintsugi.PushID) model.Batch) (*Local, error) {
	l := &Local{e: e, batch: batch}
	var lengths []int
	lo := 0
	for _, t := range e.d.Tensors() {
		lengths = append(lengths, t.Values())
		l.spans = append(l.spans, model.Span{Lo: lo, Hi: lo + t.Values()})
		lo += t.Values()
	}
	p := &e.pass
	l.start = e.q.Array(4 * lo)
	var err error
	if l.steps, err = cuda.NewStepper(e.q, rule, p.grow(&e.params, 4*lo), p.grow(&e.grads, 4*lo), lengths, local.PartValues); err != nil {
		return nil, fmt.Errorf("local steps of model %s: %w", e.d.Name, err)
	}
	return l, nil
}

// Begin implements local.Trainer. The parameters are copied to the GPU while the first gradient is
// computed.
func (l *Local) Begin(params []float32) error {
	if l.e.closed {
		return errClosed
	}
	l.came = params
	return nil
}

// Gradient implements local.Trainer.
func (l *Local) Gradient(ctx context.Context, id kintsugi.PushID) (loss float64, examples int, err error) {
	b := l.batch(id)
	if err := l.e.d.CheckBatch(b); err != nil {
		return 0, 0, err
	}
	if l.came != nil {
		if err := l.e.d.CheckEvaluate(l.came, b); err != nil {
			return 0, 0, err
		}
	}
	sum, _, err := l.e.compute(ctx, l.came, nil, true, b)
	if err != nil {
		return 0, 0, err
	}
	if l.came != nil {
		l.e.q.Copy(l.start, l.e.params.at, 4*len(l.came))
		l.steps.Begin()
		l.came = nil
	}
	return sum / float64(len(b.Y)), b.N, nil
}

// SquaredNorm implements local.Trainer.
func (l *Local) SquaredNorm() (float64, error) { return l.steps.SquaredNorm() }

// Step implements local.Trainer. It only queues the step: the next gradient returns its errors.
func (l *Local) Step(scale float32, scalars func(tensor int) kernels.Scalars) error {
	l.steps.Step(scale, scalars)
	return nil
}

// wayBackArgs mirrors WayBackArgs of cuda/kernel/layer.cu.
type wayBackArgs struct {
	grads, start, end cuda.Ptr
	n                 uint64
	rate              float32
	_                 uint32
}

// End implements local.Trainer. It only queues the work, and the pseudo-gradient stays on the GPU.
func (l *Local) End(rate func(tensor int) float32) error {
	for t := 0; t < len(l.spans); {
		s, r := l.spans[t], rate(t)
		for t++; t < len(l.spans) && rate(t) == r; t++ { // tensors with one rate in one launch
			s.Hi = l.spans[t].Hi
		}
		l.wayBack(s, r)
	}
	return nil
}

// wayBack queues the pseudo-gradient of the values of a span.
func (l *Local) wayBack(s model.Span, rate float32) {
	at := func(p cuda.Ptr) cuda.Ptr { return p + cuda.Ptr(4*s.Lo) }
	grads := at(l.e.grads.at)
	if rate == 0 { // the local steps have not moved anything either
		l.e.q.Zero(grads, 4*s.Len())
		return
	}
	cuda.Launch(l.e.q, "layer", "way_back", line(s.Len()), threads, &wayBackArgs{grads: grads, start: at(l.start), end: at(l.e.params.at), n: uint64(s.Len()), rate: rate})
}

// Fetch copies the pseudo-gradient to the host, after End.
func (l *Local) Fetch(grads []float32) error {
	if l.out == nil { // not by pass.pin, since no program names it
		l.out = l.e.q.Pinned(4 * len(grads))
	}
	l.e.q.Out(l.out, l.e.grads.at)
	if err := l.e.q.Wait(); err != nil {
		return fmt.Errorf("fetch what local steps have come to: %w", err)
	}
	copy(kernels.Bytes(grads), l.out)
	return nil
}
