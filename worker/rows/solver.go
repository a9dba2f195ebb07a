package rows

import "math"

// solver solves the normal equations of one row, in float64 and in a fixed order of operations. A
// library would choose the order by processor, but rows must have the same bits wherever they are
// computed.
type solver struct {
	w int
	a []float64 // [w, w]: the lower triangle of the matrix, later of its Cholesky factor
	b []float64
	y []float64
}

func newSolver(w int) solver {
	return solver{w: w, a: make([]float64, w*w), b: make([]float64, w), y: make([]float64, w)}
}

// begin starts a row with the matrix λ·I.
func (s *solver) begin(lambda float64) {
	clear(s.a)
	clear(s.b)
	for k := range s.w {
		s.a[k*s.w+k] = lambda
	}
}

// add adds a rating r, given the row of the other side.
func (s *solver) add(row []float32, r float64) {
	s.y[0] = 1
	r -= float64(row[0])
	for k := 1; k < s.w; k++ {
		s.y[k] = float64(row[k])
	}
	for i, yi := range s.y {
		a := s.a[i*s.w:]
		for j, yj := range s.y[:i+1] {
			a[j] += float64(yi * yj)
		}
		s.b[i] += float64(r * yi)
	}
}

// solve writes the solution to x, rounded to float32. The matrix is positive definite because λ is
// positive.
func (s *solver) solve(x []float32) {
	w := s.w
	for i := range w {
		for j := range i + 1 {
			sum := s.a[i*w+j]
			for k := range j {
				sum -= float64(s.a[i*w+k] * s.a[j*w+k])
			}
			if i == j {
				s.a[i*w+i] = math.Sqrt(sum)
			} else {
				s.a[i*w+j] = sum / s.a[j*w+j]
			}
		}
	}
	for i := range w {
		sum := s.b[i]
		for k := range i {
			sum -= float64(s.a[i*w+k] * s.b[k])
		}
		s.b[i] = sum / s.a[i*w+i]
	}
	for i := w - 1; i >= 0; i-- {
		sum := s.b[i]
		for k := i + 1; k < w; k++ {
			sum -= float64(s.a[k*w+i] * s.b[k])
		}
		s.b[i] = sum / s.a[i*w+i]
	}
	for k, v := range s.b {
		x[k] = float32(v)
	}
}
