package dbw

import (
	"math"
	"math/rand/v2"
	"testing"
)

func randomGrid(rng *rand.Rand, rows, cols int) *grid {
	g := &grid{}
	g.resize(rows, cols)
	for i := range g.y {
		g.y[i] = rng.ExpFloat64() + float64(i%cols)/float64(cols)
		g.w[i] = 0.1 + rng.ExpFloat64()
		if rng.IntN(4) == 0 {
			g.w[i] = hoped
		}
	}
	return g
}

// One row is fitted exactly: its value at i is the largest over j ≤ i of the smallest over k ≥ i of
// the weighted mean of j…k.
func TestOneRowIsTheMinMaxOfMeans(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		g := randomGrid(rng, 1, 1+rng.IntN(12))
		g.fit()
		for i := range g.x {
			want := math.Inf(-1)
			for j := 0; j <= i; j++ {
				least := math.Inf(1)
				for k := i; k < g.cols; k++ {
					sum, weight := 0.0, 0.0
					for c := j; c <= k; c++ {
						sum += g.w[c] * g.y[c]
						weight += g.w[c]
					}
					least = min(least, sum/weight)
				}
				want = max(want, least)
			}
			if math.Abs(g.x[i]-want) > 1e-9*(1+want) {
				t.Fatalf("value %d of %v with weights %v is %v, want %v", i, g.y, g.w, g.x[i], want)
			}
		}
	}
}

// A point is the projection of y on a convex cone if it lies in the cone and no direction of the
// cone brings it nearer: ⟨y − x, z⟩ ≤ 0 for all z in the cone, with equality at x.
func TestATableIsTheProjection(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		g := randomGrid(rng, 2+rng.IntN(7), 1+rng.IntN(8))
		g.fit()
		at := func(r, c int) float64 { return g.x[r*g.cols+c] }
		scale := 0.0
		for i := range g.y {
			scale += g.w[i] * g.y[i] * g.y[i]
		}
		for r := range g.rows {
			for c := range g.cols {
				if c > 0 && at(r, c) < at(r, c-1) {
					t.Fatalf("row %d does not ascend: %v", r, g.x)
				}
				if r > 0 && at(r, c) > at(r-1, c) {
					t.Fatalf("column %d ascends from %v to %v", c, at(r-1, c), at(r, c))
				}
			}
		}
		for range 50 { // any table that ascends along rows and descends along columns
			z := make([]float64, len(g.x))
			for r := g.rows - 1; r >= 0; r-- {
				for c := range g.cols {
					below, left := -3.0, -3.0
					if r < g.rows-1 {
						below = z[(r+1)*g.cols+c]
					}
					if c > 0 {
						left = z[r*g.cols+c-1]
					}
					z[r*g.cols+c] = max(below, left)
					if rng.IntN(3) == 0 {
						z[r*g.cols+c] += rng.ExpFloat64()
					}
				}
			}
			inner, size := 0.0, 0.0
			for i := range z {
				inner += g.w[i] * (g.y[i] - g.x[i]) * (z[i] - g.x[i])
				size += g.w[i] * (z[i] - g.x[i]) * (z[i] - g.x[i])
			}
			if inner > 0.03*math.Sqrt(scale*size) {
				t.Fatalf("a better table lies towards %v: product %v of %v\ny %v\nw %v\nx %v", z, inner, math.Sqrt(scale*size), g.y, g.w, g.x)
			}
		}
	}
}

func TestKnotsCoverBothEnds(t *testing.T) {
	for _, n := range []int{1, 2, 3, 15, 16, 17, 18, 64, 1000, 10000} {
		knots := knotsFor(n)
		if knots[0] != 1 || knots[len(knots)-1] != n {
			t.Errorf("%d members: knots %v", n, knots)
		}
		for i := 1; i < len(knots); i++ {
			if knots[i] <= knots[i-1] {
				t.Errorf("%d members: knots %v do not ascend", n, knots)
			}
		}
		if len(knots) > 48 {
			t.Errorf("%d members have %d knots", n, len(knots))
		}
	}
}
