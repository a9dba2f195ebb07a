package blas

import (
	"fmt"
	"sync"

	gonumblas "gonum.org/v1/gonum/blas"

	"github.com/kintsugi-ml/kintsugi/kernels/blas/tile"
)

// builtin computes products by itself, and the rest of BLAS as the reference does.
//
// Each element of C is made of chains: a chain starts at +0 and adds products in ascending order, 256 values
// of k at most. C = alpha·chain + beta·C for the first chain, and alpha·chain + C for each that follows. With
// SIMD, a product and the sum it is added to are rounded once (FMA), as are alpha·chain and what it is added to;
// in plain Go each is rounded. So there are two results: one of every instruction set, one of plain Go, and
// neither depends on threads, addresses, strides or what lies in the operands.
//
// With SIMD, A·Bᵀ of few and long rows, as the gradient of a convolution's filters is, has 16 chains for
// each element: chain u adds the products of k = u, u + 16 and so on, and the chains are added by halves, u and u + 8
// first. Nothing needs to be copied then.
type builtin struct {
	serial
	level   int // an instruction set of gemm.h, or a level without C
	threads int
}

// The levels without C.
const (
	plainGo  = 0
	assembly = 8 // package tile
)

// goLevels returns those that this machine can run, the fastest last.
func goLevels() []int {
	if tile.Have {
		return []int{plainGo, assembly}
	}
	return []int{plainGo}
}

// longRows decides about bits, and so knows neither the instruction set nor the part that a thread computes.
func longRows(tA, tB gonumblas.Transpose, m, n, k int) bool {
	return tA == gonumblas.NoTrans && tB != gonumblas.NoTrans && m*n <= 1024 && k >= 384
}

// openBuiltin returns the fastest that this machine has.
func openBuiltin(threads int) *builtin {
	levels := builtinLevels()
	return &builtin{level: levels[len(levels)-1], threads: threads}
}

func (g *builtin) String() string {
	return fmt.Sprintf("builtin %s, %s", levelName(g.level), plural(g.threads))
}

// perThread is the least number of products that is worth a goroutine: some 20 µs of work.
const perThread = 1 << 20

// Sgemm computes C = alpha·op(A)·op(B) + beta·C. Exact among instruction sets, bounded between these and plain Go.
func (g *builtin) Sgemm(tA, tB gonumblas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	checkGemm(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	if m == 0 || n == 0 {
		return
	}
	if k == 0 || alpha == 0 {
		for i := range m {
			scaleRow(c[i*ldc:i*ldc+n], beta)
		}
		return
	}
	dots := longRows(tA, tB, m, n, k)
	parts := min(g.threads, m*n*k/perThread)
	if parts <= 1 {
		g.part(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, dots)
		return
	}
	var wg sync.WaitGroup
	// Parts begin at multiples of 48, which no tile of any instruction set straddles.
	step := (max(m, n)/parts + 47) / 48 * 48
	for lo := 0; lo < max(m, n); lo += step {
		wg.Go(func() {
			if m > n {
				g.part(tA, tB, min(step, m-lo), n, k, alpha, a[at(tA, lo, 0, lda):], lda, b, ldb, beta, c[lo*ldc:], ldc, dots)
			} else {
				g.part(tA, tB, m, min(step, n-lo), k, alpha, a, lda, b[at(tB, 0, lo, ldb):], ldb, beta, c[lo:], ldc, dots)
			}
		})
	}
	wg.Wait()
}

// part computes a product, or a part of one, on the calling goroutine.
func (g *builtin) part(tA, tB gonumblas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int, dots bool) {
	switch {
	case g.level == assembly && dots:
		goDots(tilings[assembly], m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	case g.level == assembly || g.level == plainGo:
		goGemm(tilings[g.level], tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	simdGemm(g.level, tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, dots)
}

// scaleRow multiplies by beta, and by 0 makes 0 of anything.
func scaleRow(row []float32, beta float32) {
	if beta == 0 {
		clear(row)
		return
	}
	for j := range row {
		row[j] *= beta
	}
}

// arenas are the places for copies of operands. There are as many as products were ever computed at once, and
// they are kept: a garbage collection must not make a step allocate.
type arenas struct {
	mu   sync.Mutex
	free []*[arenaSize]float32
}

// arenaSize is kin_gemm_arena of gemm.h.
const arenaSize = 256*(288+512) + 16

func (p *arenas) get() *[arenaSize]float32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		a := p.free[n-1]
		p.free = p.free[:n-1]
		return a
	}
	return new([arenaSize]float32)
}

func (p *arenas) put(a *[arenaSize]float32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, a)
}

var builtinArenas arenas
