package engine

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kintsugi-ml/kintsugi/cuda"
)

// Products says what multiplies matrices.
type Products int

const (
	// Own means the kernels of cuda/kernel. A gradient has the same bits on every GPU; with rounded
	// factors, on every GPU of one kind.
	Own Products = iota

	// CuBLAS means NVIDIA's library. It computes all products except those of attention, whose
	// batches have two levels. A gradient has the same bits in every run with the same version of
	// the library on the same kind of GPU.
	CuBLAS

	// Fastest means CuBLAS if it can be used, otherwise Own.
	Fastest
)

// DescribeProducts names what computes the products with Fastest on this device. Errors are those
// of a queue.
func DescribeProducts(d *cuda.Device) (string, error) {
	q, err := d.NewQueue()
	if err != nil {
		return "", err
	}
	e := &Engine{q: q, pass: pass{lane: lane{q: q}}}
	err = e.openProducts(Options{Products: Fastest})
	return e.products, errors.Join(err, q.Close())
}

// openProducts opens what multiplies matrices.
func (e *Engine) openProducts(o Options) error {
	e.products = "kernels of this program"
	if o.Products == Own {
		return nil
	}
	b, err := e.pass.q.OpenBLAS(o.Library, o.Precision)
	var side *cuda.BLAS
	if err == nil && e.pass.side.q != nil {
		side, err = e.pass.side.q.OpenBLAS(o.Library, o.Precision)
	}
	switch {
	case err == nil:
		e.pass.blas, e.pass.side.blas, e.products = b, side, b.String()
	case o.Products == CuBLAS:
		return err
	default:
		e.products = fmt.Sprintf("%s (%v)", e.products, err)
	}
	return nil
}

// Products names what multiplies matrices. It says why that is not cuBLAS although cuBLAS was
// preferred, and to which format factors are rounded, if they are.
func (e *Engine) Products() string {
	if e.pass.precision != cuda.FP32 {
		return fmt.Sprintf("%s, %v", e.products, e.pass.precision)
	}
	return e.products
}

// product mirrors GemmArgs of cuda/kernel/gemm.cu: c = a·b of m×k and k×n, for each matrix of a
// batch.
type product struct {
	a, b, bias, c                                          cuda.Ptr
	m, n, k                                                uint64
	lda, ldb, ldc                                          uint64
	inners, aOuter, aInner, bOuter, bInner, cOuter, cInner uint64
	all                                                    uint64
	flags, _                                               uint32
}

// The flags of a product.
const (
	aTransposed = 1 << iota
	bTransposed
	accumulate
	withReLU
	biasOfRows
)

// The sides of the tile of C that a block computes: see gemm.cu.
const (
	smallTile = 64
	largeTile = 128
)

// leastLarge is the number of blocks from which on tiles are large: about two for each
// multiprocessor of an H200, so that none is idle. It is an estimate that was never measured on a
// GPU. Bits do not depend on it.
const leastLarge = 256

// tile returns the kernel for a product of m rows and n columns, and the side of its tiles.
func (p *pass) tile(m, n, batch int) (kernel string, side int) {
	kernel = "gemm_" + strings.ToLower(p.precision.String())
	if min(m, n) >= largeTile && ceil(m, largeTile)*ceil(n, largeTile)*batch >= leastLarge {
		return kernel + "_large", largeTile
	}
	return kernel, smallTile
}

// multiply queues the products of a batch of matrices.
func (p *pass) multiply(g product, batch int) {
	if parts, _ := p.parts(&g, batch); batch == 1 && parts > 1 {
		p.multiplySum(g, batch)
		return
	}
	p.multiplyEach(g, batch)
}

// multiplyEach queues the products of a batch of matrices, without splitting any into parts.
func (p *pass) multiplyEach(g product, batch int) {
	if p.blas != nil && p.byLibrary(&g, batch) {
		if g.bias == 0 && g.flags&withReLU == 0 {
			return
		}
		// The library knows neither bias nor ReLU. A product with k = 0 then adds the bias to what
		// is in C and applies the ReLU.
		g.k, g.flags = 0, g.flags&(withReLU|biasOfRows)|accumulate
	}
	if g.inners == 0 {
		g.inners = 1
	}
	kernel, side := p.tile(int(g.m), int(g.n), batch)
	cuda.Launch(p.q, "gemm", kernel, [3]int{ceil(int(g.n), side), ceil(int(g.m), side), batch}, threads, &g)
}

// Products of fewer tiles than leastLarge are split along k, if k is at least leastSplit, into
// parts of at least leastPart values: the gain must outweigh the launch that adds the parts. The
// numbers are estimates that were never measured on a GPU. The order of a sum depends on them.
const (
	leastPart  = 64
	leastSplit = 256
	partStep   = 32 // lengths of parts are multiples of it: a block multiplies so many values at a time
	manyParts  = 32 // from more parts on, column_sums adds them, with as many threads for each value
)

// parts returns the number of parts along k into which each product of a batch is split, and the
// length of a part; the last one may be shorter. It takes as many parts as give all multiprocessors
// work.
func (p *pass) parts(g *product, batch int) (parts, part int) {
	k, most := int(g.k), leastLarge/(ceil(int(g.m), smallTile)*ceil(int(g.n), smallTile)*batch)
	if p.blas != nil || g.inners > 1 || k < leastSplit || most < 2 {
		return 1, k
	}
	part = ceil(ceil(k, min(k/leastPart, most)), partStep) * partStep
	return ceil(k, part), part
}

// partsArgs mirrors PartsArgs of cuda/kernel/layer.cu.
type partsArgs struct {
	sum, parts, bias  cuda.Ptr
	count, n, columns uint64
	accumulate, relu  uint32
}

// multiplySum queues the sum of the products of a batch, each split along k if that helps. c
// receives the sum; its rows are contiguous.
func (p *pass) multiplySum(g product, batch int) {
	size := g.m * g.n
	sum := partsArgs{sum: g.c, bias: g.bias, n: size, columns: g.n, accumulate: g.flags & accumulate, relu: g.flags & withReLU}
	parts, part := p.parts(&g, batch)
	g.bias, g.ldc, g.flags = 0, g.n, g.flags&(aTransposed|bTransposed)
	if parts > 1 {
		g.all, g.k, g.inners, g.aInner, g.bInner, g.cInner = g.k, uint64(part), uint64(parts), uint64(part), uint64(part), size
		if g.flags&aTransposed != 0 {
			g.aInner *= g.lda
		}
		if g.flags&bTransposed == 0 {
			g.bInner *= g.ldb
		}
	}
	g.cOuter = uint64(parts) * size
	g.c = p.grow(&p.partRoom, 4*batch*parts*int(size))
	p.multiplyEach(g, batch*parts)
	sum.parts, sum.count = g.c, uint64(batch*parts)
	if sum.count > manyParts && sum.bias == 0 && sum.relu == 0 {
		p.sumColumns(columnSumsArgs{sum: sum.sum, x: sum.parts, rows: sum.count, columns: size, accumulate: uint64(sum.accumulate)})
		return
	}
	cuda.Launch(p.q, "layer", "sum_parts", line(int(size)), threads, &sum)
}

// byLibrary queues a product, without its bias and its ReLU, to cuBLAS if cuBLAS can take it: the
// matrices of a batch must lie at equal distances. It reports whether it has.
func (p *pass) byLibrary(g *product, batch int) bool {
	l := &cuda.Product{
		A: g.a, B: g.b, C: g.c, M: int(g.m), N: int(g.n), K: int(g.k), LDA: int(g.lda), LDB: int(g.ldb), LDC: int(g.ldc),
		StrideA: int(g.aOuter), StrideB: int(g.bOuter), StrideC: int(g.cOuter), Batch: batch,
		ATransposed: g.flags&aTransposed != 0, BTransposed: g.flags&bTransposed != 0, Accumulate: g.flags&accumulate != 0,
	}
	if g.inners > 1 || !p.blas.Fits(l) {
		return false
	}
	p.blas.Multiply(l)
	return true
}

// keep returns the flag accumulate if gradients are added to those of earlier pieces.
func (p *pass) keep() uint32 {
	if p.more {
		return accumulate
	}
	return 0
}

// rowSumsArgs mirrors RowSumsArgs of cuda/kernel/layer.cu.
type rowSumsArgs struct {
	sum, x        cuda.Ptr
	rows, columns uint64
}

// rowSums queues the sum of each row of x.
func (p *pass) rowSums(sum, x cuda.Ptr, rows, columns int) {
	cuda.Launch(p.q, "layer", "row_sums", warps(rows), threads, &rowSumsArgs{sum, x, uint64(rows), uint64(columns)})
}

// columnSumsArgs mirrors ColumnSumsArgs of cuda/kernel/layer.cu.
type columnSumsArgs struct {
	sum, products, x, y       cuda.Ptr
	rows, columns, accumulate uint64
}

// beside is the number of columns of a block of column_sums.
const beside = 8

// columnSums queues the sum of each column of x. Unless y is 0, it also queues, for each column,
// the sum of the products of the values of x and y. Both are parts of a gradient.
func (p *pass) columnSums(sum, x, products, y cuda.Ptr, rows, columns int) {
	p.sumColumns(columnSumsArgs{sum: sum, products: products, x: x, y: y, rows: uint64(rows), columns: uint64(columns), accumulate: p.added()})
}

func (p *pass) sumColumns(a columnSumsArgs) {
	cuda.Launch(p.q, "layer", "column_sums", [3]int{ceil(int(a.columns), beside), 1, 1}, threads, &a)
}

// added returns 1 if gradients are added to those of earlier pieces, otherwise 0.
func (p *pass) added() uint64 {
	if p.more {
		return 1
	}
	return 0
}

// dense is a Dense with the ReLU after it, if there is one, or a Linear: y = x·w + b for each row.
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
	p.beside(func() {
		p.columnSums(l.b.of(p.grads), dy, 0, 0, int(rows), l.out)
		p.multiply(product{
			a: l.x, b: dy, c: l.w.of(p.grads), flags: aTransposed | p.keep(),
			m: in, n: out, k: rows, lda: in, ldb: out, ldc: out,
		}, 1)
	})
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
