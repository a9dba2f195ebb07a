package engine

import (
	"math"

	"github.com/kintsugi-ml/kintsugi/cuda"
)

// embedArgs mirrors EmbedArgs of cuda/kernel/sequence.cu.
type embedArgs struct {
	x, table, positions, y                  cuda.Ptr
	rows, length, width, tokens, accumulate uint64
}

// embedding is an Embedding.
type embedding struct {
	tokens, positions         tensor
	vocabulary, length, width int

	x    cuda.Ptr
	room room
}

func (l *embedding) args(p *pass, x, flat, y cuda.Ptr) embedArgs {
	return embedArgs{
		x: x, table: l.tokens.of(flat), positions: l.positions.of(flat), y: y,
		rows: uint64(p.n * l.length), length: uint64(l.length), width: uint64(l.width), tokens: uint64(l.vocabulary),
	}
}

func (l *embedding) forward(p *pass, x cuda.Ptr) cuda.Ptr {
	l.x = x
	n := p.n * l.length * l.width
	y := p.grow(&l.room, 4*n)
	a := l.args(p, x, p.params, y)
	cuda.Launch(p.q, "sequence", "embed", line(n), threads, &a)
	return y
}

func (l *embedding) backward(p *pass, dy cuda.Ptr) cuda.Ptr {
	a := l.args(p, l.x, p.grads, dy)
	a.accumulate = p.added()
	p.beside(func() {
		cuda.Launch(p.q, "sequence", "embed_gradient", [3]int{l.vocabulary + l.length, 1, 1}, threads, &a)
	})
	return 0
}

// normArgs mirrors NormArgs of cuda/kernel/sequence.cu.
type normArgs struct {
	x, w, b, dy, y, z, stats cuda.Ptr
	rows, width              uint64
}

// norm is a LayerNorm.
type norm struct {
	w, b        tensor
	rows, width int // rows of an example
	needed      bool

	z, stats                   cuda.Ptr
	yRoom, zRoom, statRoom, dx room
}

func (l *norm) forward(p *pass, x cuda.Ptr) cuda.Ptr {
	rows := p.n * l.rows
	l.z, l.stats = p.grow(&l.zRoom, 4*rows*l.width), p.grow(&l.statRoom, 4*rows)
	a := normArgs{
		x: x, w: l.w.of(p.params), b: l.b.of(p.params), y: p.grow(&l.yRoom, 4*rows*l.width), z: l.z, stats: l.stats,
		rows: uint64(rows), width: uint64(l.width),
	}
	cuda.Launch(p.q, "sequence", "layer_norm", warps(rows), threads, &a)
	return a.y
}

func (l *norm) backward(p *pass, dy cuda.Ptr) cuda.Ptr {
	rows, width := uint64(p.n*l.rows), uint64(l.width)
	p.beside(func() { p.columnSums(l.b.of(p.grads), dy, l.w.of(p.grads), l.z, int(rows), l.width) })
	if !l.needed {
		return 0
	}
	a := normArgs{w: l.w.of(p.params), dy: dy, y: p.grow(&l.dx, 4*int(rows)*l.width), z: l.z, stats: l.stats, rows: rows, width: width}
	cuda.Launch(p.q, "sequence", "layer_norm_gradient", warps(int(rows)), threads, &a)
	return a.y
}

// gelu is a GELU.
type gelu struct {
	values int
	needed bool

	x    cuda.Ptr
	room room
}

func (l *gelu) forward(p *pass, x cuda.Ptr) cuda.Ptr {
	l.x = x
	y := p.grow(&l.room, 4*p.n*l.values)
	p.each("gelu", y, x, 0, p.n*l.values)
	return y
}

func (l *gelu) backward(p *pass, dy cuda.Ptr) cuda.Ptr {
	if !l.needed {
		return 0
	}
	p.each("gelu_gradient", dy, l.x, dy, p.n*l.values)
	return dy
}

// softmaxArgs mirrors SoftmaxArgs of cuda/kernel/sequence.cu.
type softmaxArgs struct {
	p, d         cuda.Ptr
	rows, length uint64
	scale        float32
	_            uint32
}

// attention is an Attention. All its products are batches with one matrix for each head of each
// example.
type attention struct {
	length, heads, size int
	needed              bool

	x, weights                       cuda.Ptr
	weightRoom, yRoom, scoreRoom, dx room
}

// factor says where a factor of a product lies. Queries, keys and values are the thirds of a row of
// x. Results are rows of the length of one third. Scores are one square for each head.
type factor struct {
	at               cuda.Ptr
	ld, outer, inner uint64
}

func (l *attention) third(x cuda.Ptr, which int) factor {
	row := 3 * l.heads * l.size
	return factor{x + cuda.Ptr(4*which*l.heads*l.size), uint64(row), uint64(l.length * row), uint64(l.size)}
}

func (l *attention) result(y cuda.Ptr) factor {
	row := l.heads * l.size
	return factor{y, uint64(row), uint64(l.length * row), uint64(l.size)}
}

func (l *attention) scores(s cuda.Ptr) factor {
	return factor{s, uint64(l.length), uint64(l.heads * l.length * l.length), uint64(l.length * l.length)}
}

func (l *attention) multiply(p *pass, c, a, b factor, n, k int, flags uint32) {
	p.multiply(product{
		a: a.at, b: b.at, c: c.at, flags: flags, m: uint64(l.length), n: uint64(n), k: uint64(k),
		lda: a.ld, ldb: b.ld, ldc: c.ld, inners: uint64(l.heads),
		aOuter: a.outer, aInner: a.inner, bOuter: b.outer, bInner: b.inner, cOuter: c.outer, cInner: c.inner,
	}, p.n*l.heads)
}

func (l *attention) softmax(p *pass, kernel string, d cuda.Ptr) {
	rows := p.n * l.heads * l.length
	a := softmaxArgs{p: l.weights, d: d, rows: uint64(rows), length: uint64(l.length), scale: float32(1 / math.Sqrt(float64(l.size)))}
	cuda.Launch(p.q, "sequence", kernel, warps(rows), threads, &a)
}

func (l *attention) forward(p *pass, x cuda.Ptr) cuda.Ptr {
	l.x, l.weights = x, p.grow(&l.weightRoom, 4*p.n*l.heads*l.length*l.length)
	y := p.grow(&l.yRoom, 4*p.n*l.length*l.heads*l.size)
	weights := l.scores(l.weights)
	l.multiply(p, weights, l.third(x, 0), l.third(x, 1), l.length, l.size, bTransposed)
	l.softmax(p, "causal_softmax", 0)
	l.multiply(p, l.result(y), weights, l.third(x, 2), l.size, l.length, 0)
	return y
}

func (l *attention) backward(p *pass, dy cuda.Ptr) cuda.Ptr {
	if !l.needed {
		return 0
	}
	dx := p.grow(&l.dx, 4*p.n*l.length*3*l.heads*l.size)
	d := p.grow(&l.scoreRoom, 4*p.n*l.heads*l.length*l.length)
	weights, scores, result := l.scores(l.weights), l.scores(d), l.result(dy)
	l.multiply(p, scores, result, l.third(l.x, 2), l.length, l.size, bTransposed)
	l.softmax(p, "causal_softmax_gradient", d)
	l.multiply(p, l.third(dx, 0), scores, l.third(l.x, 1), l.size, l.length, 0)
	l.multiply(p, l.third(dx, 1), scores, l.third(l.x, 0), l.size, l.length, aTransposed)
	l.multiply(p, l.third(dx, 2), weights, result, l.size, l.length, aTransposed)
	return dx
}

// residual is the layers between a Fork and its Join. Their result is added to their input.
type residual struct {
	inside chain
	values int
	needed bool

	yRoom, dyRoom room
}

func (l *residual) prepare(p *pass) { l.inside.prepare(p) }

func (l *residual) forward(p *pass, x cuda.Ptr) cuda.Ptr {
	y := p.grow(&l.yRoom, 4*p.n*l.values)
	p.each("sum", y, l.inside.forward(p, x), x, p.n*l.values)
	return y
}

func (l *residual) backward(p *pass, dy cuda.Ptr) cuda.Ptr {
	kept := dy
	if !l.inside.keeps() {
		kept = p.grow(&l.dyRoom, 4*p.n*l.values)
		p.q.Copy(kept, dy, 4*p.n*l.values)
	}
	dx := l.inside.backward(p, dy)
	if dx == 0 || !l.needed {
		return 0
	}
	if kept == dy {
		p.meet() // what reads it on the side queue
	}
	p.each("sum", kept, kept, dx, p.n*l.values)
	return kept
}
