package bench

import (
	"math"
	"math/rand/v2"

	"github.com/kintsugi-ml/kintsugi"
)

// Ratings of scarFactors, and the factors that are looked for.
const (
	mfUsers, mfItems, mfRank = 600, 400, 8
	mfRatings, mfBatch       = 30000, 500
)

// scarFactors factorises a matrix of ratings by SGD: r ≈ ⟨user, item⟩. A state is the rows of all users and behind them those of
// all items. Few users and items have most of the ratings, so rows move at very different speeds, and a step touches
// some of them only.
type scarFactors struct {
	seed   uint64
	user   []int32 // by rating
	item   []int32
	rating []float32
	blocks []ScarBlock
	block  []int // by row
	order  []int // of the ratings, scratch
	epoch  int   // that order is of; −1: none
}

// newScarFactors draws the ratings: products of planted factors of rank 4, and noise.
func newScarFactors(seed uint64) (*scarFactors, error) {
	rng := rand.New(rand.NewPCG(1, 600)) // the same ratings for each seed
	planted := make([]float64, 4*(mfUsers+mfItems))
	for i := range planted {
		planted[i] = rng.NormFloat64() / math.Sqrt2
	}
	m := &scarFactors{seed: seed, epoch: -1, block: make([]int, mfUsers+mfItems), order: make([]int, mfRatings)}
	popular := func(n int) int { return int(math.Pow(float64(n)+20, rng.Float64())*math.Pow(20, 1-rng.Float64())) % n }
	for range mfRatings {
		u, v := popular(mfUsers), popular(mfItems)
		r := 0.3 * rng.NormFloat64()
		for k := range 4 {
			r += planted[4*u+k] * planted[4*(mfUsers+v)+k]
		}
		m.user, m.item, m.rating = append(m.user, int32(u)), append(m.item, int32(v)), append(m.rating, float32(r))
	}
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "users", Shape: []int{mfUsers, mfRank}}, {Name: "items", Shape: []int{mfItems, mfRank}}})
	if err != nil {
		return nil, err
	}
	for i, c := range l.Chunks {
		m.blocks = append(m.blocks, ScarBlock{c.Lo, c.Hi})
		for row := c.Lo / mfRank; row < c.Hi/mfRank; row++ {
			m.block[row] = i
		}
	}
	return m, nil
}

func (m *scarFactors) Blocks() (blocks []ScarBlock, values, arrays int) {
	return m.blocks, mfRank * (mfUsers + mfItems), 1
}

func (m *scarFactors) Init(state []float32) error {
	rng := rand.New(rand.NewPCG(m.seed, 8))
	for i := range state {
		state[i] = float32(0.3 * rng.NormFloat64())
	}
	return nil
}

// each calls f for each rating of a step's batch: a user's row, an item's row and the rating. Every epoch has an order of
// its own, a function of the seed.
func (m *scarFactors) each(version int, f func(u, v int, r float32)) {
	const steps = mfRatings / mfBatch
	if epoch := version / steps; epoch != m.epoch {
		copy(m.order, rand.New(rand.NewPCG(m.seed, uint64(1000+epoch))).Perm(mfRatings))
		m.epoch = epoch
	}
	lo := version % steps * mfBatch
	for _, i := range m.order[lo : lo+mfBatch] {
		f(int(m.user[i]), mfUsers+int(m.item[i]), m.rating[i])
	}
}

func (m *scarFactors) Step(state []float32, version int) error {
	const rate, decay = 0.03, 0.02
	m.each(version, func(u, v int, r float32) {
		x, y := state[u*mfRank:(u+1)*mfRank], state[v*mfRank:(v+1)*mfRank]
		for k := range x {
			r -= float32(x[k] * y[k])
		}
		for k := range x {
			xk, yk := x[k], y[k]
			x[k] += rate * (float32(r*yk) - float32(decay*xk))
			y[k] += rate * (float32(r*xk) - float32(decay*yk))
		}
	})
	return nil
}

// Loss is the mean squared error of all ratings.
func (m *scarFactors) Loss(state []float32) (float64, error) {
	sum := 0.0
	for i, r := range m.rating {
		u, v := int(m.user[i]), mfUsers+int(m.item[i])
		x, y := state[u*mfRank:(u+1)*mfRank], state[v*mfRank:(v+1)*mfRank]
		for k := range x {
			r -= float32(x[k] * y[k])
		}
		sum += float64(r) * float64(r)
	}
	return sum / mfRatings, nil
}

// Touched implements scarToucher.
func (m *scarFactors) Touched(version int, touch func(block int)) {
	m.each(version, func(u, v int, _ float32) {
		touch(m.block[u])
		touch(m.block[v])
	})
}

func (m *scarFactors) Close() error { return nil }
