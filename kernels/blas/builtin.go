package blas

import (
	"fmt"
	"sync"

	gonumblas "gonum.org/v1/gonum/blas"

	"github.com/kintsugi-ml/kintsugi/kernels/blas/internal/vector"
	"github.com/kintsugi-ml/kintsugi/kernels/blas/tile"
)

// builtin computes products itself; serial does the rest of BLAS.
//
// Each element of C is made of chains. A chain starts at +0 and adds at most 256 products, in
// ascending order of k. For the first chain C = alpha·chain + beta·C, for each following one C =
// alpha·chain + C. With SIMD, a product and the addition that it feeds are rounded once (FMA), and so
// are alpha·chain and its addition; in plain Go each operation is rounded. So there are two possible
// results: one for all instruction sets, and one for plain Go. The operations never depend on
// threads, addresses, strides or the operands' values.
//
// With SIMD, A·Bᵀ of few, long rows, as in the gradient of a convolution's filters, has 16 chains
// for each element. Chain u adds the products of k = u, u + 16 and so on. The chains are added by
// halves, u and u + 8 first. That needs no copies of the operands.
type builtin struct {
	serial
	level   int // an instruction set of package vector, or a level without C
	threads int
}

// The levels without C.
const (
	plainGo  = 0
	assembly = 8 // package tile
)

// goLevels returns the levels without C that this machine can run, the fastest last.
func goLevels() []int {
	if tile.Have {
		return []int{plainGo, assembly}
	}
	return []int{plainGo}
}

// builtinLevels returns the levels that this machine can run, the fastest last.
func builtinLevels() []int { return append(goLevels(), vector.Sets()...) }

func levelName(level int) string {
	return [...]string{plainGo: "Go", assembly: "AVX2 without C", vector.AVX2: "AVX2", vector.AVX512: "AVX-512", vector.NEON: "NEON"}[level]
}

// longRows reports whether a product is computed with 16 chains for each element. It decides about
// bits, so it looks neither at the instruction set nor at the part that a thread computes.
func longRows(tA, tB gonumblas.Transpose, m, n, k int) bool {
	return tA == gonumblas.NoTrans && tB != gonumblas.NoTrans && m*n <= 1024 && k >= 384
}

// openBuiltin returns builtin with the fastest level of this machine.
func openBuiltin(threads int) *builtin {
	levels := builtinLevels()
	return &builtin{level: levels[len(levels)-1], threads: threads}
}

func (g *builtin) String() string {
	return fmt.Sprintf("builtin %s, %s", levelName(g.level), plural(g.threads))
}

// perThread is the least number of products that is worth a goroutine: about 20 µs of work.
const perThread = 1 << 20

// Sgemm computes C = alpha·op(A)·op(B) + beta·C. It is exact among instruction sets, and bounded
// between them and plain Go.
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
	// Parts begin at multiples of 48, so that no tile of any instruction set straddles two parts.
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
	arena := builtinArenas.get()
	vector.Product(g.level, tA != gonumblas.NoTrans, tB != gonumblas.NoTrans, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, arena, dots)
	builtinArenas.put(arena)
}

// scaleRow multiplies row by beta. A beta of 0 clears it, whatever it holds.
func scaleRow(row []float32, beta float32) {
	if beta == 0 {
		clear(row)
		return
	}
	for j := range row {
		row[j] *= beta
	}
}

// arenas is a pool of memory for copies of operands. It has as many arenas as products were ever
// computed at once. Unlike a sync.Pool it keeps them: a garbage collection must not make a step
// allocate.
type arenas struct {
	mu   sync.Mutex
	free []*[vector.Scratch]float32
}

func (p *arenas) get() *[vector.Scratch]float32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		a := p.free[n-1]
		p.free = p.free[:n-1]
		return a
	}
	return new([vector.Scratch]float32)
}

func (p *arenas) put(a *[vector.Scratch]float32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, a)
}

var builtinArenas arenas
