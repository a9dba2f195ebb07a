package engine

import (
	"github.com/kintsugi-ml/kintsugi/kernels/nn"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// embedding is an Embedding.
type embedding struct {
	tokens, positions tensor
	width             int

	p    *pass
	x, y []float32
	room []float32
	each func(part, lane int)
}

func newEmbedding(tokens, positions tensor, width int) *embedding {
	l := &embedding{tokens: tokens, positions: positions, width: width}
	l.each = l.forwardPart
	return l
}

func (l *embedding) forward(p *pass, x []float32) []float32 {
	p.need(l.tokens.lo, l.positions.hi)
	l.p, l.x, l.y = p, x, grow(&l.room, len(x)*l.width)
	p.each(p.n, l.each)
	return l.y
}

func (l *embedding) forwardPart(example, _ int) {
	n := len(l.x) / l.p.n
	lo, hi := example*n, (example+1)*n
	nn.Embed(l.y[lo*l.width:hi*l.width], l.x[lo:hi], l.tokens.of(l.p.params), l.positions.of(l.p.params), l.width)
}

// backward runs on one thread: many positions hold the same token, and their gradients must be
// added in order.
func (l *embedding) backward(p *pass, dy []float32) []float32 {
	tokens, positions := l.tokens.of(p.grads), l.positions.of(p.grads)
	if !p.more {
		clear(tokens)
		clear(positions)
	}
	nn.EmbedGradient(tokens, positions, dy, l.x, l.width)
	p.ready(l.tokens.lo, l.positions.hi)
	return nil
}

// norm is a LayerNorm.
type norm struct {
	w, b   tensor
	width  int
	needed bool

	p                   *pass
	x, y, stats, dy, dx []float32
	yRoom, statsRoom    []float32
	dw, db              []float32 // one row for each part
	dwRoom, dbRoom      []float32
	forwardsRows        func(part, lane int)
	backwardsRows       func(part, lane int)
}

// normRows is the number of rows in one part.
const normRows = 64

func newNorm(w, b tensor, width int, needed bool) *norm {
	l := &norm{w: w, b: b, width: width, needed: needed}
	l.forwardsRows, l.backwardsRows = l.forwardPart, l.backwardPart
	return l
}

// rows returns the range of values and the range of rows of a part.
func (l *norm) rows(part int) (lo, hi, first, last int) {
	first = part * normRows
	last = min(first+normRows, len(l.x)/l.width)
	return first * l.width, last * l.width, 2 * first, 2 * last
}

func (l *norm) forward(p *pass, x []float32) []float32 {
	p.need(l.w.lo, l.b.hi)
	l.p, l.x, l.y, l.stats = p, x, grow(&l.yRoom, len(x)), grow(&l.statsRoom, 2*(len(x)/l.width))
	p.each(ceil(len(x)/l.width, normRows), l.forwardsRows)
	return l.y
}

func (l *norm) forwardPart(part, _ int) {
	lo, hi, first, last := l.rows(part)
	l.p.dev.LayerNorm(l.y[lo:hi], l.stats[first:last], l.x[lo:hi], l.w.of(l.p.params), l.b.of(l.p.params))
}

func (l *norm) backward(p *pass, dy []float32) []float32 {
	parts := ceil(len(dy)/l.width, normRows)
	l.dw, l.db = grow(&l.dwRoom, parts*l.width), grow(&l.dbRoom, parts*l.width)
	l.p, l.dy, l.dx = p, dy, nil
	if l.needed {
		l.dx = dy
	}
	p.each(parts, l.backwardsRows)
	dw, db := l.w.of(p.grads), l.b.of(p.grads)
	if !p.more {
		clear(dw)
		clear(db)
	}
	p.dev.AddRowSums(dw, l.dw, parts)
	p.dev.AddRowSums(db, l.db, parts)
	p.ready(l.w.lo, l.b.hi)
	return l.dx
}

func (l *norm) backwardPart(part, _ int) {
	lo, hi, first, last := l.rows(part)
	dw, db := l.dw[part*l.width:][:l.width], l.db[part*l.width:][:l.width]
	clear(dw)
	clear(db)
	dx := l.dx
	if dx != nil {
		dx = dx[lo:hi]
	}
	l.p.dev.LayerNormGradient(dx, dw, db, l.dy[lo:hi], l.x[lo:hi], l.w.of(l.p.params), l.stats[first:last])
}

// gelu is a GELU.
type gelu struct {
	needed bool

	p         *pass
	x, y, dy  []float32
	room      []float32
	forwards  func(part, lane int)
	backwards func(part, lane int)
}

// geluValues is the number of values in one part.
const geluValues = 1 << 14

func newGELU(needed bool) *gelu {
	l := &gelu{needed: needed}
	l.forwards = func(part, _ int) {
		lo, hi := part*geluValues, min(len(l.x), (part+1)*geluValues)
		l.p.dev.GELU(l.y[lo:hi], l.x[lo:hi])
	}
	l.backwards = func(part, _ int) {
		lo, hi := part*geluValues, min(len(l.x), (part+1)*geluValues)
		l.p.dev.GELUGradient(l.dy[lo:hi], l.dy[lo:hi], l.x[lo:hi])
	}
	return l
}

func (l *gelu) forward(p *pass, x []float32) []float32 {
	l.p, l.x, l.y = p, x, grow(&l.room, len(x))
	p.each(ceil(len(x), geluValues), l.forwards)
	return l.y
}

func (l *gelu) backward(p *pass, dy []float32) []float32 {
	if !l.needed {
		return nil
	}
	l.p, l.dy = p, dy
	p.each(ceil(len(dy), geluValues), l.backwards)
	return dy
}

// attention is an Attention. A part is one head of one example.
type attention struct {
	heads  nn.Heads
	needed bool

	p                       *pass
	x, y, weights, dy, dx   []float32
	yRoom, weightRoom       []float32
	dxRoom, scratch         []float32 // scratch has a section for each thread
	forwardsHead, backwards func(part, lane int)
}

func newAttention(in model.Shape, l model.Attention, needed bool) *attention {
	a := &attention{heads: nn.Heads{Positions: in.Height, Heads: l.Heads, Size: in.Width / 3 / l.Heads}, needed: needed}
	a.forwardsHead, a.backwards = a.forwardPart, a.backwardPart
	return a
}

func (l *attention) forward(p *pass, x []float32) []float32 {
	l.p, l.x, l.y = p, x, grow(&l.yRoom, len(x)/3)
	l.weights = grow(&l.weightRoom, p.n*l.heads.Heads*l.heads.Weights())
	l.scratch = grow(&l.scratch, p.threads*l.heads.Scratch())
	p.each(p.n*l.heads.Heads, l.forwardsHead)
	return l.y
}

// of returns the arguments of a part: its head, the range of its example in x, its weights, and the
// scratch of its lane.
func (l *attention) of(part, lane int) (head, lo, hi int, weights, scratch []float32) {
	h := l.heads
	n := 3 * h.Positions * h.Heads * h.Size
	lo = part / h.Heads * n
	return part % h.Heads, lo, lo + n, l.weights[part*h.Weights():][:h.Weights()], l.scratch[lane*h.Scratch():][:h.Scratch()]
}

func (l *attention) forwardPart(part, lane int) {
	head, lo, hi, weights, scratch := l.of(part, lane)
	l.p.dev.Attention(l.heads, head, l.y[lo/3:hi/3], weights, l.x[lo:hi], scratch)
}

func (l *attention) backward(p *pass, dy []float32) []float32 {
	if !l.needed {
		return nil
	}
	l.p, l.dy, l.dx = p, dy, grow(&l.dxRoom, len(l.x))
	p.each(p.n*l.heads.Heads, l.backwards)
	return l.dx
}

func (l *attention) backwardPart(part, lane int) {
	head, lo, hi, weights, scratch := l.of(part, lane)
	l.p.dev.AttentionGradient(l.heads, head, l.dx[lo:hi], l.dy[lo/3:hi/3], weights, l.x[lo:hi], scratch)
}

// residual is the layers between a Fork and its Join. It adds its input to the result of these
// layers.
type residual struct {
	inside chain
	needed bool

	yRoom, dyRoom []float32
}

func (l *residual) forward(p *pass, x []float32) []float32 {
	inside := l.inside.forward(p, x)
	if inside == nil { // the context of the pass has ended
		return nil
	}
	y := grow(&l.yRoom, len(x))
	copy(y, inside)
	p.dev.AddRowSums(y, x, 1)
	return y
}

func (l *residual) backward(p *pass, dy []float32) []float32 {
	kept := grow(&l.dyRoom, len(dy)) // the inner layers overwrite dy
	copy(kept, dy)
	dx := l.inside.backward(p, dy)
	if dx == nil || !l.needed {
		return nil
	}
	p.dev.AddRowSums(kept, dx, 1)
	return kept
}
