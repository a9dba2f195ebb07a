package blas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	gonumblas "gonum.org/v1/gonum/blas"
)

// A task is a product with all its operands.
type task struct {
	tA, tB        gonumblas.Transpose
	m, n, k       int
	alpha, beta   float32
	a, b, c       []float32
	lda, ldb, ldc int
}

// draw returns a product of the given size with random values and gaps between rows. C is NaN where
// it must not be read.
func draw(rng *rand.Rand, transposes, m, n, k int) *task {
	p := &task{tA: gonumblas.NoTrans, tB: gonumblas.NoTrans, m: m, n: n, k: k}
	rowsA, colsA, rowsB, colsB := m, k, k, n
	if transposes&1 != 0 {
		p.tA, rowsA, colsA = gonumblas.Trans, k, m
	}
	if transposes&2 != 0 {
		p.tB, rowsB, colsB = gonumblas.Trans, n, k
	}
	p.lda, p.ldb, p.ldc = colsA+rng.IntN(4), colsB+rng.IntN(4), n+rng.IntN(4)
	p.a, p.b, p.c = random(rng, rowsA*p.lda), random(rng, rowsB*p.ldb), random(rng, m*p.ldc)
	p.alpha = []float32{1, 1, -0.7}[rng.IntN(3)]
	p.beta = []float32{0, 1, 0.3}[rng.IntN(3)]
	if p.beta == 0 {
		for i := range m {
			for j := range n {
				p.c[i*p.ldc+j] = float32(math.NaN())
			}
		}
	}
	return p
}

func (p *task) String() string {
	return fmt.Sprintf("%c%c %d×%d×%d, alpha %g, beta %g, strides %d %d %d", p.tA, p.tB, p.m, p.n, p.k, p.alpha, p.beta, p.lda, p.ldb, p.ldc)
}

// by returns C as impl computes it, including the gaps between rows.
func (p *task) by(impl Implementation) []float32 {
	c := slices.Clone(p.c)
	impl.Sgemm(p.tA, p.tB, p.m, p.n, p.k, p.alpha, p.a, p.lda, p.b, p.ldb, p.beta, c, p.ldc)
	return c
}

// byDefinition computes C in the order that the comments of builtin and of gemm_body.h, in package vector, define.
func (p *task) byDefinition(fused bool) []float32 {
	multiplyAdd := func(a, b, c float32) float32 { return float32(a*b) + c }
	if fused {
		multiplyAdd = fma32
	}
	isDots := fused && longRows(p.tA, p.tB, p.m, p.n, p.k)
	c := slices.Clone(p.c)
	for i := range p.m {
		for j := range p.n {
			factors := func(l int) (float32, float32) { return p.a[at(p.tA, i, l, p.lda)], p.b[at(p.tB, l, j, p.ldb)] }
			to := &c[i*p.ldc+j]
			add := func(sum, beta float32) {
				if beta == 0 {
					*to = p.alpha * sum
				} else {
					*to = multiplyAdd(p.alpha, sum, float32(beta**to))
				}
			}
			if isDots {
				var lane [16]float32
				for l := range p.k {
					x, y := factors(l)
					lane[l%16] = multiplyAdd(x, y, lane[l%16])
				}
				for half := 8; half > 0; half /= 2 {
					for u := range half {
						lane[u] += lane[u+half]
					}
				}
				add(lane[0], p.beta)
				continue
			}
			for l := 0; l < p.k; l += 256 {
				var sum float32
				for r := l; r < min(l+256, p.k); r++ {
					x, y := factors(r)
					sum = multiplyAdd(x, y, sum)
				}
				beta := p.beta
				if l > 0 {
					beta = 1
				}
				add(sum, beta)
			}
		}
	}
	return c
}

// checkBits compares every level with the definition.
func checkBits(t *testing.T, p *task) {
	t.Helper()
	want := map[bool][]float32{false: p.byDefinition(false), true: nil}
	for _, level := range builtinLevels() {
		fused := level != plainGo
		if want[fused] == nil {
			want[fused] = p.byDefinition(fused)
		}
		for at, got := range p.by(&builtin{level: level, threads: 1}) {
			if w := want[fused][at]; math.Float32bits(got) != math.Float32bits(w) && !(got != got && w != w) {
				t.Fatalf("%s: %s: value %d is %x, the definition gives %x", levelName(level), p, at, got, w)
			}
		}
	}
}

// TestBuiltinHasTheBitsOfItsDefinition, for each tile and each way to copy, with every instruction
// set.
func TestBuiltinHasTheBitsOfItsDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	step, trials := 1, 60
	if testing.Short() {
		step, trials = 5, 5
	}
	for m := 1; m <= 40; m++ {
		for n := 1 + m%step; n <= 40; n += step {
			checkBits(t, draw(rng, m+n, m, n, 1+rng.IntN(40)))
		}
	}
	for transposes := range 4 { // across the edges of blocks: 256 of k, 288 of m, 512 of n
		for i, size := range [][3]int{{1, 1, 300}, {3, 530, 20}, {300, 5, 20}, {60, 40, 260}, {290, 515, 3}, {5, 7, 400}, {13, 70, 513}, {6, 25, 784}, {2, 512, 385}} {
			if testing.Short() && i%4 != transposes {
				continue
			}
			checkBits(t, draw(rng, transposes, size[0], size[1], size[2]))
		}
	}
	for trial := range trials {
		checkBits(t, draw(rng, trial, 1+rng.IntN(100), 1+rng.IntN(100), 1+rng.IntN(100)))
	}
}

// TestBuiltinIsWithinItsBound: with u = 2⁻²⁴ and any order, the error is at most (k + 3)·u times
// the sum of the absolute terms, to first order. 1 % covers the rest.
func TestBuiltinIsWithinItsBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	trials := 40
	if testing.Short() {
		trials = 8
	}
	for trial := range trials {
		p := draw(rng, trial, 1+rng.IntN(40), 1+rng.IntN(60), 1+rng.IntN(600))
		results := map[string][]float32{}
		for _, level := range builtinLevels() {
			results[levelName(level)] = p.by(&builtin{level: level, threads: 1})
		}
		for i := range p.m {
			for j := range p.n {
				var exact, terms float64
				if p.beta != 0 {
					exact = float64(p.beta) * float64(p.c[i*p.ldc+j])
					terms = math.Abs(exact)
				}
				for l := range p.k {
					x := float64(p.alpha) * float64(p.a[at(p.tA, i, l, p.lda)]) * float64(p.b[at(p.tB, l, j, p.ldb)])
					exact += x
					terms += math.Abs(x)
				}
				bound := 1.01 * float64(p.k+3) * 0x1p-24 * terms
				for level, c := range results {
					if e := math.Abs(float64(c[i*p.ldc+j]) - exact); !(e <= bound) {
						t.Fatalf("%s: %s: element (%d, %d) is off by %g, the bound is %g", level, p, i, j, e, bound)
					}
				}
			}
		}
	}
}

// TestBuiltinGivesEqualBitsForAnyNumberOfThreads, whichever side is cut.
func TestBuiltinGivesEqualBitsForAnyNumberOfThreads(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	for transposes, size := range [][3]int{{300, 100, 150}, {100, 300, 150}, {1000, 7, 600}, {2, 500, 5000}} {
		p := draw(rng, transposes, size[0], size[1], size[2])
		for _, level := range builtinLevels() {
			want := bits(p.by(&builtin{level: level, threads: 1}))
			for _, threads := range []int{2, 3, 8} {
				if !slices.Equal(bits(p.by(&builtin{level: level, threads: threads})), want) {
					t.Errorf("%s: %s: the bits differ between 1 and %d threads", levelName(level), p, threads)
				}
			}
		}
	}
}

// TestBuiltinPassesOnWhatIsNotFinite: a NaN or infinity reaches its row or column, even times 0,
// and nothing else.
func TestBuiltinPassesOnWhatIsNotFinite(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	for trial := range 100 {
		p := draw(rng, trial, 1+rng.IntN(40), 1+rng.IntN(40), 1+rng.IntN(40))
		p.beta, p.alpha = 0, 1
		clear(p.a)
		for l := range p.k {
			for j := range p.n {
				p.b[at(p.tB, l, j, p.ldb)] = 1
			}
		}
		row, column, l := rng.IntN(p.m), rng.IntN(p.n), rng.IntN(p.k)
		p.a[at(p.tA, row, l, p.lda)] = float32(math.Inf(-1))
		p.b[at(p.tB, l, column, p.ldb)] = float32(math.Inf(1))
		for _, level := range builtinLevels() {
			c := p.by(&builtin{level: level, threads: 1})
			for i := range p.m {
				for j := range p.n {
					want := 0.0
					switch {
					case i == row:
						want = math.Inf(-1) // 1 times infinity
					case j == column:
						want = math.NaN() // 0 times infinity
					}
					got := float64(c[i*p.ldc+j])
					if got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
						t.Fatalf("%s: %s: element (%d, %d) is %g, want %g", levelName(level), p, i, j, got, want)
					}
				}
			}
		}
	}
}

// TestBuiltinWithoutTerms: with alpha = 0 or k = 0 only beta counts, and neither A nor B is read.
func TestBuiltinWithoutTerms(t *testing.T) {
	nan := float32(math.NaN())
	for _, level := range builtinLevels() {
		impl := &builtin{level: level, threads: 1}
		for _, k := range []int{0, 2} {
			for beta, want := range map[float32][]float32{0: {0, 0, 9, 0, 0}, 1: {nan, 2, 9, 4, 5}, 0.5: {nan, 1, 9, 2, 2.5}} {
				c, ab := []float32{nan, 2, 9, 4, 5}, []float32{nan, nan, nan, nan}
				impl.Sgemm(gonumblas.NoTrans, gonumblas.NoTrans, 2, 2, k, 0, ab, 2, ab, 2, beta, c, 3)
				for i := range want {
					if c[i] != want[i] && !(c[i] != c[i] && want[i] != want[i]) {
						t.Errorf("%s: k %d, beta %g: %v, want %v", impl, k, beta, c, want)
						break
					}
				}
			}
		}
	}
}

func TestBuiltinAllocatesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	a, b, c := random(rng, 300*300), random(rng, 300*300), make([]float32, 300*300)
	for _, level := range builtinLevels() {
		g := GemmOf(&builtin{level: level, threads: 1})
		n := testing.AllocsPerRun(5, func() { g.Sgemm(true, true, 200, 300, 40, 1, a, 200, b, 40, 0, c, 300) })
		if n != 0 {
			t.Errorf("%s: %g allocations in a product", g, n)
		}
	}
}
