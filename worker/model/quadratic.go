package model

import (
	"fmt"
	"math"
	"strconv"

	kintsugi "github.com/kintsugi-ml/kintsugi"
)

// Quadratic is the function f(x) = ½·(x − x*)ᵀ·A·(x − x*), as a model without data. Its optimum,
// curvature and gradient noise are known, so the theory of what a failure costs can be compared
// with what happened.
//
// A = Q·D·Qᵀ. D is diagonal, with entries log-spaced from 1/Condition to 1; Q is a product of
// Reflections Householder reflections. The eigenvalues of A are exactly those of D. Without
// reflections A is diagonal; with r of them it differs from a diagonal matrix by a matrix of rank
// at most 2r.
type Quadratic struct {
	Dimension   int
	Condition   float64 // ratio of the largest to the smallest eigenvalue, at least 1
	Reflections int
	Noise       float64 // standard deviation of each component in the gradient of one example
	Seed        uint64  // of x* and of the reflections
}

// Describe returns the description of the problem.
func (q Quadratic) Describe() (*Description, error) {
	switch {
	case q.Dimension < 1:
		return nil, fmt.Errorf("%w: model qp: dimension %d; it must be positive", kintsugi.ErrUsage, q.Dimension)
	case !(q.Condition >= 1) || math.IsInf(q.Condition, 0):
		return nil, fmt.Errorf("%w: model qp: condition %g; it must be at least 1", kintsugi.ErrUsage, q.Condition)
	case q.Reflections < 0:
		return nil, fmt.Errorf("%w: model qp: %d reflections; it must not be negative", kintsugi.ErrUsage, q.Reflections)
	case !(q.Noise >= 0) || math.IsInf(q.Noise, 0):
		return nil, fmt.Errorf("%w: model qp: noise %g; it must be finite and not negative", kintsugi.ErrUsage, q.Noise)
	}
	return &Description{
		Name:      "qp",
		Defaults:  Defaults{Batch: 1, Steps: 1000, LearningRate: 0.5},
		Quadratic: &q,
		tensors:   []kintsugi.Tensor{{Name: "x", Shape: []int{q.Dimension}}},
		values:    q.Dimension,
	}, nil
}

// parseQuadratic parses options such as
// "dimension=1000,condition=100,reflections=2,noise=0.1,seed=7".
func parseQuadratic(options string) (Quadratic, error) {
	q := Quadratic{Dimension: 1000, Condition: 100}
	return q, eachOption(options, option{"dimension", &q.Dimension}, option{"condition", &q.Condition},
		option{"reflections", &q.Reflections}, option{"noise", &q.Noise}, option{"seed", &q.Seed})
}

// Eigenvalues returns the eigenvalues of A, ascending.
func (q Quadratic) Eigenvalues() []float64 {
	d := make([]float64, q.Dimension)
	for i := range d {
		d[i] = 1
		if q.Dimension > 1 {
			d[i] = math.Pow(q.Condition, float64(i)/float64(q.Dimension-1)-1)
		}
	}
	return d
}

// Optimum returns x*.
func (q Quadratic) Optimum() []float32 {
	x := make([]float32, q.Dimension)
	q.scatter(named(q.Seed, "qp optimum"), x)
	return x
}

// init chooses a starting point about as far from the origin as the optimum is.
func (q Quadratic) init(seed uint64, params []float32) { q.scatter(named(seed, "x"), params) }

// scatter draws components of mean 0 and variance 1.
func (Quadratic) scatter(stream uint64, x []float32) {
	for i := range x {
		x[i] = float32((2*uniform(stream, uint64(i)) - 1) * math.Sqrt(3))
	}
}

// quadratic executes a Quadratic. params and grads are float32; it computes in float64.
type quadratic struct {
	d           *Description
	eigenvalues []float64
	optimum     []float32
	mirrors     [][]float64 // unit normal vectors of the reflections
	z, y        []float64
}

func newQuadratic(d *Description) *quadratic {
	q := *d.Quadratic
	m := &quadratic{d: d, eigenvalues: q.Eigenvalues(), optimum: q.Optimum(),
		z: make([]float64, q.Dimension), y: make([]float64, q.Dimension)}
	for r := range q.Reflections {
		key := named(q.Seed, "qp reflection "+strconv.Itoa(r))
		v, norm := make([]float64, q.Dimension), 0.0
		for i := range v {
			v[i] = 2*uniform(key, uint64(i)) - 1
			norm += v[i] * v[i]
		}
		for i := range v {
			v[i] /= math.Sqrt(norm)
		}
		m.mirrors = append(m.mirrors, v)
	}
	return m
}

// reflect replaces x by x − 2·v·(vᵀx).
func reflect(v, x []float64) {
	dot := 0.0
	for i := range x {
		dot += v[i] * x[i]
	}
	for i := range x {
		x[i] -= 2 * dot * v[i]
	}
}

// apply sets z = x − x* and y = A·z, and returns ½·zᵀy.
func (m *quadratic) apply(params []float32) float64 {
	for i, x := range params {
		m.z[i] = float64(x) - float64(m.optimum[i])
	}
	copy(m.y, m.z)
	for i := len(m.mirrors) - 1; i >= 0; i-- {
		reflect(m.mirrors[i], m.y)
	}
	for i, l := range m.eigenvalues {
		m.y[i] *= l
	}
	for _, v := range m.mirrors {
		reflect(v, m.y)
	}
	loss := 0.0
	for i := range m.z {
		loss += m.z[i] * m.y[i]
	}
	return loss / 2
}

// Tensors lists the only tensor, x.
func (m *quadratic) Tensors() []kintsugi.Tensor { return m.d.Tensors() }

// Gradient returns f and overwrites grads with A·(x − x*) plus noise. The standard deviation of the
// noise is Noise/√b.N, as in a mean over examples. Only N and Seed of the batch are used.
func (m *quadratic) Gradient(params, grads []float32, b Batch) (float64, error) {
	if err := m.d.checkVectors(params, grads); err != nil {
		return 0, err
	}
	if len(grads) != len(params) { // checkVectors accepts nil, as in an evaluation
		return 0, fmt.Errorf("%w: no room for the gradient of model %s", kintsugi.ErrUsage, m.d.Name)
	}
	loss := m.apply(params)
	scale := m.d.Quadratic.Noise / math.Sqrt(float64(max(1, b.N)))
	key := named(b.Seed, "qp noise")
	for i, g := range m.y {
		if scale != 0 {
			g += scale * bell(draw(key, uint64(i)))
		}
		grads[i] = float32(g)
	}
	return loss, nil
}

// bell returns a number of mean 0 and variance 1: the scaled sum of the four 16-bit parts of u. It
// is approximately normal, and bounded, and needs no logarithm, whose last bit might depend on the
// machine.
func bell(u uint64) float64 {
	sum := u&0xffff + u>>16&0xffff + u>>32&0xffff + u>>48
	return (float64(sum) - 2*0xffff) / 0x10000 * math.Sqrt(3)
}

// Evaluate returns f. The number of correct labels is 0.
func (m *quadratic) Evaluate(params []float32, _ Batch) (float64, int, error) {
	if err := m.d.checkVectors(params, nil); err != nil {
		return 0, 0, err
	}
	return m.apply(params), 0, nil
}

// Close does nothing.
func (m *quadratic) Close() error { return nil }
