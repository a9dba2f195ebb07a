package kernels

import (
	"slices"
	"sync"
)

// summer sums the operands of a step tile by tile, in the order of the tiles.
type summer struct {
	step    *Step
	cursors []cursor // one for each sparse operand, in the order of the operands
}

var cursors = sync.Pool{New: func() any { return new([]cursor) }}

// newSummer returns a summer that starts at value lo. The caller calls done after the last tile.
func newSummer(s *Step, lo int) (_ summer, done func()) {
	m, n := summer{step: s}, len(s.Params)
	if !slices.ContainsFunc(s.Operands, func(o Operand) bool { return o.Encoding.sparse() }) {
		return m, func() {}
	}
	p := cursors.Get().(*[]cursor)
	m.cursors = (*p)[:0]
	for _, o := range s.Operands {
		if o.Encoding.sparse() {
			c := cursorOf(o.Encoding, n, o.Data)
			c.seek(lo)
			m.cursors = append(m.cursors, c)
		}
	}
	all := m.cursors
	return m, func() {
		clear(all) // so that the pool does not keep payloads alive
		*p = all
		cursors.Put(p)
	}
}

// tile sets g to the scaled sum of the operands' values from lo on. For Assign it sets g to the
// values of the operand.
func (m *summer) tile(g []float32, lo int) {
	s := m.step
	clear(g)
	if s.Rule == Assign {
		m.assign(g, lo)
		return
	}
	cursors := m.cursors
	for ops := s.Operands; len(ops) > 0; {
		if len(ops) >= 4 && ops[0].Encoding|ops[1].Encoding|ops[2].Encoding|ops[3].Encoding == FP32 {
			addFour(g, (*[4]Operand)(ops), lo)
			ops = ops[4:]
			continue
		}
		if ops[0].Encoding.sparse() {
			cursors[0].add(g, lo, ops[0].Weight)
			cursors = cursors[1:]
		} else {
			ops[0].add(g, lo, len(s.Params))
		}
		ops = ops[1:]
	}
	for i := range g {
		g[i] *= s.Scale
	}
}

// assign sets g, which is zero, to the values of the step's single operand.
func (m *summer) assign(g []float32, lo int) {
	if o := &m.step.Operands[0]; o.Encoding.sparse() {
		m.cursors[0].assign(g, lo)
	} else {
		decode(g, o.Encoding, o.Data, len(m.step.Params), lo)
	}
}

// addFour adds four arrays of float32 at once, so that g is loaded and stored once and not four
// times.
func addFour(g []float32, ops *[4]Operand, lo int) {
	w0, w1, w2, w3 := ops[0].Weight, ops[1].Weight, ops[2].Weight, ops[3].Weight
	x0, x1 := ops[0].Values[lo:][:len(g)], ops[1].Values[lo:][:len(g)]
	x2, x3 := ops[2].Values[lo:][:len(g)], ops[3].Values[lo:][:len(g)]
	for i := range g {
		a := g[i] + float32(w0*x0[i])
		a += float32(w1 * x1[i])
		a += float32(w2 * x2[i])
		g[i] = a + float32(w3*x3[i])
	}
}

// add adds the dense operand, which has a payload of n values, to g. g starts at value lo.
func (o *Operand) add(g []float32, lo, n int) {
	var decoded [tile]float32
	x := decoded[:len(g)]
	if o.Encoding == FP32 {
		x = o.Values[lo:][:len(g)]
	} else {
		decode(x, o.Encoding, o.Data, n, lo)
	}
	w := o.Weight
	for i := range g {
		g[i] += float32(w * x[i])
	}
}
