package blas

import gonumblas "gonum.org/v1/gonum/blas"

// The product in plain Go: copies of both operands, in which a tile of C finds its values one after the other,
// and tiles whose sums stay in registers.
const (
	chain     = 256 // kin_gemm_depth of gemm.h: where a sum over k is rounded into C
	plainRows = 64  // of A in one copy; 64 KiB
	plainCols = 256 // of B in one copy; 256 KiB
	tileRows  = 4
	tileCols  = 2
)

// plainGemm computes C = alpha·op(A)·op(B) + beta·C; m, n, k are positive. Exact: nothing is contracted.
func plainGemm(tA, tB gonumblas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	arena := builtinArenas.get()
	defer builtinArenas.put(arena)
	copyA, copyB := arena[:plainRows*chain], arena[plainRows*chain:][:plainCols*chain]
	for j := 0; j < n; j += plainCols {
		cols := min(plainCols, n-j)
		for l := 0; l < k; l += chain {
			depth := min(chain, k-l)
			copyPanels(copyB, tileCols, b[at(tB, l, j, ldb):], cols, depth, ldb, tB != gonumblas.NoTrans)
			scale := beta
			if l > 0 {
				scale = 1
			}
			for i := 0; i < m; i += plainRows {
				rows := min(plainRows, m-i)
				copyPanels(copyA, tileRows, a[at(tA, i, l, lda):], rows, depth, lda, tA == gonumblas.NoTrans)
				plainBlock(copyA, copyB, rows, cols, depth, alpha, scale, c[i*ldc+j:], ldc)
			}
		}
	}
}

// copyPanels copies count vectors of depth values to panels of width: value l of all vectors of a panel, then the
// next. The last panel is filled up with 0. Vectors are rows of from, or else columns.
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

// plainBlock adds a block of C from copies.
func plainBlock(a, b []float32, rows, cols, depth int, alpha, beta float32, c []float32, ldc int) {
	for j := 0; j < cols; j += tileCols {
		panel := b[j*depth:][:tileCols*depth]
		for i := 0; i < rows; i += tileRows {
			sum := plainTile(a[i*depth:][:tileRows*depth], panel)
			for r := range min(tileRows, rows-i) {
				to := c[(i+r)*ldc+j:][:min(tileCols, cols-j)]
				for s := range to {
					v := float32(alpha * sum[r*tileCols+s])
					if beta != 0 {
						v += float32(beta * to[s])
					}
					to[s] = v
				}
			}
		}
	}
}

// plainTile returns the chains of 4 × 2 elements.
func plainTile(a, b []float32) (sum [tileRows * tileCols]float32) {
	var s00, s01, s10, s11, s20, s21, s30, s31 float32
	for len(a) >= tileRows && len(b) >= tileCols {
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
		a, b = a[tileRows:], b[tileCols:]
	}
	return [...]float32{s00, s01, s10, s11, s20, s21, s30, s31}
}
