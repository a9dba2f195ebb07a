package blas

import (
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	gonumblas "gonum.org/v1/gonum/blas"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels/blas/internal/vector"
)

// opened returns each implementation this machine has.
func opened(t *testing.T) []Implementation {
	t.Helper()
	all := []Implementation{serial{}, parallel{}}
	for _, level := range builtinLevels() {
		all = append(all, &builtin{level: level, threads: 1})
	}
	for _, name := range []string{"openblas", "mkl"} {
		impl, err := Open(name, 1)
		if err != nil {
			if !errors.Is(err, errNotFound) {
				t.Fatal(err)
			}
			t.Logf("not tested: %v", err)
			continue
		}
		all = append(all, impl)
	}
	return all
}

func random(rng *rand.Rand, n int) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = rng.Float32()*2 - 1
	}
	return s
}

func wide(s []float32) []float64 {
	w := make([]float64, len(s))
	for i, v := range s {
		w[i] = float64(v)
	}
	return w
}

// TestProductsAgreeWithTheDefinition compares each product, in both precisions and all transpositions,
// with three loops in float64.
func TestProductsAgreeWithTheDefinition(t *testing.T) {
	trials := 60
	if testing.Short() {
		trials = 12
	}
	for _, impl := range opened(t) {
		rng := rand.New(rand.NewPCG(1, 2))
		for trial := range trials {
			m, n, k := rng.IntN(90), rng.IntN(260), rng.IntN(90)
			tA, tB := gonumblas.NoTrans, gonumblas.NoTrans
			rowsA, colsA, rowsB, colsB := m, k, k, n
			if trial&1 != 0 {
				tA, rowsA, colsA = gonumblas.Trans, k, m
			}
			if trial&2 != 0 {
				tB, rowsB, colsB = gonumblas.Trans, n, k
			}
			lda, ldb, ldc := max(1, colsA)+rng.IntN(3), max(1, colsB)+rng.IntN(3), max(1, n)+rng.IntN(3)
			alpha, beta := rng.Float32(), float32(trial%3)/2
			a, b, c := random(rng, rowsA*lda), random(rng, rowsB*ldb), random(rng, m*ldc)
			a64, b64, c64 := wide(a), wide(b), wide(c)
			want := wide(c)
			for i := range m {
				for j := range n {
					sum := 0.0
					for l := range k {
						sum += a64[at(tA, i, l, lda)] * b64[at(tB, l, j, ldb)]
					}
					want[i*ldc+j] = float64(alpha)*sum + float64(beta)*want[i*ldc+j]
				}
			}
			impl.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
			impl.Dgemm(tA, tB, m, n, k, float64(alpha), a64, lda, b64, ldb, float64(beta), c64, ldc)
			near(t, impl, "Sgemm", wide(c), want, 2e-5)
			near(t, impl, "Dgemm", c64, want, 1e-12)
		}
	}
}

func near(t *testing.T, impl Implementation, what string, got, want []float64, bound float64) {
	t.Helper()
	for i := range want {
		if math.Abs(got[i]-want[i]) > bound {
			t.Fatalf("%s: %s: value %d is %g, the definition gives %g", impl, what, i, got[i], want[i])
		}
	}
}

// TestVectorOperationsAgreeWithGonum covers what a library overrides besides products, with strides
// of both signs (except for outer products, as gonum's is wrong with negative ones).
func TestVectorOperationsAgreeWithGonum(t *testing.T) {
	reference := serial{}
	for _, impl := range opened(t) {
		rng := rand.New(rand.NewPCG(3, 4))
		for trial := range 40 {
			m, n := rng.IntN(40), rng.IntN(40)
			incX, incY := []int{1, 2, -1, -3}[trial%4], []int{1, -2, 3}[trial%3]
			x, y := random(rng, 40*3), random(rng, 40*3)
			a, lda := random(rng, 41*43), max(1, n)+1
			tr := []gonumblas.Transpose{gonumblas.NoTrans, gonumblas.Trans}[trial%2]
			run := func(l Implementation) (out32, out64 []float64) {
				y1, y2, a1 := slices.Clone(y), slices.Clone(y), slices.Clone(a)
				l.Saxpy(n, 0.5, x, incX, y1, incY)
				l.Sgemv(tr, m, n, 0.5, a, lda, x, incX, 0.25, y2, incY)
				l.Sger(m, n, 0.5, x, max(incX, 1), y, max(incY, 1), a1, lda)
				out32 = slices.Concat(wide(y1), wide(y2), wide(a1), []float64{float64(l.Sdot(n, x, incX, y, incY))})
				w1, w2, wa := wide(y), wide(y), wide(a)
				l.Daxpy(n, 0.5, wide(x), incX, w1, incY)
				l.Dgemv(tr, m, n, 0.5, wa, lda, wide(x), incX, 0.25, w2, incY)
				l.Dger(m, n, 0.5, wide(x), max(incX, 1), wide(y), max(incY, 1), wa, lda)
				return out32, slices.Concat(w1, w2, wa, []float64{l.Ddot(n, wide(x), incX, wide(y), incY)})
			}
			got32, got64 := run(impl)
			want32, want64 := run(reference)
			near(t, impl, "float32", got32, want32, 1e-5)
			near(t, impl, "float64", got64, want64, 1e-13)
		}
	}
}

// TestOneThreadOfGonumGivesTheSameBitsForAnyGOMAXPROCS is why gonum can be the reference.
func TestOneThreadOfGonumGivesTheSameBitsForAnyGOMAXPROCS(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const m, n, k = 130, 500, 70
	a, b := random(rng, m*k), random(rng, k*n)
	product := func(impl Implementation, procs int) []uint32 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		c := make([]float32, m*n)
		impl.Sgemm(gonumblas.NoTrans, gonumblas.Trans, m, n, k, 1, a, k, b, k, 0, c, n)
		return bits(c)
	}
	for _, impl := range []Implementation{serial{}, parallel{}} {
		want := product(impl, 1)
		for _, procs := range []int{2, 3, 8} {
			if !slices.Equal(product(impl, procs), want) {
				t.Errorf("%s: the bits of a product differ between GOMAXPROCS 1 and %d", impl, procs)
			}
		}
	}
}

// TestProductsRepeatAtAnyAlignment: equal parameters in another buffer must give an equal gradient.
func TestProductsRepeatAtAnyAlignment(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	const m, n, k = 33, 65, 129
	a, b := random(rng, m*k), random(rng, k*n)
	for _, impl := range opened(t) {
		if impl == (Implementation)(parallel{}) {
			continue // it does not promise that
		}
		for trial := range 4 {
			tA, lda, tB, ldb := gonumblas.NoTrans, k, gonumblas.NoTrans, n
			if trial&1 != 0 {
				tA, lda = gonumblas.Trans, m
			}
			if trial&2 != 0 {
				tB, ldb = gonumblas.Trans, k
			}
			var want []uint32
			for shift := range 9 {
				a2, b2 := append(make([]float32, shift), a...)[shift:], append(make([]float32, shift/2), b...)[shift/2:]
				c := make([]float32, m*n+shift)[shift:]
				impl.Sgemm(tA, tB, m, n, k, 1, a2, lda, b2, ldb, 0, c, n)
				if want == nil {
					want = bits(c)
				} else if !slices.Equal(bits(c), want) {
					t.Fatalf("%s: the bits of a product (%c, %c) depend on the alignment of its operands (shift %d)", impl, tA, tB, shift)
				}
			}
		}
	}
}

func bits(s []float32) []uint32 {
	u := make([]uint32, len(s))
	for i, v := range s {
		u[i] = math.Float32bits(v)
	}
	return u
}

func TestAWrongDimensionPanicsBeforeAnyLibrarySeesIt(t *testing.T) {
	for _, impl := range opened(t) {
		for name, call := range map[string]func(){
			"short A": func() {
				impl.Sgemm(gonumblas.NoTrans, gonumblas.NoTrans, 2, 2, 2, 1, make([]float32, 3), 2, make([]float32, 4), 2, 0, make([]float32, 4), 2)
			},
			"short C": func() {
				impl.Sgemm(gonumblas.NoTrans, gonumblas.NoTrans, 2, 2, 2, 1, make([]float32, 4), 2, make([]float32, 4), 2, 0, make([]float32, 3), 2)
			},
			"stride": func() {
				impl.Sgemm(gonumblas.NoTrans, gonumblas.NoTrans, 2, 2, 2, 1, make([]float32, 4), 1, make([]float32, 4), 2, 0, make([]float32, 4), 2)
			},
			"short y":   func() { impl.Saxpy(4, 1, make([]float32, 4), 1, make([]float32, 3), 1) },
			"increment": func() { impl.Sdot(4, make([]float32, 4), 0, make([]float32, 4), 1) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: %s was accepted", impl, name)
					}
				}()
				call()
			}()
		}
	}
}

func TestOpenNamesWhatItFound(t *testing.T) {
	impl, err := Open("gonum", 0)
	if err != nil || impl.String() != "gonum, 1 thread" {
		t.Errorf("Open(gonum, 0) = %v, %v", impl, err)
	}
	if impl, err = Open("auto", 1); err != nil {
		t.Errorf("Open(auto): %v", err)
	} else if !strings.HasSuffix(impl.String(), ", 1 thread") {
		t.Errorf("Open(auto) is called %q, which does not say how many threads it has", impl)
	}
	if impl, err = Open("openblas", 1); err == nil && !strings.HasPrefix(impl.String(), "OpenBLAS 0.") {
		t.Errorf("OpenBLAS is called %q, which does not say its version", impl)
	}
	if _, err = Open("atlas", 1); !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), "openblas") {
		t.Errorf("Open(atlas): %v, want a usage error that lists the names", err)
	}
	absent := library{kind: kindOpenBLAS, files: []string{"libkintsugi-has-no-such.so"}, install: "install it"}
	if _, err = openLibrary(absent, 1); !errors.Is(err, errNotFound) || !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("a library that is not installed: %v, want a usage error", err)
	}
}

// A library that does not know the processor is passed over for builtin, if that knows more of it.
func TestALibraryIsOutdatedWhereBuiltinKnowsMore(t *testing.T) {
	plain, avx2, avx512 := []int{plainGo}, []int{plainGo, assembly, vector.AVX2}, []int{plainGo, assembly, vector.AVX2, vector.AVX512}
	for _, c := range []struct {
		name                string
		plain, avx2, avx512 bool // with these levels
	}{
		{"OpenBLAS 0.3.21 (Prescott), 1 thread", false, true, true},
		{"OpenBLAS 0.3.21 (Haswell), 1 thread", false, false, true},
		{"OpenBLAS 0.3.21 (Zen), 1 thread", false, false, true},
		{"OpenBLAS 0.3.21 (SkylakeX), 1 thread", false, false, false},
		{"OpenBLAS 0.3.29 (Sapphirerapids), 1 thread", false, false, false},
		{"MKL", false, false, false},
	} {
		if a, b, d := outdated(c.name, plain), outdated(c.name, avx2), outdated(c.name, avx512); a != c.plain || b != c.avx2 || d != c.avx512 {
			t.Errorf("%s is outdated: %t on a processor without FMA, %t with AVX2, %t with AVX-512; want %t, %t, %t", c.name, a, b, d, c.plain, c.avx2, c.avx512)
		}
	}
}

// What is passed over is not what is taken.
func TestAutoTakesNoOutdatedLibrary(t *testing.T) {
	auto, err := Open("auto", 1)
	if err != nil {
		t.Fatal(err)
	}
	if names := Outdated(); slices.Contains(names, auto.String()) {
		t.Errorf("auto takes %s, and %q are outdated", auto, names)
	}
}
