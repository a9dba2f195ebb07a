//go:build gpu && cgo && linux

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// productKernels are the kernels of kernel/gemm.cu, with the sides of their tiles.
var productKernels = map[string]int{
	"gemm_fp32": 64, "gemm_fp32_large": 128, "gemm_tf32": 64, "gemm_tf32_large": 128, "gemm_bf16": 64, "gemm_bf16_large": 128,
}

// gemmArgs is GemmArgs of kernel/gemm.cu.
type gemmArgs struct {
	a, b, bias, c                                          Ptr
	m, n, k                                                uint64
	lda, ldb, ldc                                          uint64
	inners, aOuter, aInner, bOuter, bInner, cOuter, cInner uint64
	_                                                      uint64 // all: no product is a part along k
	flags, _                                               uint32
}

// The flags of kernel/gemm.cu.
const (
	gemmATransposed = 1 << iota
	gemmBTransposed
	gemmAccumulate
	gemmReLU
	gemmBiasOfRows
)

// A stack has the matrices of a batch with two levels: value [i][j] of matrix z is at first + z /
// inners·outer + z % inners·inner + i·ld + j. Everything in between is NaN, which shows if it is
// read.
type stack struct {
	values                  []float32
	first, ld, outer, inner int
}

// batched is a batch of products of such matrices, with what is applied to them.
type batched struct {
	m, n, k, outers, inners int
	a, b, c                 stack
	bias                    []float32 // nil: none
	flags                   uint32
}

// drawStack draws matrices. If aligned, each row begins at a multiple of 4, which kernels may use.
func drawStack(rng *rand.Rand, rows, columns, outers, inners int, transposed, aligned bool) stack {
	if transposed {
		rows, columns = columns, rows
	}
	gap := func(n int) int {
		if aligned {
			return ceil(n, 4)*4 + 4*rng.IntN(2)
		}
		return n + rng.IntN(4)
	}
	x := stack{ld: max(1, gap(columns))}
	if !aligned {
		x.first = rng.IntN(4)
	}
	x.inner = gap(rows * x.ld)
	x.outer = gap(inners * x.inner)
	size := max(1, (rows-1)*x.ld+columns) // there is nothing behind the last value
	x.values = slices.Repeat([]float32{float32(math.NaN())}, x.at(outers*inners-1, inners)+size)
	for z := range outers * inners {
		for i := range rows {
			for j := range columns {
				x.values[x.at(z, inners)+i*x.ld+j] = float32(rng.NormFloat64())
			}
		}
	}
	return x
}

// at returns where matrix z begins.
func (x stack) at(z, inners int) int { return x.first + z/inners*x.outer + z%inners*x.inner }

func drawBatched(rng *rand.Rand, m, n, k int) batched {
	p := batched{m: m, n: n, k: k, outers: 1 + rng.IntN(2), inners: 1 + rng.IntN(2), flags: uint32(rng.IntN(2 * gemmBiasOfRows))}
	p.a = drawStack(rng, m, k, p.outers, p.inners, p.flags&gemmATransposed != 0, rng.IntN(2) == 0)
	p.b = drawStack(rng, k, n, p.outers, p.inners, p.flags&gemmBTransposed != 0, rng.IntN(2) == 0)
	p.c = drawStack(rng, m, n, p.outers, p.inners, false, false)
	if rng.IntN(2) == 0 {
		p.bias = draw(rng, max(m, n))
	}
	return p
}

// run computes p by a kernel and returns C.
func (p *batched) run(q *Queue, kernel string) ([]float32, error) {
	at := func(x stack) Ptr { return upload(q, x.values) + Ptr(4*x.first) }
	args := gemmArgs{
		a: at(p.a), b: at(p.b), c: at(p.c), m: uint64(p.m), n: uint64(p.n), k: uint64(p.k),
		lda: uint64(p.a.ld), ldb: uint64(p.b.ld), ldc: uint64(p.c.ld), inners: uint64(p.inners),
		aOuter: uint64(p.a.outer), aInner: uint64(p.a.inner), bOuter: uint64(p.b.outer), bInner: uint64(p.b.inner), cOuter: uint64(p.c.outer), cInner: uint64(p.c.inner),
		flags: p.flags,
	}
	if p.bias != nil {
		args.bias = upload(q, p.bias)
	}
	side := productKernels[kernel]
	Launch(q, "gemm", kernel, [3]int{ceil(p.n, side), ceil(p.m, side), p.outers * p.inners}, 256, &args)
	got := q.Pinned(4 * len(p.c.values))
	q.Out(got, args.c-Ptr(4*p.c.first))
	if err := q.Wait(); err != nil {
		return nil, err
	}
	c := make([]float32, len(p.c.values))
	copy(kernels.Bytes(c), got)
	return c, nil
}

// plain computes p with rounded factors in float64, and the sizes of its sums.
func (p *batched) plain(round func(float32) float32) (want, size []float64) {
	x, y := rounded(p.a.values, round), rounded(p.b.values, round)
	want, size = make([]float64, len(p.c.values)), make([]float64, len(p.c.values))
	for i, v := range p.c.values {
		want[i] = float64(v)
	}
	for z := range p.outers * p.inners {
		one := Product{
			M: p.m, N: p.n, K: p.k, LDA: p.a.ld, LDB: p.b.ld, LDC: p.c.ld, Batch: 1,
			ATransposed: p.flags&gemmATransposed != 0, BTransposed: p.flags&gemmBTransposed != 0, Accumulate: p.flags&gemmAccumulate != 0,
		}
		from := p.c.at(z, p.inners)
		sums, sizes := plain(one, x[p.a.at(z, p.inners):], y[p.b.at(z, p.inners):], p.c.values[from:])
		for i := range p.m {
			for j := range p.n {
				at := i*p.c.ld + j
				v, bias := sums[at], float32(0)
				if p.bias != nil {
					bias = p.bias[j]
				}
				if p.bias != nil && p.flags&gemmBiasOfRows != 0 {
					bias = p.bias[i]
				}
				v += float64(bias)
				if p.flags&gemmReLU != 0 {
					v = max(v, 0)
				}
				want[from+at], size[from+at] = v, sizes[at]+math.Abs(float64(bias))
			}
		}
	}
	return want, size
}

func rounded(x []float32, round func(float32) float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = round(v)
	}
	return y
}

// nearest returns a function that rounds to a number of bits: to the nearer neighbour, and of two
// equally near ones to the even one, or to the larger in magnitude.
func nearest(bits int, even bool) func(float32) float32 {
	step := uint32(1) << (24 - bits)
	return func(v float32) float32 {
		if v != v || math.IsInf(float64(v), 0) {
			return v
		}
		b := math.Float32bits(v)
		low, high := b&^(step-1), b&^(step-1)+step
		below, above := b-low, high-b
		if below < above || below == above && even && low&step == 0 {
			return math.Float32frombits(low)
		}
		return math.Float32frombits(high)
	}
}

// roundings are what kernels do to factors.
var roundings = map[string]func(float32) float32{
	"fp32": func(v float32) float32 { return v }, "tf32": nearest(11, false), "bf16": nearest(8, true),
}

// Products are the sums of their rounded factors, for all shapes. Only the additions round, each by
// less than 2⁻²² of the sum of magnitudes, also those of the matrix units, whose order and rounding
// are their own. What does not belong to C does not change. Both tiles have the same bits.
func TestKernelsMultiplyRoundedFactors(t *testing.T) {
	q, err := openTest(t).NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	rng := rand.New(rand.NewPCG(5, 6))
	for i, shape := range [][3]int{{64, 64, 32}, {128, 128, 16}, {1, 1, 1}, {129, 65, 33}, {3, 140, 7}, {70, 5, 47}, {33, 34, 0}, {20, 21, 64}, {66, 2, 19}, {5, 67, 90}} {
		p := drawBatched(rng, shape[0], shape[1], shape[2])
		t.Setenv(emulate.Schedule, fmt.Sprint(i%4))
		for name, round := range roundings {
			want, size := p.plain(round)
			var first []float32
			for _, kernel := range []string{"gemm_" + name, "gemm_" + name + "_large"} {
				got, err := p.run(q, kernel)
				if err != nil {
					t.Fatal(err)
				}
				for i, v := range got {
					if far := math.Abs(float64(v) - want[i]); !(far <= float64(p.k+2)*0x1p-22*size[i]) && !(size[i] == 0 && v != v && want[i] != want[i]) {
						t.Fatalf("%s of %d×%d×%d, flags %b: value %d of C is %v, want %v", kernel, p.m, p.n, p.k, p.flags, i, v, want[i])
					}
				}
				if first == nil {
					first = got
				} else if differ(got, first) {
					t.Errorf("%s of %d×%d×%d has other bits than the tiles of half its side", kernel, p.m, p.n, p.k)
				}
			}
		}
	}
}

// A product with a single factor is exact, so it shows the rounding: ties, values that are too
// large, and NaN. A transposed factor takes another path.
func TestFactorsAreRoundedToTheNearest(t *testing.T) {
	q, err := openTest(t).NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	special := []float32{
		0, 1, 1 + 0x1p-8, 1 + 3*0x1p-8, 1 + 0x1p-8 + 0x1p-23, 1 + 0x1p-7 - 0x1p-23, 1 + 0x1p-11, 1 + 3*0x1p-11, 1 + 0x1p-11 - 0x1p-23, 2 - 0x1p-23, 0x1.fep60, 0x1.ffp60, 0x1.fefffep60, 0x1.fffp60, 0x1.ffep60,
		1e-15, math.MaxFloat32, float32(math.Inf(1)), float32(math.NaN()),
	}
	for _, v := range slices.Clone(special) {
		special = append(special, -v)
	}
	n := len(special)
	column := stack{values: special, ld: 1}
	row := stack{values: special, ld: n}
	for name, round := range roundings {
		x := rounded(special, round)
		for kernel := range productKernels {
			if kernel != "gemm_"+name && kernel != "gemm_"+name+"_large" {
				continue
			}
			for _, p := range []batched{{a: column, b: row}, {a: row, b: column, flags: gemmATransposed | gemmBTransposed}} {
				p.m, p.n, p.k, p.outers, p.inners = n, n, 1, 1, 1
				p.c = stack{values: make([]float32, n*n), ld: n}
				got, err := p.run(q, kernel)
				if err != nil {
					t.Fatal(err)
				}
				for i, v := range got {
					if want := x[i/n] * x[i%n]; v != want && (v == v || want == want) {
						t.Errorf("%s: %v times %v is %v, want %v", kernel, special[i/n], special[i%n], v, want)
					}
				}
			}
		}
	}
}
