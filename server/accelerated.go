package server

import (
	"fmt"
	"slices"
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// This file is about shards on an accelerator. The arrays of versions, sums and saved values live
// there, and gradients are passed on to it as they land. The host has a copy of a version's
// parameters, which is fetched after each step because workers read them, and of its optimizer
// state once somebody asks for it.

// far is the part of a version that lives on an accelerator.
type far struct {
	params kernels.Array
	state  [2]kernels.Array // as many as the rule has

	mu     sync.Mutex
	opened bool // the host has arrays for the state
	here   bool // and they have the accelerator's values
}

// newArrays returns the allocator of a shard's arrays on the accelerator, nil if they live on the
// host.
func newArrays(cfg *Config, chunks kintsugi.ChunkRange) kernels.Arrays {
	if cfg.Accelerator == nil {
		return nil
	}
	var lengths []int
	for _, c := range cfg.Layout.Chunks[chunks.Lo:chunks.Hi] {
		lengths = append(lengths, c.Len())
	}
	return cfg.Accelerator.NewArrays(lengths)
}

// newFarVersion returns a version on the accelerator, with zeros as its parameters on the host.
func newFarVersion(a kernels.Arrays, states int) *version {
	f := &far{params: a.NewArray()}
	for i := range states {
		f.state[i] = a.NewArray()
	}
	x := &version{params: f.params.Host(), states: states, bank: -1, far: f}
	clear(x.params)
	return x
}

// open makes the host's arrays of the state. They are zeros the first time.
func (f *far) open(x *version) {
	if f.opened {
		return
	}
	f.opened = true
	for i, a := range f.state {
		if a != nil {
			x.state[i] = a.Host()
			clear(x.state[i])
		}
	}
}

// fetchState copies the state of a complete version from the accelerator to the host.
func (x *version) fetchState() error {
	f := x.far
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open(x)
	for _, a := range f.state {
		if a != nil && !f.here {
			if err := a.Fetch(); err != nil {
				return fmt.Errorf("fetch the state of version %d: %w", x.step, err)
			}
		}
	}
	f.here = true
	return nil
}

// send copies a version that was filled on the host to the accelerator.
func (x *version) send() error {
	f := x.far
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open(x)
	for _, a := range []kernels.Array{f.params, f.state[0], f.state[1]} {
		if a != nil {
			if err := a.Send(); err != nil {
				return fmt.Errorf("send version %d: %w", x.step, err)
			}
		}
	}
	f.here = true
	return nil
}

// land passes the payload of chunk i on to the accelerator, if there is one. An error means that
// the device is lost.
func (h *held) land(i int, e kernels.Encoding, data []byte) error {
	if h.landing == nil {
		return nil
	}
	if err := h.landing.Put(i, e, data); err != nil {
		return lostDevice{err}
	}
	return nil
}

// lostDevice is an error after which this process cannot go on.
type lostDevice struct{ error }

func (l lostDevice) Unwrap() error { return l.error }

// stepFar applies a step where the arrays live on an accelerator. It fetches the parameters of dst.
func (r *replica) stepFar(c kintsugi.Commit, before, src, dst *version, counted []*held, total *sum) ([]kintsugi.Products, error) {
	k := newKernelStep(c)
	s := kernels.ArrayStep{
		Rule: k.Rule, Scale: k.Scale, Chunks: make([]kernels.ArrayChunk, r.chunks.Hi-r.chunks.Lo),
		Params: src.far.params, Next: dst.far.params, State: src.far.state, NextState: dst.far.state, WantDisplacement: k.WantDisplacement,
	}
	saved := r.savedFor(c)
	if saved != nil {
		saved.mu.RLock()
		defer saved.mu.RUnlock()
		s.WantSaved, s.Saved = true, saved.array
	}
	switch {
	case before != nil:
		s.WantDot, s.Previous = true, before.far.params
	case saved != nil: // the same product, with another displacement
		s.WantDot, s.Previous = true, saved.array
	}
	switch {
	case total == nil:
	case r.at > 0:
		if err := total.array.Send(); err != nil {
			return nil, err
		}
		s.From = total.array
	default:
		s.Update = total.array
	}
	for i := range s.Chunks {
		r.chunkFar(&s, i, c, counted)
	}
	found, err := r.versions.arrays.Step(&s)
	if err != nil {
		return nil, err
	}
	if s.Update != nil {
		if err := total.array.Fetch(); err != nil {
			return nil, err
		}
		for i := range s.Chunks {
			if err := total.chunkMade(&r.sums.cut, i); err != nil {
				return nil, err
			}
		}
	}
	products := make([]kintsugi.Products, len(found))
	for i, p := range found {
		products[i] = productsOf(p, before != nil, s.Chunks[i].Keep)
	}
	return products, dst.far.params.Fetch()
}

// chunkFar fills in what a step does with chunk i.
func (r *replica) chunkFar(s *kernels.ArrayStep, i int, c kintsugi.Commit, counted []*held) {
	k := &s.Chunks[i]
	k.Scalars = r.scalars(&c, i)
	if s.From != nil {
		return
	}
	for j, h := range counted {
		o := kernels.LandedOperand{Weight: c.Counted[j].Weight, Landing: h.landing}
		switch {
		case s.Rule != kernels.Assign:
			k.Operands = append(k.Operands, o)
		case !kernels.Empty(h.chunks[i].encoding, h.chunks[i].data): // the last one counts, see kernelStep.take
			k.Operands = append(k.Operands[:0], o)
		}
	}
	k.Keep = s.Rule == kernels.Assign && len(k.Operands) == 0
}

// productsOf converts the by-products of a chunk. The kernel's dot product is along the
// displacement of the step before, or else along the distance from the saved values. A chunk that
// stays as it is has no gradient, and so no norm.
func productsOf(p kernels.Products, before, kept bool) kintsugi.Products {
	if kept {
		return kintsugi.Products{SquaredSaved: p.SquaredDistanceSaved}
	}
	x := kintsugi.Products{SquaredNorm: p.SquaredNorm, SquaredDisplacement: p.SquaredDisplacement, SquaredSaved: p.SquaredDistanceSaved}
	if before {
		x.DotDisplacement = p.DotDisplacement
	} else {
		x.DotSaved = p.DotDisplacement
	}
	return x
}

// copySaved makes the given chunks of a version the saved values on the accelerator.
func (r *replica) copySaved(x *version, chunks []kintsugi.ChunkID) error {
	list := make([]int, len(chunks))
	for i, id := range chunks {
		list[i] = int(id - r.chunks.Lo)
	}
	slices.Sort(list)
	r.saved.mu.Lock()
	defer r.saved.mu.Unlock()
	return r.versions.arrays.Copy(r.saved.array, x.far.params, list)
}
