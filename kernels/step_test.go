package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// The obvious version of a step: one element at a time, with a function for each operation that
// rounds to float32. float64 has more than twice the digits of float32, so computing in it and
// rounding again gives the correctly rounded result, and nothing can be fused across the calls.

func add(x, y float32) float32 { return float32(float64(x) + float64(y)) }
func sub(x, y float32) float32 { return float32(float64(x) - float64(y)) }
func mul(x, y float32) float32 { return float32(float64(x) * float64(y)) }
func div(x, y float32) float32 { return float32(float64(x) / float64(y)) }
func root(x float32) float32   { return float32(math.Sqrt(float64(x))) }

type element struct{ w, m, v float32 }

func scaledSum(s *kernels.Step, i int) float32 {
	if s.From != nil {
		return s.From[i]
	}
	if s.Rule == kernels.Assign {
		return s.Operands[0].Values[i]
	}
	var acc float32
	for _, o := range s.Operands {
		acc = add(acc, mul(o.Weight, o.Values[i]))
	}
	return mul(acc, s.Scale)
}

func obvious(s *kernels.Step, g float32, e element) element {
	c := s.Scalars
	h := add(g, mul(c.WeightDecay, e.w))
	moments := func(h float32) {
		e.m = add(mul(c.Beta1, e.m), mul(sub(1, c.Beta1), h))
		e.v = add(mul(c.Beta2, e.v), mul(sub(1, c.Beta2), mul(h, h)))
	}
	quotient := func() float32 {
		above := mul(div(c.LearningRate, c.Correction1), e.m)
		return div(above, add(mul(root(e.v), div(1, root(c.Correction2))), c.Epsilon))
	}
	switch s.Rule {
	case kernels.SGD:
		e.w = sub(e.w, mul(c.LearningRate, h))
	case kernels.Momentum:
		e.m = add(mul(c.Momentum, e.m), h)
		e.w = sub(e.w, mul(c.LearningRate, e.m))
	case kernels.Nesterov:
		e.m = add(mul(c.Momentum, e.m), h)
		e.w = sub(e.w, mul(c.LearningRate, add(h, mul(c.Momentum, e.m))))
	case kernels.Adam:
		moments(h)
		e.w = sub(e.w, quotient())
	case kernels.AdamW:
		moments(g)
		e.w = sub(mul(sub(1, mul(c.LearningRate, c.WeightDecay)), e.w), quotient())
	case kernels.LazyAdam:
		if g != 0 {
			moments(h)
			e.w = sub(e.w, quotient())
		}
	case kernels.Adagrad:
		e.m = add(e.m, mul(h, h))
		e.w = sub(e.w, div(mul(c.LearningRate, h), add(root(e.m), c.Epsilon)))
	case kernels.Add:
		e.w = add(e.w, g)
	case kernels.Assign:
		e.w = g
	}
	return e
}

// laneSum is the sum of term(i) in 16 lanes, and the tree over these, written out.
func laneSum(n int, term func(i int) float64) float64 {
	var l [16]float64
	for lane := range 16 {
		for i := lane; i < n; i += 16 {
			l[lane] += term(i)
		}
	}
	q := func(i int) float64 { return (l[i] + l[i+8]) + (l[i+4] + l[i+12]) }
	return (q(0) + q(2)) + (q(1) + q(3))
}

func values(rng *rand.Rand, n int, odd bool) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
		if odd && rng.IntN(4) == 0 {
			x[i] = math.Float32frombits(rng.Uint32())
		}
		if odd && rng.IntN(4) == 0 {
			x[i] *= 1e-39
		}
	}
	return x
}

func newStep(rule kernels.Rule, n, operands int, rng *rand.Rand, odd bool) *kernels.Step {
	s := &kernels.Step{
		Rule:  rule,
		Scale: 0.37,
		Scalars: kernels.Scalars{
			LearningRate: 0.017, Momentum: 0.91, Beta1: 0.88, Beta2: 0.997, Epsilon: 1e-7, WeightDecay: 0.013,
			Correction1: 0.41, Correction2: 0.013,
		},
		Params: values(rng, n, odd), Next: make([]float32, n), Update: make([]float32, n), Previous: values(rng, n, odd), Saved: values(rng, n, odd),
		Broadcast: make([]byte, 2*n),
		WantDot:   true, WantDisplacement: true, WantSaved: true,
	}
	for range operands {
		s.Operands = append(s.Operands, kernels.Operand{Weight: rng.Float32() * 3, Values: values(rng, n, odd)})
	}
	for i := range n {
		if rule == kernels.LazyAdam && rng.IntN(3) == 0 { // else it is Adam
			for _, o := range s.Operands {
				o.Values[i] = float32(math.Copysign(0, rng.Float64()-0.5))
			}
		}
	}
	for j := range rule.States() {
		s.State[j], s.NextState[j] = values(rng, n, odd), make([]float32, n)
	}
	return s
}

func sameBits(x, y float32) bool {
	return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y
}

// nearest reports whether b is x in bf16: no neighbour is nearer, and of two equally near ones it
// is the even one.
func nearest(x, b float32) bool {
	bits := math.Float32bits(b)
	if x != x {
		return bits == 0x7fc00000
	}
	if math.IsInf(float64(x), 0) {
		return sameBits(x, b) && bits&0xffff == 0
	}
	if bits&0xffff != 0 || math.IsInf(float64(b), 0) || math.Signbit(float64(x)) != math.Signbit(float64(b)) {
		return false
	}
	distance := math.Abs(float64(x) - float64(b))
	for _, step := range []uint32{1 << 16, ^uint32(0xffff)} {
		if bits<<1 == 0 && step != 1<<16 {
			continue // nothing is nearer to zero
		}
		other := math.Float32frombits(bits + step)
		if math.IsInf(float64(other), 0) {
			continue
		}
		d := math.Abs(float64(x) - float64(other))
		if d < distance || d == distance && bits>>16&1 == 1 {
			return false
		}
	}
	return true
}

func sameBits64(x, y float64) bool {
	return math.Float64bits(x) == math.Float64bits(y) || x != x && y != y
}

func TestHostDoesTheOperationsOfTheFormulasInTheirOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for rule := kernels.SGD; rule <= kernels.LazyAdam; rule++ {
		for _, n := range []int{0, 1, 15, 16, 17, 31, 512, 513, 1600} {
			for _, k := range []int{0, 1, 2, 3, 4, 5, 8, 11, 65} {
				if rule == kernels.Assign {
					k = 1
				}
				for _, odd := range []bool{false, true} {
					s := newStep(rule, n, k, rng, odd)
					products, err := kernels.Host.Step(s)
					if err != nil {
						t.Fatal(err)
					}
					checkObvious(t, s, products)
				}
			}
		}
	}
}

func checkObvious(t *testing.T, s *kernels.Step, products kernels.Products) {
	t.Helper()
	n := len(s.Params)
	for i := range n {
		e := element{w: s.Params[i]}
		for j, p := range []*float32{&e.m, &e.v}[:s.Rule.States()] {
			*p = s.State[j][i]
		}
		g := scaledSum(s, i)
		e = obvious(s, g, e)
		ok := sameBits(s.Next[i], e.w) && sameBits(s.Update[i], g) && nearest(s.Next[i], math.Float32frombits(uint32(s.Broadcast[2*i])<<16|uint32(s.Broadcast[2*i+1])<<24))
		for j, want := range []float32{e.m, e.v}[:s.Rule.States()] {
			ok = ok && sameBits(s.NextState[j][i], want)
		}
		if !ok {
			t.Fatalf("%v of %d operands, value %d of %d: next %v update %v, want %+v and %v", s.Rule, len(s.Operands), i, n, s.Next[i], s.Update[i], e, g)
		}
	}
	want := kernels.Products{
		SquaredNorm: laneSum(n, func(i int) float64 { return float64(s.Update[i]) * float64(s.Update[i]) }),
		DotDisplacement: laneSum(n, func(i int) float64 {
			return float64(s.Update[i]) * float64(sub(s.Params[i], s.Previous[i]))
		}),
		SquaredDisplacement: laneSum(n, func(i int) float64 {
			d := float64(sub(s.Next[i], s.Params[i]))
			return d * d
		}),
	}
	want.SquaredDistanceSaved = laneSum(n, func(i int) float64 {
		d := float64(sub(s.Next[i], s.Saved[i]))
		return d * d
	})
	if !sameBits64(products.SquaredDistanceSaved, want.SquaredDistanceSaved) || !sameBits64(products.SquaredNorm, want.SquaredNorm) || !sameBits64(products.DotDisplacement, want.DotDisplacement) ||
		!sameBits64(products.SquaredDisplacement, want.SquaredDisplacement) {
		t.Fatalf("%v of %d values: products %+v, want %+v", s.Rule, n, products, want)
	}
}

// The rules are the well-known ones, as PyTorch has them, up to rounding.
func TestRulesFollowTheTextbook(t *testing.T) {
	const steps, rate, mu, beta1, beta2, epsilon, decay = 40, 0.05, 0.9, 0.9, 0.99, 1e-8, 0.1
	for _, rule := range []kernels.Rule{kernels.SGD, kernels.Momentum, kernels.Nesterov, kernels.Adam, kernels.AdamW, kernels.Adagrad, kernels.LazyAdam} {
		w, m, v := 1.0, 0.0, 0.0 // of the textbook
		params := []float32{1}
		var state [2][]float32
		for j := range rule.States() {
			state[j] = []float32{0}
		}
		for step := 1; step <= steps; step++ {
			g := 2 * (w - 0.3)
			if rule == kernels.LazyAdam && step%3 == 0 {
				g = 0
			}
			correction1, correction2 := 1-math.Pow(beta1, float64(step)), 1-math.Pow(beta2, float64(step))
			h := g + decay*w
			switch rule {
			case kernels.SGD:
				w -= rate * h
			case kernels.Momentum:
				m = mu*m + h
				w -= rate * m
			case kernels.Nesterov:
				m = mu*m + h
				w -= rate * (h + mu*m)
			case kernels.Adagrad:
				m += h * h
				w -= rate * h / (math.Sqrt(m) + epsilon)
			case kernels.AdamW:
				w *= 1 - rate*decay
				h = g
				fallthrough
			case kernels.Adam, kernels.LazyAdam:
				if rule == kernels.LazyAdam && g == 0 {
					break
				}
				m = beta1*m + (1-beta1)*h
				v = beta2*v + (1-beta2)*h*h
				w -= rate / correction1 * m / (math.Sqrt(v)/math.Sqrt(correction2) + epsilon)
			}
			kernels.Best().Step(&kernels.Step{
				Rule: rule, Scale: 0.5,
				Scalars: kernels.Scalars{
					LearningRate: rate, Momentum: mu, Beta1: beta1, Beta2: beta2, Epsilon: epsilon, WeightDecay: decay,
					Correction1: float32(correction1), Correction2: float32(correction2),
				},
				Operands: []kernels.Operand{{Weight: 1, Values: []float32{float32(g)}}, {Weight: 1, Values: []float32{float32(g)}}},
				Params:   params, Next: params, State: state, NextState: state,
			})
			if d := math.Abs(float64(params[0]) - w); d > 1e-5 {
				t.Fatalf("%v: after step %d the parameter is %v, the textbook has %v", rule, step, params[0], w)
			}
		}
	}
}

func TestSquaredNormAndDistanceAreThoseOfTheLanes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 1, 16, 100, 5000} {
		x, y := values(rng, n, false), values(rng, n, false)
		if got, want := kernels.SquaredNorm(x), laneSum(n, func(i int) float64 { return float64(x[i]) * float64(x[i]) }); got != want {
			t.Errorf("SquaredNorm of %d values is %v, want %v", n, got, want)
		}
		got, want := kernels.SquaredDistance(x, y), laneSum(n, func(i int) float64 {
			d := float64(sub(x[i], y[i]))
			return d * d
		})
		if got != want {
			t.Errorf("SquaredDistance of %d values is %v, want %v", n, got, want)
		}
	}
}

func TestDevicesHaveNames(t *testing.T) {
	for _, d := range kernels.Devices() {
		if got, err := kernels.ByName(d.Name()); err != nil || got != d {
			t.Errorf("ByName(%q) is %v, %v", d.Name(), got, err)
		}
	}
	if _, err := kernels.ByName("abacus"); err == nil {
		t.Error("there is a device abacus")
	}
	if kernels.Devices()[0] != kernels.Host {
		t.Error("Host is not the first device")
	}
}

func ExampleDevice() {
	params := []float32{1, 2, 3}
	products, err := kernels.Best().Step(&kernels.Step{
		Rule:    kernels.SGD,
		Scalars: kernels.Scalars{LearningRate: 0.5},
		Operands: []kernels.Operand{ // in the order of slots
			{Weight: 1, Values: []float32{1, 0, 2}},
			{Weight: 3, Values: []float32{1, 4, 2}},
		},
		Scale:  0.25, // the weighted mean
		Params: params,
		Next:   params,
	})
	fmt.Println(params, products.SquaredNorm, err)
	// Output: [0.5 0.5 2] 14 <nil>
}
