package kernels

// lanes is the number of float64 partial sums of a by-product. It is part of the contract: with
// another number the by-products would have other bits. Additions within a lane must wait for one
// another; 16 lanes fill two of the widest vectors, so that the additions keep up with memory.
const lanes = 16

// sums holds the lanes of a step's four by-products.
type sums struct {
	squaredNorm, dotDisplacement, squaredDisplacement, squaredDistanceSaved [lanes]float64
}

// products folds the lanes of the by-products that s asks for.
func (t *sums) products(s *Step) Products {
	p := Products{SquaredNorm: fold(&t.squaredNorm)}
	if s.WantDot {
		p.DotDisplacement = fold(&t.dotDisplacement)
	}
	if s.WantDisplacement {
		p.SquaredDisplacement = fold(&t.squaredDisplacement)
	}
	if s.WantSaved {
		p.SquaredDistanceSaved = fold(&t.squaredDistanceSaved)
	}
	return p
}

// fold adds up the lanes by the tree l[i] += l[i+8], then +4, +2, +1.
func fold(lane *[lanes]float64) float64 {
	l := *lane
	for w := lanes / 2; w > 0; w /= 2 {
		for i := range w {
			l[i] += l[i+w]
		}
	}
	return l[0]
}

// addSquares adds x[i]² to lane i mod 16. Element 0 of x is in lane 0, as in the functions below.
func addSquares(lane *[lanes]float64, x []float32) {
	for i, v := range x {
		lane[i%lanes] += float64(float64(v) * float64(v))
	}
}

// addDot adds g[i]·(x[i] − y[i]) to lane i mod 16.
func addDot(lane *[lanes]float64, g, x, y []float32) {
	x, y = x[:len(g)], y[:len(g)]
	for i, v := range g {
		lane[i%lanes] += float64(float64(v) * float64(x[i]-y[i]))
	}
}

// addDistances adds (x[i] − y[i])² to lane i mod 16.
func addDistances(lane *[lanes]float64, x, y []float32) {
	y = y[:len(x)]
	for i, v := range x {
		d := float64(v - y[i])
		lane[i%lanes] += float64(d * d)
	}
}
