package kernelstest

import (
	"slices"
	"sync"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Apart returns an accelerator that computes on d, a device of the host: the simplest possible one.
// It keeps the two sides of an array in separate memory, and fills the host's side with guard
// values until it is written or fetched. So a caller that forgets to send or to fetch is found out.
func Apart(d kernels.Device) kernels.Accelerator { return apart{d} }

type apart struct{ kernels.Device }

func (a apart) NewArrays(lengths []int) kernels.Arrays {
	x := &apartArrays{d: a.Device, at: []int{0}}
	for _, n := range lengths {
		x.at = append(x.at, x.at[len(x.at)-1]+n)
	}
	return x
}

// apartArrays are arrays whose chunk i holds the values [at[i], at[i+1]).
type apartArrays struct {
	d  kernels.Device
	at []int
}

func (x *apartArrays) values() int { return x.at[len(x.at)-1] }

type apartArray struct {
	far  []float32
	once sync.Once
	host []float32
}

func guarded(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = guard
	}
	return x
}

func (x *apartArrays) NewArray() kernels.Array { return &apartArray{far: guarded(x.values())} }

func (a *apartArray) Host() []float32 {
	a.once.Do(func() { a.host = guarded(len(a.far)) })
	return a.host
}

func (a *apartArray) Send() error  { copy(a.far, a.Host()); return nil }
func (a *apartArray) Fetch() error { copy(a.Host(), a.far); return nil }

// apartLanding holds the payloads, by chunk.
type apartLanding struct {
	x        *apartArrays
	operands []kernels.Operand
}

func (x *apartArrays) NewLanding() kernels.Landing {
	return &apartLanding{x: x, operands: make([]kernels.Operand, len(x.at)-1)}
}

func (l *apartLanding) Put(chunk int, e kernels.Encoding, data []byte) error {
	o := kernels.Operand{Encoding: e, Data: slices.Clone(data)}
	if e == kernels.FP32 {
		o.Values, o.Data = make([]float32, len(data)/4), nil
		copy(kernels.Bytes(o.Values), data)
	}
	l.operands[chunk] = o
	return nil
}

func (l *apartLanding) Clear() { clear(l.operands) }

func (x *apartArrays) Copy(dst, src kernels.Array, chunks []int) error {
	for _, i := range chunks {
		copy(x.of(dst, i), x.of(src, i))
	}
	return nil
}

// of returns chunk i of an array, or nil if the array is nil.
func (x *apartArrays) of(a kernels.Array, i int) []float32 {
	if a == nil {
		return nil
	}
	return a.(*apartArray).far[x.at[i]:x.at[i+1]]
}

func (x *apartArrays) Step(s *kernels.ArrayStep) ([]kernels.Products, error) {
	s.Check(len(x.at) - 1)
	products := make([]kernels.Products, len(s.Chunks))
	for i, c := range s.Chunks {
		one := kernels.Step{
			Rule: s.Rule, Scalars: c.Scalars, Scale: s.Scale, From: x.of(s.From, i), Params: x.of(s.Params, i), Next: x.of(s.Next, i),
			Update: x.of(s.Update, i), Previous: x.of(s.Previous, i), Saved: x.of(s.Saved, i),
			WantDot: s.WantDot, WantDisplacement: s.WantDisplacement, WantSaved: s.WantSaved,
		}
		for j := range s.Rule.States() {
			one.State[j], one.NextState[j] = x.of(s.State[j], i), x.of(s.NextState[j], i)
		}
		for _, o := range c.Operands {
			p := o.Landing.(*apartLanding).operands[i]
			p.Weight = o.Weight
			one.Operands = append(one.Operands, p)
		}
		if c.Keep {
			copy(one.Update, one.Params)
			one.From, one.Update = one.Params, nil
		}
		var err error
		if products[i], err = x.d.Step(&one); err != nil {
			return nil, err
		}
	}
	return products, nil
}
