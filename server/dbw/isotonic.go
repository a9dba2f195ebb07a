package dbw

import "math"

// grid is a table of durations with its weights, and the working memory of the least-squares fit.
// Rows are quotas of the step before, ascending; columns are quotas, ascending.
type grid struct {
	rows, cols int
	y, w       []float64 // targets and their positive weights, by row·cols + column
	x          []float64 // the fit
	p, q       []float64 // Dykstra's corrections for rows and columns
	pool       pool
	line       []float64
}

// resize makes room for a table. Its old contents are lost.
func (g *grid) resize(rows, cols int) {
	g.rows, g.cols = rows, cols
	n := rows * cols
	if cap(g.x) < n {
		g.y, g.w, g.x, g.p, g.q = make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	}
	g.y, g.w, g.x, g.p, g.q = g.y[:n], g.w[:n], g.x[:n], g.p[:n], g.q[:n]
	if m := max(rows, cols); cap(g.line) < m {
		g.line = make([]float64, m)
	}
}

const (
	maxSweeps = 50
	settled   = 1e-4 // largest relative change of a sweep that ends the fit
)

// fit sets x to the table nearest to y, in weighted squares, that ascends along rows (more
// gradients take longer) and descends along columns (a step in which more workers had a part leaves
// fewer of them busy). It is Dykstra's alternation of the two projections, each of which pools
// adjacent violators. If the result is not quite monotone yet, each value becomes the largest of
// its column from its row on, which is monotone both ways.
func (g *grid) fit() {
	copy(g.x, g.y)
	if g.rows == 1 {
		g.project(0, 1, g.cols, false)
		return
	}
	clear(g.p)
	clear(g.q)
	for range maxSweeps {
		worst := 0.0
		for c := range g.cols {
			worst = max(worst, g.correct(g.q, c, g.cols, g.rows, true))
		}
		for r := range g.rows {
			worst = max(worst, g.correct(g.p, r*g.cols, 1, g.cols, false))
		}
		if worst < settled {
			break
		}
	}
	for i := len(g.x) - g.cols - 1; i >= 0; i-- {
		g.x[i] = max(g.x[i], g.x[i+g.cols])
	}
}

// correct does one of Dykstra's steps on a row or a column and returns its largest relative change.
func (g *grid) correct(correction []float64, from, stride, n int, descend bool) float64 {
	before := g.line[:n]
	for i := range before {
		at := from + i*stride
		before[i] = g.x[at]
		g.x[at] += correction[at]
		correction[at] = g.x[at]
	}
	g.project(from, stride, n, descend)
	worst := 0.0
	for i, b := range before {
		at := from + i*stride
		correction[at] -= g.x[at]
		worst = max(worst, math.Abs(g.x[at]-b)/max(math.Abs(b), 1e-12))
	}
	return worst
}

// project makes n values of x monotone, starting at index from, stride apart.
func (g *grid) project(from, stride, n int, descend bool) {
	if descend {
		from, stride = from+(n-1)*stride, -stride
	}
	ok := true
	for i := 1; i < n && ok; i++ {
		ok = g.x[from+i*stride] >= g.x[from+(i-1)*stride]
	}
	if ok {
		return
	}
	g.pool = g.pool[:0]
	for i := range n {
		at := from + i*stride
		g.pool.add(g.x[at], g.w[at])
	}
	at := from
	for _, b := range g.pool {
		for range b.count {
			g.x[at] = b.mean
			at += stride
		}
	}
}

// pool is a stack of blocks with ascending means.
type pool []block

type block struct {
	mean, weight float64
	count        int
}

// add adds a value at the end, and pools blocks until the means ascend.
func (p *pool) add(value, weight float64) {
	b := block{value, weight, 1}
	s := *p
	for len(s) > 0 && s[len(s)-1].mean > b.mean {
		a := s[len(s)-1]
		s = s[:len(s)-1]
		sum := a.weight + b.weight
		b = block{a.mean + (b.mean-a.mean)*(b.weight/sum), sum, a.count + b.count}
	}
	*p = append(s, b)
}
