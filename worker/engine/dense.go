package engine

// dense is a Dense, with the following ReLU if there is one: y = max(0, x·w + b).
type dense struct {
	w, b    tensor
	in, out int
	relu    bool
	needed  bool
	parts   int // number of parts: of w's columns forward, of its rows backward

	p         *pass
	x, y      []float32
	dy, dx    []float32
	yRoom     []float32
	dxRoom    []float32
	forwards  func(part, lane int)
	backwards func(part, lane int)
}

// partValues is the number of weights of a dense layer in one part. It is small enough to divide a
// model's large layers, and large enough that reading x again in each part does not matter.
const partValues = 1 << 16

func newDense(w, b tensor, in, out int, relu, needed bool) *dense {
	l := &dense{w: w, b: b, in: in, out: out, relu: relu, needed: needed}
	l.parts = min(max(1, in*out/partValues), 8, max(1, in/16), max(1, out/16))
	l.forwards, l.backwards = l.forwardPart, l.backwardPart
	return l
}

// cut returns part i of n values. The parts begin at multiples of 16, and their lengths differ by
// at most 16.
func cut(n, parts, i int) (lo, hi int) {
	lo, hi = n*i/parts&^15, n*(i+1)/parts&^15
	if i == parts-1 {
		hi = n
	}
	return lo, hi
}

func (l *dense) forward(p *pass, x []float32) []float32 {
	p.need(l.w.lo, l.b.hi)
	l.p, l.x, l.y = p, x, grow(&l.yRoom, p.n*l.out)
	p.each(l.parts, l.forwards)
	return l.y
}

func (l *dense) forwardPart(part, _ int) {
	p := l.p
	lo, hi := cut(l.out, l.parts, part)
	w, bias := l.w.of(p.params), l.b.of(p.params)
	p.blas.Sgemm(false, false, p.n, hi-lo, l.in, 1, l.x, l.in, w[lo:], l.out, 0, l.y[lo:], l.out)
	p.dev.AddBias(l.y[lo:], l.out, p.n, bias[lo:hi], l.relu)
}

func (l *dense) backward(p *pass, dy []float32) []float32 {
	l.p, l.dy, l.dx = p, dy, nil
	if l.needed {
		l.dx = grow(&l.dxRoom, p.n*l.in)
	}
	if l.relu {
		p.dev.ReLUGradient(dy, l.y, dy)
	}
	db := l.b.of(p.grads)
	if !p.more {
		clear(db)
	}
	p.dev.AddRowSums(db, dy, p.n)
	p.each(l.parts, l.backwards)
	p.ready(l.w.lo, l.b.hi)
	return l.dx
}

// backwardPart computes the gradient of rows [lo, hi) of w, and of columns [lo, hi) of x.
func (l *dense) backwardPart(part, _ int) {
	p := l.p
	lo, hi := cut(l.in, l.parts, part)
	w, dw := l.w.of(p.params), l.w.of(p.grads)
	p.blas.Sgemm(true, false, hi-lo, l.out, p.n, 1, l.x[lo:], l.in, l.dy, l.out, p.keep(), dw[lo*l.out:], l.out)
	if l.dx != nil {
		p.blas.Sgemm(false, true, p.n, hi-lo, l.out, 1, l.dy, l.out, w[lo*l.out:], l.out, 0, l.dx[lo:], l.in)
	}
}
