package server

import (
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// kernelStep is the kernel arguments of one thread, reused from chunk to chunk.
type kernelStep struct {
	kernels.Step
	waited  time.Duration // in run, for the lock of the saved values
	scratch []float32     // saved values that must be computed

	few      kernels.Few
	mayBeFew bool      // run may leave out spots that no operand names
	wasFew   bool      // run has left them out
	given    []byte    // the sum from which the step starts, as a payload; nil: it is From, or there is none
	from     []float32 // scratch for that
}

func newKernelStep(c kintsugi.Commit) *kernelStep {
	return &kernelStep{Step: kernels.Step{
		Rule:             kernels.Rule(c.Optimizer.Rule),
		Operands:         make([]kernels.Operand, 0, len(c.Counted)),
		Scale:            c.Scale,
		WantDisplacement: c.Want&kintsugi.WantSquaredDisplacement != 0,
	}}
}

// Scalars returns the optimizer's scalars for the values of tensor t, as kernels take them, at the
// learning rate of the run.
func Scalars(o kintsugi.Optimizer, t kintsugi.Tensor) kernels.Scalars {
	return kernels.Scalars{
		LearningRate: o.LearningRate, Momentum: o.Momentum, Beta1: o.Beta1, Beta2: o.Beta2, Epsilon: o.Epsilon,
		WeightDecay: o.WeightDecayOf(t), Correction1: o.Correction1, Correction2: o.Correction2,
	}
}

// TensorScalars returns the optimizer's scalars for the values of a tensor, given by its index in
// the layout, at the learning rate of that tensor.
func TensorScalars(o kintsugi.Optimizer, l *kintsugi.Layout, tensor int) kernels.Scalars {
	x := Scalars(o, l.Tensors[tensor])
	x.LearningRate *= l.Rate(tensor)
	return x
}

// scalars returns the scalars of a step for chunk i of the shard. Adam's bias corrections count the
// steps of that chunk, which may be fewer than those of the version: see state.lag.
func (r *replica) scalars(c *kintsugi.Commit, i int) kernels.Scalars {
	o, layout := c.Optimizer, r.cfg.Layout
	if r.lag != nil {
		own := r.cfg.Schedule.At(c.Step - r.lag[i])
		o.Correction1, o.Correction2 = own.Correction1, own.Correction2
	}
	return TensorScalars(o, layout, layout.Chunks[int(r.chunks.Lo)+i].Tensor)
}

// hand makes the step of chunk i, the values [lo, hi) of the shard, start from a given sum or write
// one.
func (k *kernelStep) hand(s *sum, c *cut, i, lo, hi int, given bool) {
	if k.From, k.given = nil, nil; !given {
		k.Update = s.chunk(c, i, lo, hi)
		return
	}
	if k.Operands, k.given = nil, s.named[i]; len(k.given) == 0 {
		k.From, k.given = s.chunk(c, i, lo, hi), nil
	}
}

// take adds an operand. Of several operands that assign a chunk, the last one counts. A worker that
// owns rows sends only those; an operand without values says nothing of the chunk.
func (k *kernelStep) take(o kernels.Operand) {
	switch {
	case k.Rule != kernels.Assign:
		k.Operands = append(k.Operands, o)
	case !kernels.Empty(o.Encoding, o.Data):
		k.Operands = append(k.Operands[:0], o)
	}
}

// run applies the step to chunk i, the values [lo, hi) of the shard. The operands are set. A chunk
// that no operand assigns stays as it is. If saved is not nil, the step also measures the distance
// from the saved values.
func (k *kernelStep) run(d kernels.Device, before, src, dst *version, saved *savedValues, i, lo, hi int) (kintsugi.Products, error) {
	if k.waited = 0; saved != nil {
		start := time.Now()
		saved.mu.RLock()
		k.waited = time.Since(start)
		defer saved.mu.RUnlock()
		at, err := saved.look(d, &k.scratch, i, lo, hi, dst.step)
		if err != nil {
			return kintsugi.Products{}, err
		}
		k.WantSaved, k.Saved = true, at
	}
	k.WantDot, k.Previous = false, nil
	switch {
	case before != nil:
		k.WantDot, k.Previous = true, before.params[lo:hi]
	case saved != nil: // the same product, with another displacement
		k.WantDot, k.Previous = true, k.Saved
	}
	k.Params, k.Next = src.params[lo:hi], dst.params[lo:hi]
	for i := range k.Rule.States() {
		k.State[i], k.NextState[i] = src.state[i][lo:hi], dst.state[i][lo:hi]
	}
	if k.Rule == kernels.Assign && len(k.Operands) == 0 && k.From == nil {
		keep := k.Step
		copy(keep.Update, keep.Params)
		keep.Update = nil
		keep.From, keep.Operands = keep.Params, nil
		p, err := d.Step(&keep)
		return productsOf(p, before != nil, true), err
	}
	p, err := k.fewOrAll(d)
	return productsOf(p, before != nil, false), err
}

// appendSum appends the sum that the step has written as a payload, if few values of it are not +0.
func (k *kernelStep) appendSum(dst []byte) []byte {
	switch {
	case k.wasFew:
		return k.few.AppendSum(dst)
	case k.Rule != kernels.Assign && k.Scale >= 0 && k.few.Choose(k.Operands, len(k.Update)):
		return k.few.AppendSpots(dst, k.Update)
	}
	return dst
}

// fewOrAll does the step on the values that are named, or on all.
func (k *kernelStep) fewOrAll(d kernels.Device) (p kernels.Products, err error) {
	if k.wasFew = false; k.mayBeFew {
		few := k.Step
		few.Update = nil
		if k.few.WantSum = k.Update != nil; k.given != nil {
			p, k.wasFew, err = k.few.StepFrom(d, &few, k.given)
		} else {
			p, k.wasFew, err = k.few.Step(d, &few)
		}
		if k.wasFew {
			return p, err
		}
	}
	if k.given != nil {
		k.from = slices.Grow(k.from[:0], len(k.Params))[:len(k.Params)]
		if err := kernels.Host.Decode(k.from, kernels.Sparse32, k.given); err != nil {
			return p, err
		}
		k.From = k.from
	}
	return d.Step(&k.Step)
}
