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
	// Own is the kernels of cuda/kernel. A gradient has the same bits on every GPU; where factors are rounded, on every GPU of a kind.
	Own Products = iota

	// CuBLAS is NVIDIA's library, for all products but those of attention, whose batches have two levels. A gradient has the same bits in every
	// run with the same version of it on the same kind of GPU.
	CuBLAS

	// Fastest is CuBLAS where it can be used, else Own.
	Fastest
)

// DescribeProducts says what the fastest products of a device are computed by.
func DescribeProducts(d *cuda.Device) (string, error) {
	q, err := d.NewQueue()
	if err != nil {
		return "", err
	}
	e := &Engine{q: q}
	err = e.openProducts(Options{Products: Fastest})
	return e.products, errors.Join(err, q.Close())
}

// openProducts opens what multiplies matrices.
func (e *Engine) openProducts(o Options) error {
	e.products = "kernels of this program"
	if o.Products == Own {
		return nil
	}
	b, err := e.q.OpenBLAS(o.Library, o.Precision)
	switch {
	case err == nil:
		e.pass.blas, e.products = b, b.String()
	case o.Products == CuBLAS:
		return err
	default:
		e.products = fmt.Sprintf("%s (%v)", e.products, err)
	}
	return nil
}

// Products says what multiplies matrices, why it is not cuBLAS where that was preferred, and to what factors are rounded, if they are.
func (e *Engine) Products() string {
	if e.pass.precision != cuda.FP32 {
		return fmt.Sprintf("%s, %v", e.products, e.pass.precision)
	}
	return e.products
}

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

// Sides of the tile of C that a block has: see gemm.cu.
const (
	smallTile = 64
	largeTile = 128
)

// leastLarge is from how many blocks on there are large tiles: about two for each multiprocessor of an H200, so that none is idle. It is a guess, which no
// GPU has seen. Bits do not depend on it.
const leastLarge = 256

// tile returns what computes a product of m rows and n columns, and the side of its tiles.
func (p *pass) tile(m, n, batch int) (kernel string, side int) {
	kernel = "gemm_" + strings.ToLower(p.precision.String())
	if min(m, n) >= largeTile && ceil(m, largeTile)*ceil(n, largeTile)*batch >= leastLarge {
		return kernel + "_large", largeTile
	}
	return kernel, smallTile
}

// multiply queues a product of a batch of matrices.
func (p *pass) multiply(g product, batch int) {
	if p.blas != nil && p.byLibrary(&g, batch) {
		if g.bias == 0 && g.flags&withReLU == 0 {
			return
		}
		// The library knows neither: a product without factors adds what is behind one to what is there.
		g.k, g.flags = 0, g.flags&(withReLU|biasOfRows)|accumulate
	}
	if g.inners == 0 {
		g.inners = 1
	}
	kernel, side := p.tile(int(g.m), int(g.n), batch)
	cuda.Launch(p.q, "gemm", kernel, [3]int{ceil(int(g.n), side), ceil(int(g.m), side), batch}, threads, &g)
}

// byLibrary queues a product without its bias and its ReLU to cuBLAS, if that can be given it: matrices of a batch must lie at equal
// distances.
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

// keep is the flag for gradients that are added to those of earlier pieces.
func (p *pass) keep() uint32 {
	if p.more {
		return accumulate
	}
	return 0
}

// rowSumsArgs is RowSumsArgs of cuda/kernel/layer.cu.
type rowSumsArgs struct {
	sum, x        cuda.Ptr
	rows, columns uint64
}

// rowSums queues the sum of each row of x.
func (p *pass) rowSums(sum, x cuda.Ptr, rows, columns int) {
	cuda.Launch(p.q, "layer", "row_sums", warps(rows), threads, &rowSumsArgs{sum, x, uint64(rows), uint64(columns)})
}

// columnSumsArgs is ColumnSumsArgs of cuda/kernel/layer.cu.
type columnSumsArgs struct {
	sum, products, x, y       cuda.Ptr
	rows, columns, accumulate uint64
}

// beside is how many columns a block of column_sums has.
const beside = 8

// columnSums queues the sum of each column of x, and, unless y is 0, of the products of its values with those of y. They are parts of a gradient.
func (p *pass) columnSums(sum, x, products, y cuda.Ptr, rows, columns int) {
	a := columnSumsArgs{sum: sum, products: products, x: x, y: y, rows: uint64(rows), columns: uint64(columns), accumulate: p.added()}
	cuda.Launch(p.q, "layer", "column_sums", [3]int{ceil(columns, beside), 1, 1}, threads, &a)
}

// added is 1 if gradients are added to those of earlier pieces.
func (p *pass) added() uint64 {
	if p.more {
		return 1
	}
	return 0
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
	p.columnSums(l.b.of(p.grads), dy, 0, 0, int(rows), l.out)
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
