package model

import (
	"fmt"
	"math"

	kintsugi "github.com/kintsugi-ml/kintsugi"
)

// Factors is matrix factorisation: it completes a matrix of ratings. The predicted rating of item i
// by user u is the sum of two biases and of the product of two rows,
//
//	x[u][0] + y[i][0] + Σₖ x[u][k]·y[i][k],  k = 1 … Rank.
//
// The tensors are "users" [Users, 1+Rank] and "items" [Items, 1+Rank]. An example is user, item and
// rating. The mean of all ratings is subtracted from each rating, see data.Ratings.
type Factors struct {
	Users, Items int
	Rank         int     // number of values of a row besides its bias
	Decay        float64 // λ: each rating adds λ·(‖x[u]‖² + ‖y[i]‖²) to its squared error

	// Alternate selects alternating least squares with weighted λ (Zhou et al. 2008) instead of
	// gradients: in turn, the rows of all users and the rows of all items are set to the minimum
	// while the others are fixed. Package worker/rows computes this.
	Alternate bool
}

// Width returns the number of values of a row.
func (f Factors) Width() int { return 1 + f.Rank }

// Describe returns the description of the model.
func (f Factors) Describe() (*Description, error) {
	switch {
	case f.Users < 1 || f.Items < 1 || f.Users > maxRows || f.Items > maxRows:
		return nil, fmt.Errorf("%w: model mf: %d users and %d items; from 1 to %d is possible", kintsugi.ErrUsage, f.Users, f.Items, maxRows)
	case f.Rank < 1 || f.Rank > 1024:
		return nil, fmt.Errorf("%w: model mf: rank %d; it must be from 1 to 1024", kintsugi.ErrUsage, f.Rank)
	case !(f.Decay >= 0) || math.IsInf(f.Decay, 0) || f.Alternate && f.Decay < leastDecay:
		return nil, fmt.Errorf("%w: model mf: decay %g; it must be finite and not negative, and for mf:als at least %g", kintsugi.ErrUsage, f.Decay, leastDecay)
	}
	d := &Description{
		Name: "mf", Factors: &f, Input: Input{Users: f.Users, Items: f.Items},
		Defaults: Defaults{Batch: 256, Steps: 1500, LearningRate: 0.06, Optimizer: "adagrad", Codec: "sparse"},
	}
	if f.Alternate {
		d.Name = "mf:als"
		d.Defaults = Defaults{Batch: 1, Steps: 30, LearningRate: 1, Optimizer: "assign", Codec: "sparse"}
	}
	d.addTensor("users", f.Users, f.Width())
	d.addTensor("items", f.Items, f.Width())
	return d, nil
}

// leastDecay is the smallest Decay for Alternate. It is far above the rounding errors of float64.
// With less, the equations of a row with fewer ratings than values have no solution.
const leastDecay = 1e-9

// maxRows is the limit on users, items, words and documents: a float32 holds their numbers exactly.
const maxRows = 1 << 24

// parseFactors parses options such as "als,rank=8,decay=0.1".
func parseFactors(in Input, text string) (f Factors, err error) {
	f = Factors{Users: in.Users, Items: in.Items, Rank: 8, Decay: 0.05}
	if text == "als" || len(text) > 3 && text[:4] == "als," {
		f.Alternate, f.Decay = true, 0.1
		text = text[min(len(text), 4):]
	}
	return f, eachOption(text, option{"rank", &f.Rank}, option{"decay", &f.Decay})
}

// init draws the rows from ±1/√(3·(1+Rank)), so that the initial product of two rows is much
// smaller than a rating. Biases begin at 0.
func (f Factors) init(seed uint64, params []float32) {
	w := f.Width()
	limit := 1 / math.Sqrt(3*float64(w))
	for side, n := range []int{f.Users, f.Items} {
		stream := named(seed, [2]string{"users", "items"}[side])
		for i := range n * w {
			params[i] = 0
			if i%w != 0 {
				params[i] = float32((2*uniform(stream, uint64(i)) - 1) * limit)
			}
		}
		params = params[n*w:]
	}
}

// Predict returns the predicted rating for the row x of a user and the row y of an item, relative
// to the mean rating.
func Predict(x, y []float32) float64 {
	sum := float64(x[0]) + float64(y[0])
	for k := 1; k < len(x); k++ {
		sum += float64(float64(x[k]) * float64(y[k]))
	}
	return sum
}

// factors computes the gradients of Factors. params and grads are float32; it computes in float64.
type factors struct {
	d *Description
	f Factors
}

// Tensors lists users and items.
func (m *factors) Tensors() []kintsugi.Tensor { return m.d.Tensors() }

// rows returns the rows of an example's user and item in a flat vector.
func (m *factors) rows(flat []float32, example []float32) (x, y []float32) {
	w := m.f.Width()
	u, v := int(example[0])*w, (m.f.Users+int(example[1]))*w
	return flat[u : u+w : u+w], flat[v : v+w : v+w]
}

// Gradient returns the mean over the batch of squared error plus decay, and overwrites grads with
// its gradient, which is +0 in all rows that the batch does not use. If a row occurs in several
// examples, their terms are added in order.
func (m *factors) Gradient(params, grads []float32, b Batch) (float64, error) {
	if err := m.check(params, b); err != nil {
		return 0, err
	}
	if len(grads) != len(params) {
		return 0, fmt.Errorf("%w: model %s has %d parameters, the gradient has room for %d", kintsugi.ErrUsage, m.d.Name, len(params), len(grads))
	}
	clear(grads)
	loss, share, decay := 0.0, 2/float64(b.N), m.f.Decay
	for ; len(b.X) > 0; b.X = b.X[3:] {
		x, y := m.rows(params, b.X)
		gx, gy := m.rows(grads, b.X)
		e := float64(b.X[2]) - Predict(x, y)
		squares := 0.0
		for k := range x {
			xk, yk := float64(x[k]), float64(y[k])
			squares += float64(xk*xk) + float64(yk*yk)
			dx, dy := float64(decay*xk), float64(decay*yk)
			if k == 0 {
				dx, dy = dx-e, dy-e
			} else {
				dx, dy = dx-float64(e*yk), dy-float64(e*xk)
			}
			gx[k] += float32(share * dx)
			gy[k] += float32(share * dy)
		}
		loss += float64(e*e) + float64(decay*squares)
	}
	return loss / float64(b.N), nil
}

// Evaluate returns the mean squared error over the batch. The number of correct labels is 0.
func (m *factors) Evaluate(params []float32, b Batch) (float64, int, error) {
	if err := m.check(params, b); err != nil {
		return 0, 0, err
	}
	sum := 0.0
	for i := range b.N {
		x, y := m.rows(params, b.X[3*i:])
		e := float64(b.X[3*i+2]) - Predict(x, y)
		sum += float64(e * e)
	}
	return sum / float64(b.N), 0, nil
}

// check returns an error if the arguments do not fit. It checks users and items because they are
// used as indices.
func (m *factors) check(params []float32, b Batch) error {
	if err := m.d.checkVectors(params, nil); err != nil {
		return err
	}
	if b.N <= 0 || len(b.X) != 3*b.N || len(b.Y) != 0 {
		return fmt.Errorf("%w: a batch of %d examples has %d values and %d labels; model %s takes one example at least, three values each, and no labels",
			kintsugi.ErrUsage, b.N, len(b.X), len(b.Y), m.d.Name)
	}
	for i := range b.N {
		u, v := b.X[3*i], b.X[3*i+1]
		if !(u >= 0 && u < float32(m.f.Users) && u == float32(int(u)) && v >= 0 && v < float32(m.f.Items) && v == float32(int(v))) {
			return fmt.Errorf("%w: rating %d is by user %v of item %v; model %s has %d users and %d items",
				kintsugi.ErrUsage, i, u, v, m.d.Name, m.f.Users, m.f.Items)
		}
	}
	return nil
}

// Close does nothing.
func (m *factors) Close() error { return nil }
