package blas

import (
	"math"

	gonumblas "gonum.org/v1/gonum/blas"

	"github.com/kintsugi-ml/kintsugi/kernels/blas/tile"
)

// The product without C. It copies both operands into panels, so that a tile of C reads consecutive
// values, and computes tiles whose sums stay in registers.
const (
	chain     = 256 // kin_gemm_depth of vector: after so many products a sum over k is rounded into C
	plainRows = 72  // rows of A in one copy, 72 KiB; a multiple of each tile's rows
	plainCols = 256 // columns of B in one copy, 256 KiB
)

// tiling is the innermost loop of a product without C: it computes tiles of rows×cols elements.
type tiling struct {
	rows, cols int
	fused      bool // a product and the addition that it feeds are rounded once

	// chains sets the first rows·cols values of sum to the chains of two panels, of depth products
	// each.
	chains func(depth int, a, b []float32, sum *[96]float32)
}

var tilings = map[int]tiling{
	plainGo:  {4, 2, false, plainChains},
	assembly: {6, 16, true, tile.Chains},
}

// goGemm computes C = alpha·op(A)·op(B) + beta·C. m, n and k are positive.
func goGemm(t tiling, tA, tB gonumblas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	arena := builtinArenas.get()
	defer builtinArenas.put(arena)
	copyA, copyB := arena[:plainRows*chain], arena[plainRows*chain:][:plainCols*chain]
	sum := (*[96]float32)(arena[(plainRows+plainCols)*chain:])
	for j := 0; j < n; j += plainCols {
		cols := min(plainCols, n-j)
		for l := 0; l < k; l += chain {
			depth := min(chain, k-l)
			copyPanels(copyB, t.cols, b[at(tB, l, j, ldb):], cols, depth, ldb, tB != gonumblas.NoTrans)
			scale := beta
			if l > 0 {
				scale = 1
			}
			for i := 0; i < m; i += plainRows {
				rows := min(plainRows, m-i)
				copyPanels(copyA, t.rows, a[at(tA, i, l, lda):], rows, depth, lda, tA == gonumblas.NoTrans)
				t.block(copyA, copyB, sum, rows, cols, depth, alpha, scale, c[i*ldc+j:], ldc)
			}
		}
	}
}

// copyPanels copies count vectors of depth values into panels of width vectors. A panel holds value
// 0 of all its vectors, then value 1, and so on. The last panel is padded with 0. The vectors are
// rows of from, or its columns if rows is false.
func copyPanels(to []float32, width int, from []float32, count, depth, ld int, rows bool) {
	for v := 0; v < count; v += width {
		panel := to[v*depth:][:width*depth]
		n := min(width, count-v)
		if n < width {
			clear(panel)
		}
		if rows {
			for u := range n {
				for l, x := range from[(v+u)*ld:][:depth] {
					panel[l*width+u] = x
				}
			}
			continue
		}
		for l := range depth {
			copy(panel[l*width:][:n], from[l*ld+v:])
		}
	}
}

// block adds the products of two copies to a block of C.
func (t tiling) block(a, b []float32, sum *[96]float32, rows, cols, depth int, alpha, beta float32, c []float32, ldc int) {
	for j := 0; j < cols; j += t.cols {
		panel := b[j*depth:][:t.cols*depth]
		for i := 0; i < rows; i += t.rows {
			t.chains(depth, a[i*depth:][:t.rows*depth], panel, sum)
			for r := range min(t.rows, rows-i) {
				t.add(c[(i+r)*ldc+j:][:min(t.cols, cols-j)], sum[r*t.cols:], alpha, beta)
			}
		}
	}
}

// add sets c to alpha·sum + beta·c.
func (t tiling) add(c, sum []float32, alpha, beta float32) {
	sum = sum[:len(c)]
	switch {
	case beta == 0:
		for s, v := range sum {
			c[s] = alpha * v
		}
	case t.fused && alpha != 1: // multiplying by 1 rounds nothing
		for s, v := range sum {
			c[s] = fma32(alpha, v, float32(beta*c[s]))
		}
	default:
		for s, v := range sum {
			c[s] = float32(alpha*v) + float32(beta*c[s])
		}
	}
}

// goDots computes A·Bᵀ with 16 chains for each element, for long rows: see builtin.
func goDots(t tiling, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	for i := range m {
		for j := range n {
			var lane [16]float32
			x, y := a[i*lda:][:k], b[j*ldb:][:k]
			for l := tile.Lanes(x, y, &lane); l < k; l++ {
				lane[l%16] = fma32(x[l], y[l], lane[l%16])
			}
			for half := 8; half > 0; half /= 2 {
				for u := range half {
					lane[u] += lane[u+half]
				}
			}
			t.add(c[i*ldc+j:][:1], lane[:], alpha, beta)
		}
	}
}

// fma32 returns a·b + c, rounded once. The product is exact in float64. The sum is rounded to odd
// there, so that rounding it again to float32 gives the correctly rounded sum.
func fma32(a, b, c float32) float32 {
	x, y := float64(a)*float64(b), float64(c)
	sum := x + y
	if math.IsNaN(sum) || math.IsInf(sum, 0) {
		return float32(sum)
	}
	part := sum - x
	missing := float64(x-float64(sum-part)) + float64(y-part)
	if missing != 0 && math.Float64bits(sum)&1 == 0 {
		sum = math.Nextafter(sum, math.Copysign(math.Inf(1), missing))
	}
	return float32(sum)
}

// plainChains computes 4 × 2 chains. Each product is rounded before it is added.
func plainChains(depth int, a, b []float32, sum *[96]float32) {
	var s00, s01, s10, s11, s20, s21, s30, s31 float32
	for len(a) >= 4 && len(b) >= 2 {
		b0, b1 := b[0], b[1]
		x := a[0]
		s00 += float32(x * b0)
		s01 += float32(x * b1)
		x = a[1]
		s10 += float32(x * b0)
		s11 += float32(x * b1)
		x = a[2]
		s20 += float32(x * b0)
		s21 += float32(x * b1)
		x = a[3]
		s30 += float32(x * b0)
		s31 += float32(x * b1)
		a, b = a[4:], b[2:]
	}
	copy(sum[:], []float32{s00, s01, s10, s11, s20, s21, s30, s31})
}
