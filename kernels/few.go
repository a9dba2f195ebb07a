package kernels

import (
	"math"
	"math/bits"
	"slices"
)

// Spot is the number of values that [Few] takes together: as many as there are lanes, so that each
// value stays in its lane. The values of spot i begin at 16·i; the last spot of a chunk may have
// fewer.
const Spot = lanes

// Spots returns how many spots so many values have.
func Spots(values int) int { return (values + Spot - 1) / Spot }

// Few does steps of which the gradients name few values: it computes only the spots with named
// values. Where a batch touches some rows of a large table, a step then takes memory traffic for
// these rows and not for the table. The memory of a Few is used again by its next step. Only one
// goroutine may use it at a time.
type Few struct {
	// Spots are the spots that the newest step has computed, ascending.
	Spots []int32

	// WantSum asks for the scaled sum, which AppendSum then returns.
	WantSum bool

	chosen  []uint64 // a bit for each spot of the chunk
	runs    []Run
	arrays  [7][]float32
	values  [][]float32 // by operand
	compact Step
}

// few is the reciprocal of the share of spots up to which a step is done on them alone. BenchmarkFew
// takes some 0.6 of the time of the whole step at a twentieth; whoever keeps the other values in more
// than one array has to bring these up to date besides.
const few = 16

// Step does the step s on d if it leaves alone what is not named, and if little is named. Then it
// writes the named spots of Next, NextState and Copy, to the bits of [Device].Step, and returns the
// same by-products; the other spots stay as they are, where they ought to equal those of Params and
// State. Otherwise, done is false and nothing is written.
//
// A step leaves values alone that have no gradient if its rule is LazyAdam or, without weight decay,
// SGD or Adagrad. It is not done here if it wants Update, Broadcast, DotDisplacement or SquaredDistanceSaved,
// to which all values contribute.
func (f *Few) Step(d Device, s *Step) (p Products, done bool, err error) {
	if s.From != nil {
		return Products{}, false, nil
	}
	return f.step(d, s, s.Operands, nil)
}

// StepFrom is Step where the scaled sum is given, as AppendSum returned it. It takes the place of
// From; s has no operands.
func (f *Few) StepFrom(d Device, s *Step, sum []byte) (p Products, done bool, err error) {
	return f.step(d, s, []Operand{{Encoding: Sparse32, Data: sum}}, sum)
}

// step does the step with these operands or, if it is not nil, with the given sum, which is then that
// of the one operand.
func (f *Few) step(d Device, s *Step, operands []Operand, sum []byte) (p Products, done bool, err error) {
	if f.Spots = f.Spots[:0]; !s.leaves() {
		return Products{}, false, nil
	}
	s.check()
	if !f.Choose(operands, len(s.Params)) {
		return Products{}, false, nil
	}
	f.gather(s, operands)
	if sum != nil {
		f.compact.From, f.compact.Operands, f.compact.Update = f.compact.Operands[0].Values, nil, nil
	}
	if p, err = d.Step(&f.compact); err == nil {
		f.scatter(s)
	}
	return p, true, err
}

// AppendSum appends the scaled sum of the newest step, which wanted it, to dst: the Sparse32 payload
// that names all values of Spots, zeros too. The others are +0.
func (f *Few) AppendSum(dst []byte) []byte {
	dst, values := appendRuns(dst, f.named(len(f.compact.Update)))
	copy(values, Bytes(f.compact.Update))
	return dst
}

// AppendSpots appends the Sparse32 payload that names all values that x has in Spots to dst.
func (f *Few) AppendSpots(dst []byte, x []float32) []byte {
	last := len(f.Spots) - 1
	if last < 0 {
		return AppendRuns(dst, x, nil)
	}
	return AppendRuns(dst, x, f.named(last*Spot+min(Spot, len(x)-int(f.Spots[last])*Spot)))
}

// named returns Spots, which have so many values, as runs.
func (f *Few) named(values int) []Run {
	f.runs = f.runs[:0]
	for _, at := range f.Spots {
		lo, n := at*Spot, min(Spot, values)
		if values -= n; len(f.runs) > 0 && f.runs[len(f.runs)-1].Hi == lo {
			f.runs[len(f.runs)-1].Hi += int32(n)
		} else {
			f.runs = append(f.runs, Run{Lo: lo, Hi: lo + int32(n)})
		}
	}
	return f.runs
}

// leaves reports whether a step leaves alone values whose gradients are +0. That includes −0, and all
// by-products that it wants.
func (s *Step) leaves() bool {
	x := &s.Scalars
	if s.From != nil || s.Update != nil || s.Broadcast != nil || s.WantDot || s.WantSaved {
		return false
	}
	if !(s.Scale >= 0) || math.IsInf(float64(s.Scale), 0) {
		return false
	}
	switch {
	case s.Rule == LazyAdam:
		return true
	case !(x.LearningRate >= 0) || math.IsInf(float64(x.LearningRate), 0) || x.WeightDecay != 0:
		return false
	}
	return s.Rule == SGD || s.Rule == Adagrad && x.Epsilon > 0
}

// Choose sets Spots to those of n values that operands name. It returns false if these are not few, or
// an operand does not list its values.
func (f *Few) Choose(operands []Operand, n int) bool {
	f.Spots = f.Spots[:0]
	all, named := Spots(n), 0
	for i := range operands {
		if operands[i].check(i, n); !operands[i].Encoding.sparse() {
			return false
		}
		named = max(named, Named(operands[i].Encoding, operands[i].Data, n))
	}
	if few*named > all*Spot {
		return false
	}
	f.chosen = slices.Grow(f.chosen[:0], (all+63)/64)[:(all+63)/64]
	clear(f.chosen)
	left := all / few
	for i := range operands {
		for c := cursorOf(operands[i].Encoding, n, operands[i].Data); c.next < n; {
			run := c.run(n)
			for at := c.next / Spot; at <= (c.next+run-1)/Spot; at++ {
				if word, bit := &f.chosen[at/64], uint64(1)<<(at%64); *word&bit == 0 {
					if left--; left < 0 {
						return false
					}
					*word |= bit
				}
			}
			c.pass(run)
		}
	}
	for w, x := range f.chosen {
		for ; x != 0; x &= x - 1 {
			f.Spots = append(f.Spots, int32(64*w+bits.TrailingZeros64(x)))
		}
	}
	return true
}

// gather makes the step on the chosen spots alone, one after the other.
func (f *Few) gather(s *Step, operands []Operand) {
	n, size := len(s.Params), 0
	if k := len(f.Spots); k > 0 {
		size = (k-1)*Spot + min(Spot, n-int(f.Spots[k-1])*Spot)
	}
	array := func(i int) []float32 {
		f.arrays[i] = slices.Grow(f.arrays[i][:0], size)[:size]
		return f.arrays[i]
	}
	f.compact = Step{
		Rule: s.Rule, Scalars: s.Scalars, Operands: f.compact.Operands[:0], Scale: s.Scale,
		Params: f.take(array(0), s.Params), Next: array(1), WantDisplacement: s.WantDisplacement,
	}
	for i := range s.Rule.States() {
		f.compact.State[i], f.compact.NextState[i] = f.take(array(2+i), s.State[i]), array(4+i)
	}
	if f.WantSum {
		f.compact.Update = array(6)
	}
	for i := range operands {
		o := &operands[i]
		if len(f.values) == i {
			f.values = append(f.values, nil)
		}
		x := slices.Grow(f.values[i][:0], size)[:size]
		clear(x)
		at := 0
		for c := cursorOf(o.Encoding, n, o.Data); c.next < n; {
			for int(f.Spots[at]) != c.next/Spot {
				at++
			}
			run := c.run((c.next/Spot + 1) * Spot)
			c.read(x[at*Spot+c.next%Spot:][:run])
			c.pass(run)
		}
		f.values[i] = x
		f.compact.Operands = append(f.compact.Operands, Operand{Weight: o.Weight, Values: x})
	}
}

// take sets dst to the chosen spots of x.
func (f *Few) take(dst, x []float32) []float32 {
	for i, at := range f.Spots {
		lo := int(at) * Spot
		copy(dst[i*Spot:], x[lo:min(lo+Spot, len(x))])
	}
	return dst
}

// scatter writes the results to the chosen spots of the chunk.
func (f *Few) scatter(s *Step) {
	put := func(dst, x []float32) {
		for i, at := range f.Spots {
			copy(dst[int(at)*Spot:], x[i*Spot:min((i+1)*Spot, len(x))])
		}
	}
	put(s.Next, f.compact.Next)
	if s.Copy != nil {
		put(s.Copy, f.compact.Next)
	}
	for i := range s.Rule.States() {
		put(s.NextState[i], f.compact.NextState[i])
	}
}
