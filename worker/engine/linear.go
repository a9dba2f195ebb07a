package engine

// linear is a Linear: y = x·w + b for each row.
type linear struct {
	w, b    tensor
	rows    int // of one example
	in, out int
	needed  bool

	p                *pass
	n                int // rows of the piece
	x, y, dy, dx     []float32
	yRoom, dxRoom    []float32
	cuts             int // number of parts for the gradient of w
	forwardsRows     func(part, lane int)
	backwardsPartial func(part, lane int)
}

// linearRows is the number of rows in one part. It is large enough that packing w again for each
// part does not matter.
const linearRows = 256

func newLinear(w, b tensor, rows, in, out int, needed bool) *linear {
	l := &linear{w: w, b: b, rows: rows, in: in, out: out, needed: needed, cuts: min(max(1, in/64), 4)}
	l.forwardsRows, l.backwardsPartial = l.forwardPart, l.backwardPart
	return l
}

func (l *linear) forward(p *pass, x []float32) []float32 {
	p.need(l.w.lo, l.b.hi)
	l.p, l.x, l.n = p, x, p.n*l.rows
	l.y = grow(&l.yRoom, l.n*l.out)
	p.each(ceil(l.n, linearRows), l.forwardsRows)
	return l.y
}

func (l *linear) forwardPart(part, _ int) {
	p, lo := l.p, part*linearRows
	n := min(linearRows, l.n-lo)
	y := l.y[lo*l.out : (lo+n)*l.out]
	p.blas.Sgemm(false, false, n, l.out, l.in, 1, l.x[lo*l.in:], l.in, l.w.of(p.params), l.out, 0, y, l.out)
	p.dev.AddBias(y, l.out, n, l.b.of(p.params), false)
}

func (l *linear) backward(p *pass, dy []float32) []float32 {
	l.p, l.dy, l.dx = p, dy, nil
	parts := 1 + l.cuts
	if l.needed {
		l.dx = grow(&l.dxRoom, l.n*l.in)
		parts += ceil(l.n, linearRows)
	}
	p.each(parts, l.backwardsPartial)
	p.ready(l.w.lo, l.b.hi)
	return l.dx
}

// backwardPart computes the gradient of some rows of w, of some rows of x, or of b, depending on
// part.
func (l *linear) backwardPart(part, _ int) {
	p := l.p
	switch {
	case part < l.cuts:
		lo, hi := cut(l.in, l.cuts, part)
		p.blas.Sgemm(true, false, hi-lo, l.out, l.n, 1, l.x[lo:], l.in, l.dy, l.out, p.keep(), l.w.of(p.grads)[lo*l.out:], l.out)
	case part == l.cuts:
		db := l.b.of(p.grads)
		if !p.more {
			clear(db)
		}
		p.dev.AddRowSums(db, l.dy, l.n)
	default:
		lo := (part - l.cuts - 1) * linearRows
		n := min(linearRows, l.n-lo)
		p.blas.Sgemm(false, true, n, l.in, l.out, 1, l.dy[lo*l.out:], l.out, l.w.of(p.params), l.out, 0, l.dx[lo*l.in:], l.in)
	}
}

// ceil returns the number of parts of the given size that n values make.
func ceil(n, size int) int { return (n + size - 1) / size }
