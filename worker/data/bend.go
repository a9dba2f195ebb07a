package data

// knots is the number of control points along one side of a bend. The image spans knots-3 pieces of
// the spline. A piece is about nine pixels, so a bend moves a stroke and not a single pixel.
const knots = 6

// bend is a smooth random displacement of the pixels of an image: a uniform cubic B-spline in both
// directions over a grid of control points. (Elastic distortion as in Simard, Steinkraus, Platt 2003,
// with a spline in place of the Gaussian filter.)
type bend struct{ x, y [knots * knots]float64 }

// fill draws the control points. strength is their standard deviation, in pixels.
func (b *bend) fill(s *stream, strength float64) {
	for i := range b.x {
		b.x[i] = float64(strength * s.bell())
		b.y[i] = float64(strength * s.bell())
	}
}

// spline holds, for each pixel of a row, the first of the four control points that move it, and
// their weights.
var spline = newSpline()

func newSpline() (table [side]struct {
	first int
	share [4]float64
}) {
	for i := range table {
		at := float64(i) * (knots - 3) / side
		k := int(at)
		t := at - float64(k)
		u := 1 - t
		t2, t3 := float64(t*t), float64(float64(t*t)*t)
		u3 := float64(float64(u*u) * u)
		table[i].first = k
		table[i].share = [4]float64{
			u3 / 6,
			(float64(3*t3) - float64(6*t2) + 4) / 6,
			(float64(3*t) + float64(3*t2) - float64(3*t3) + 1) / 6,
			t3 / 6,
		}
	}
	return table
}

// spread writes the displacement of each pixel, in pixels.
func (b *bend) spread(dx, dy *[side * side]float64) {
	spreadOne(dx, &b.x)
	spreadOne(dy, &b.y)
}

func spreadOne(dst *[side * side]float64, control *[knots * knots]float64) {
	// The spline is a product of two: first along the rows of control points, then across them.
	var rows [knots][side]float64
	for j := range rows {
		for i := range rows[j] {
			t := &spline[i]
			c := control[j*knots+t.first:][:4]
			rows[j][i] = sum4(&t.share, c[0], c[1], c[2], c[3])
		}
	}
	for j := range side {
		t := &spline[j]
		r := rows[t.first:][:4]
		for i := range side {
			dst[j*side+i] = sum4(&t.share, r[0][i], r[1][i], r[2][i], r[3][i])
		}
	}
}

func sum4(w *[4]float64, a, b, c, d float64) float64 {
	return float64(w[0]*a) + float64(w[1]*b) + float64(w[2]*c) + float64(w[3]*d)
}
