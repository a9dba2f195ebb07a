package kernels

import (
	"encoding/binary"
	"math"
)

// Host is the reference device: plain Go, for any processor.
var Host Device = host{}

type host struct{}

func (host) Name() string { return "host" }

func (host) Step(s *Step) (Products, error) {
	s.check()
	var t sums
	s.span(0, len(s.Params), &t)
	return t.products(s), nil
}

func (host) SquaredNorm(x []float32) (float64, error) {
	var lane [lanes]float64
	addSquares(&lane, x)
	return fold(&lane), nil
}

func (host) SquaredDistance(x, y []float32) (float64, error) {
	checkPair(x, y)
	var lane [lanes]float64
	addDistances(&lane, x, y)
	return fold(&lane), nil
}

func (host) Finite(x []float32) (int, error) { return firstNotFinite(x), nil }

func (host) AddRows(dst []float32, rowLen int, rows []int32, values []float32) error {
	if err := checkRows(dst, rowLen, rows, values); err != nil {
		return err
	}
	for i, r := range rows {
		d, v := dst[int(r)*rowLen:][:rowLen], values[i*rowLen:][:rowLen]
		for j := range d {
			d[j] += v[j]
		}
	}
	return nil
}

func (host) AssignRows(dst []float32, rowLen int, rows []int32, values []float32) error {
	return assignRows(dst, rowLen, rows, values)
}

// firstNotFinite returns the index of the first NaN or infinity in x, or -1.
func firstNotFinite(x []float32) int {
	const exponent = 0x7f800000
	for i, v := range x {
		if math.Float32bits(v)&exponent == exponent {
			return i
		}
	}
	return -1
}

// tile is the number of values that go through the phases of a step at a time, so that their sum
// stays in the first-level cache between phases. It is a multiple of lanes; otherwise values would
// end up in other lanes.
const tile = 512

// span does the step on values [lo, hi) and adds its by-products to t. lo is a multiple of lanes.
func (s *Step) span(lo, hi int, t *sums) {
	if lo == hi {
		return
	}
	c := s.coefficients()
	given := s.given()
	sums, done := newSummer(s, lo)
	defer done()
	var sum, moved [tile]float32
	for ; lo < hi; lo += tile {
		end := min(lo+tile, hi)
		g := sum[:end-lo]
		if given != nil {
			g = given[lo:end]
		} else {
			sums.tile(g, lo)
		}
		if s.Update != nil {
			copy(s.Update[lo:end], g)
		}
		addSquares(&t.squaredNorm, g)
		params, next := s.Params[lo:end], s.Next[lo:end]
		if s.WantDot { // before Next is written: it may be the memory of Previous
			addDot(&t.dotDisplacement, g, params, s.Previous[lo:end])
		}
		if s.WantDisplacement {
			w := moved[:end-lo] // Next may be the memory of Params, which the distance still needs
			s.apply(&c, g, params, w, lo)
			addDistances(&t.squaredDisplacement, w, params)
			copy(next, w)
		} else {
			s.apply(&c, g, params, next, lo)
		}
		if s.Copy != nil {
			copy(s.Copy[lo:end], next)
		}
		if s.WantSaved {
			addDistances(&t.squaredDistanceSaved, next, s.Saved[lo:end])
		}
		if s.Broadcast != nil {
			broadcast(s.Broadcast[2*lo:2*end], next)
		}
	}
}

// broadcast writes x in BF16.
func broadcast(dst []byte, x []float32) {
	for i, v := range x {
		binary.LittleEndian.PutUint16(dst[2*i:], toBF16(v))
	}
}

// toBF16 returns v in BF16. v may be infinite or NaN.
func toBF16(v float32) uint16 {
	switch {
	case v != v:
		return 0x7fc0
	case math.IsInf(float64(v), 0):
		return uint16(math.Float32bits(v) >> 16)
	}
	return roundBF16(v)
}

// apply computes the parameters after the step into next, and the states from lo on into NextState.
// All slices but the states have equal lengths; next may be params.
func (s *Step) apply(c *coefficients, g, params, next []float32, lo int) {
	var m, v, nextM, nextV []float32
	if s.Rule.States() > 0 {
		m, nextM = s.State[0][lo:][:len(g)], s.NextState[0][lo:][:len(g)]
	}
	if s.Rule.States() > 1 {
		v, nextV = s.State[1][lo:][:len(g)], s.NextState[1][lo:][:len(g)]
	}
	switch s.Rule {
	case SGD:
		sgd(c, g, params, next)
	case Momentum:
		momentum(c, g, params, next, m, nextM)
	case Nesterov:
		nesterov(c, g, params, next, m, nextM)
	case Adam:
		adam(c, g, params, next, m, nextM, v, nextV)
	case AdamW:
		adamW(c, g, params, next, m, nextM, v, nextV)
	case LazyAdam:
		lazyAdam(c, g, params, next, m, nextM, v, nextV)
	case Adagrad:
		adagrad(c, g, params, next, m, nextM)
	case Add:
		for i, w := range params {
			next[i] = w + g[i]
		}
	case Assign:
		copy(next, g)
	}
}

func sgd(c *coefficients, g, params, next []float32) {
	g, next = g[:len(params)], next[:len(params)]
	for i, w := range params {
		h := g[i] + float32(c.decay*w)
		next[i] = w - float32(c.rate*h)
	}
}

func momentum(c *coefficients, g, params, next, m, nextM []float32) {
	g, next = g[:len(params)], next[:len(params)]
	m, nextM = m[:len(params)], nextM[:len(params)]
	for i, w := range params {
		h := g[i] + float32(c.decay*w)
		m1 := float32(c.momentum*m[i]) + h
		nextM[i] = m1
		next[i] = w - float32(c.rate*m1)
	}
}

func nesterov(c *coefficients, g, params, next, m, nextM []float32) {
	g, next = g[:len(params)], next[:len(params)]
	m, nextM = m[:len(params)], nextM[:len(params)]
	for i, w := range params {
		h := g[i] + float32(c.decay*w)
		m1 := float32(c.momentum*m[i]) + h
		nextM[i] = m1
		h += float32(c.momentum * m1)
		next[i] = w - float32(c.rate*h)
	}
}

func adam(c *coefficients, g, params, next, m, nextM, v, nextV []float32) {
	g, next = g[:len(params)], next[:len(params)]
	m, nextM, v, nextV = m[:len(params)], nextM[:len(params)], v[:len(params)], nextV[:len(params)]
	for i, w := range params {
		h := g[i] + float32(c.decay*w)
		m1, v1 := c.moments(h, m[i], v[i])
		nextM[i], nextV[i] = m1, v1
		next[i] = w - c.adamStep(m1, v1)
	}
}

func adamW(c *coefficients, g, params, next, m, nextM, v, nextV []float32) {
	g, next = g[:len(params)], next[:len(params)]
	m, nextM, v, nextV = m[:len(params)], nextM[:len(params)], v[:len(params)], nextV[:len(params)]
	for i, w := range params {
		m1, v1 := c.moments(g[i], m[i], v[i])
		nextM[i], nextV[i] = m1, v1
		next[i] = float32(c.weightKept*w) - c.adamStep(m1, v1)
	}
}

func lazyAdam(c *coefficients, g, params, next, m, nextM, v, nextV []float32) {
	g, next = g[:len(params)], next[:len(params)]
	m, nextM, v, nextV = m[:len(params)], nextM[:len(params)], v[:len(params)], nextV[:len(params)]
	for i, w := range params {
		if g[i] == 0 {
			next[i], nextM[i], nextV[i] = w, m[i], v[i]
			continue
		}
		h := g[i] + float32(c.decay*w)
		m1, v1 := c.moments(h, m[i], v[i])
		nextM[i], nextV[i] = m1, v1
		next[i] = w - c.adamStep(m1, v1)
	}
}

func adagrad(c *coefficients, g, params, next, m, nextM []float32) {
	g, next = g[:len(params)], next[:len(params)]
	m, nextM = m[:len(params)], nextM[:len(params)]
	for i, w := range params {
		h := g[i] + float32(c.decay*w)
		m1 := m[i] + float32(h*h)
		nextM[i] = m1
		next[i] = w - float32(c.rate*h)/(sqrt(m1)+c.epsilon)
	}
}

// moments returns Adam's state after the gradient h.
func (c *coefficients) moments(h, m, v float32) (m1, v1 float32) {
	m1 = float32(c.beta1*m) + float32(c.rest1*h)
	v1 = float32(c.beta2*v) + float32(c.rest2*float32(h*h))
	return m1, v1
}

// adamStep returns what Adam subtracts from the parameter.
func (c *coefficients) adamStep(m, v float32) float32 {
	return float32(c.alpha*m) / (float32(sqrt(v)*c.rho) + c.epsilon)
}

// sqrt is correctly rounded: float64 has more than twice the digits of float32, so rounding twice
// does no harm. Compilers use the float32 instruction for it.
func sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }
