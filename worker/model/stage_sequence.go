package model

import "math"

// The layers for sequences, written plainly, with sums in float64. Faster engines are compared with
// them. Only the products of Linear use the BLAS.

// embeddingStage is an Embedding. Its inputs are the tokens and the two tables.
type embeddingStage struct{ positions, width int }

func (s embeddingStage) forward(y []float32, in [][]float32) {
	for i, token := range in[0] {
		row := y[i*s.width:][:s.width]
		a, b := in[1][int(token)*s.width:][:s.width], in[2][i%s.positions*s.width:][:s.width]
		for j := range row {
			row[j] = a[j] + b[j]
		}
	}
}

func (s embeddingStage) backward(d, in [][]float32, _, dy []float32) {
	clear(d[1])
	clear(d[2])
	for i, token := range in[0] {
		a, b := d[1][int(token)*s.width:][:s.width], d[2][i%s.positions*s.width:][:s.width]
		for j, v := range dy[i*s.width:][:s.width] {
			a[j] += v
			b[j] += v
		}
	}
}

// normStage is a LayerNorm of rows of n values.
type normStage struct{ n int }

// normalise returns the mean of a row and the factor that scales its deviations from the mean to
// variance 1.
func normalise(x []float32) (mean, scale float64) {
	for _, v := range x {
		mean += float64(v)
	}
	mean /= float64(len(x))
	variance := 0.0
	for _, v := range x {
		d := float64(v) - mean
		variance += d * d
	}
	return mean, 1 / math.Sqrt(variance/float64(len(x))+LayerNormEpsilon)
}

func (s normStage) forward(y []float32, in [][]float32) {
	x, w, b := in[0], in[1], in[2]
	for lo := 0; lo < len(x); lo += s.n {
		mean, scale := normalise(x[lo : lo+s.n])
		for j := range s.n {
			y[lo+j] = float32((float64(x[lo+j])-mean)*scale*float64(w[j]) + float64(b[j]))
		}
	}
}

func (s normStage) backward(d, in [][]float32, _, dy []float32) {
	x, w := in[0], in[1]
	dw, db := d[1], d[2]
	clear(dw)
	clear(db)
	for lo := 0; lo < len(x); lo += s.n {
		mean, scale := normalise(x[lo : lo+s.n])
		sum, along := 0.0, 0.0 // of the gradient of the normalised row, and of its product with that row
		for j := range s.n {
			z, g := (float64(x[lo+j])-mean)*scale, float64(dy[lo+j])
			dw[j] += float32(g * z)
			db[j] += dy[lo+j]
			sum += g * float64(w[j])
			along += g * float64(w[j]) * z
		}
		if d[0] == nil {
			continue
		}
		n := float64(s.n)
		for j := range s.n {
			z, g := (float64(x[lo+j])-mean)*scale, float64(dy[lo+j])*float64(w[j])
			d[0][lo+j] = float32(scale * (g - sum/n - z*along/n))
		}
	}
}

// geluStage is a GELU.
type geluStage struct{}

// gelu returns the value and the derivative.
func gelu(x float64) (y, dy float64) {
	const a, b = 0.7978845608028654, 0.044715 // √(2/π)
	t := math.Tanh(a * (x + b*x*x*x))
	return 0.5 * x * (1 + t), 0.5*(1+t) + 0.5*x*(1-t*t)*a*(1+3*b*x*x)
}

func (geluStage) forward(y []float32, in [][]float32) {
	for i, x := range in[0] {
		v, _ := gelu(float64(x))
		y[i] = float32(v)
	}
}

func (geluStage) backward(d, in [][]float32, _, dy []float32) {
	for i, x := range in[0] {
		_, slope := gelu(float64(x))
		d[0][i] = float32(slope * float64(dy[i]))
	}
}

// joinStage adds its two inputs.
type joinStage struct{}

func (joinStage) forward(y []float32, in [][]float32) {
	for i := range y {
		y[i] = in[0][i] + in[1][i]
	}
}

func (joinStage) backward(d, _ [][]float32, _, dy []float32) {
	for _, d := range d {
		copy(d, dy) // copies nothing if d is nil
	}
}

// linearStage is a Linear: a Dense applied to each row instead of each example.
func linearStage(rows, in, out int) *denseStage { return &denseStage{batch: rows, in: in, out: out} }

// attentionStage is an Attention. Each example has positions rows.
type attentionStage struct {
	positions, heads, size int // size is the number of values of each head

	p []float64 // of one head of one example: row t holds the weights of positions 0 to t
}

// at returns the index of the first value of the query, key or value (part 0, 1, 2) of a position
// and head.
func (s *attentionStage) at(position, part, head int) int {
	return ((position*3+part)*s.heads + head) * s.size
}

// weights computes p for one head of one example.
func (s *attentionStage) weights(x []float32, head int) {
	for t := range s.positions {
		q := x[s.at(t, 0, head):][:s.size]
		row, largest := s.p[t*s.positions:][:t+1], math.Inf(-1)
		for u := range row {
			row[u] = dot(q, x[s.at(u, 1, head):]) / math.Sqrt(float64(s.size))
			largest = max(largest, row[u])
		}
		sum := 0.0
		for u := range row {
			row[u] = math.Exp(row[u] - largest)
			sum += row[u]
		}
		for u := range row {
			row[u] /= sum
		}
	}
}

func dot(a, b []float32) float64 {
	sum := 0.0
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return sum
}

// each calls do for each head of each example, with the parts of x and y that belong to the
// example.
func (s *attentionStage) each(x, y []float32, do func(x, y []float32, lo, head int)) {
	if s.p == nil {
		s.p = make([]float64, s.positions*s.positions)
	}
	out := s.positions * s.heads * s.size
	for lo := 0; lo < len(y); lo += out {
		for head := range s.heads {
			do(x[3*lo:3*(lo+out)], y[lo:lo+out], lo, head)
		}
	}
}

func (s *attentionStage) forward(y []float32, in [][]float32) {
	sum := make([]float64, s.size)
	s.each(in[0], y, func(x, y []float32, _, head int) {
		s.weights(x, head)
		for t := range s.positions {
			clear(sum)
			for u, p := range s.p[t*s.positions:][:t+1] {
				for j, v := range x[s.at(u, 2, head):][:s.size] {
					sum[j] += p * float64(v)
				}
			}
			for j, v := range sum {
				y[(t*s.heads+head)*s.size+j] = float32(v)
			}
		}
	})
}

func (s *attentionStage) backward(d, in [][]float32, y, dy []float32) {
	dx := d[0]
	clear(dx)
	dp := make([]float64, s.positions)
	scale := 1 / math.Sqrt(float64(s.size))
	s.each(in[0], dy, func(x, dy []float32, lo, head int) {
		s.weights(x, head)
		dx := dx[3*lo : 3*lo+len(x)]
		for t := range s.positions {
			p, g := s.p[t*s.positions:][:t+1], dy[(t*s.heads+head)*s.size:][:s.size]
			mean := 0.0 // Σ p·dp, which the gradient of a softmax subtracts
			for u := range p {
				dp[u] = dot(g, x[s.at(u, 2, head):])
				mean += p[u] * dp[u]
				for j, v := range g {
					dx[s.at(u, 2, head)+j] += float32(p[u] * float64(v))
				}
			}
			for u := range p {
				ds := p[u] * (dp[u] - mean) * scale
				for j := range s.size {
					dx[s.at(t, 0, head)+j] += float32(ds * float64(x[s.at(u, 1, head)+j]))
					dx[s.at(u, 1, head)+j] += float32(ds * float64(x[s.at(t, 0, head)+j]))
				}
			}
		}
	})
}
