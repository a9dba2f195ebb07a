package engine

import "github.com/kintsugi-ml/kintsugi/cuda"

// product is GemmArgs of cuda/kernel/gemm.cu: c = a·b of m×k and k×n, for each matrix of a batch.
type product struct {
	a, b, bias, c                                          cuda.Ptr
	m, n, k                                                uint64
	lda, ldb, ldc                                          uint64
	inners, aOuter, aInner, bOuter, bInner, cOuter, cInner uint64
	flags, _                                               uint32
}

// Flags of a product.
const (
	aTransposed = 1 << iota
	bTransposed
	accumulate
	withReLU
	biasOfRows
)

const productTile = 64

// multiply queues a product of a batch of matrices.
func (p *pass) multiply(g product, batch int) {
	if g.inners == 0 {
		g.inners = 1
	}
	kernel := "gemm_fp32"
	if p.tf32 {
		kernel = "gemm_tf32"
	}
	cuda.Launch(p.q, "gemm", kernel, [3]int{ceil(int(g.n), productTile), ceil(int(g.m), productTile), batch}, threads, &g)
}

// keep is the flag for gradients that are added to those of earlier pieces.
func (p *pass) keep() uint32 {
	if p.more {
		return accumulate
	}
	return 0
}

// sumArgs is SumArgs of cuda/kernel/layer.cu: sums of x, or of x·y, over outers and inners, for each column.
type sumArgs struct {
	sum, x, y                            cuda.Ptr
	outers, inners, outer, column, inner uint64
	accumulate                           uint64
}

func (p *pass) sums(columns int, a sumArgs) {
	if p.more {
		a.accumulate = 1
	}
	cuda.Launch(p.q, "layer", "sums", [3]int{columns, 1, 1}, threads, &a)
}

// dense is a Dense with the ReLU behind it if there is one, or a Linear: y = x·w + b of each row.
type dense struct {
	w, b    tensor
	rows    int // of an example
	in, out int
	relu    bool
	needed  bool

	x, y          cuda.Ptr
	yRoom, dxRoom room
}

func (l *dense) forward(p *pass, x cuda.Ptr) cuda.Ptr {
	rows := p.n * l.rows
	l.x, l.y = x, p.grow(&l.yRoom, 4*rows*l.out)
	g := product{
		a: x, b: l.w.of(p.params), bias: l.b.of(p.params), c: l.y,
		m: uint64(rows), n: uint64(l.out), k: uint64(l.in), lda: uint64(l.in), ldb: uint64(l.out), ldc: uint64(l.out),
	}
	if l.relu {
		g.flags = withReLU
	}
	p.multiply(g, 1)
	return l.y
}

func (l *dense) backward(p *pass, dy cuda.Ptr) cuda.Ptr {
	rows, in, out := uint64(p.n*l.rows), uint64(l.in), uint64(l.out)
	if l.relu {
		p.each("relu_gradient", dy, l.y, dy, int(rows)*l.out)
	}
	p.sums(l.out, sumArgs{sum: l.b.of(p.grads), x: dy, outers: rows, inners: 1, outer: out, column: 1})
	p.multiply(product{
		a: l.x, b: dy, c: l.w.of(p.grads), flags: aTransposed | p.keep(),
		m: in, n: out, k: rows, lda: in, ldb: out, ldc: out,
	}, 1)
	if !l.needed {
		return 0
	}
	dx := p.grow(&l.dxRoom, 4*int(rows)*l.in)
	p.multiply(product{
		a: dy, b: l.w.of(p.params), c: dx, flags: bTransposed,
		m: rows, n: in, k: out, lda: out, ldb: out, ldc: in,
	}, 1)
	return dx
}
