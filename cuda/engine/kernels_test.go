//go:build gpu && cgo && linux

package engine

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cuda"
	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// newPass returns a pass on the GPU, or on an emulation of it.
func newPass(t *testing.T) *pass {
	t.Helper()
	d, err := cuda.Open(emulate.Library(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	q, err := d.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return &pass{q: q, precision: cuda.FP32}
}

func (p *pass) upload(x []float32) cuda.Ptr {
	at, b := p.q.Array(max(4, 4*len(x))), p.q.Pinned(max(4, 4*len(x)))
	copy(b, kernels.Bytes(x))
	p.q.In(at, b)
	return at
}

func (p *pass) download(t *testing.T, at cuda.Ptr, n int) []float32 {
	t.Helper()
	b := p.q.Pinned(max(4, 4*n))
	p.q.Out(b, at)
	if err := p.q.Wait(); err != nil {
		t.Fatal(err)
	}
	x := make([]float32, n)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return x
}

func normal(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// near reports the first value of got that is farther from want than so many roundings of a sum of size.
func near(t *testing.T, what string, got []float32, want, size []float64, roundings int) {
	t.Helper()
	for i, v := range got {
		if far := math.Abs(float64(v) - want[i]); !(far <= float64(roundings)*0x1p-24*size[i]) {
			t.Fatalf("%s: value %d is %v, want %v", what, i, v, want[i])
		}
	}
}

// Sums of rows and of columns are those of float64 but for roundings, whatever the shape: with fewer rows than threads, and with so many that a thread reads
// several at once.
func TestSumsOfRowsAndColumns(t *testing.T) {
	p, rng := newPass(t), rand.New(rand.NewPCG(1, 2))
	for i, shape := range [][2]int{{1, 1}, {3, 7}, {31, 8}, {33, 9}, {256, 17}, {257, 1}, {700, 20}, {5, 300}, {16, 784}} {
		t.Setenv(emulate.Schedule, fmt.Sprint(i%4))
		rows, columns := shape[0], shape[1]
		x, y, before := normal(rng, rows*columns), normal(rng, rows*columns), normal(rng, columns)
		byRow, byColumn, products := [2][]float64{}, [2][]float64{}, [2][]float64{}
		for j := range 2 { // the sums, and those of the sizes
			byRow[j], byColumn[j], products[j] = make([]float64, rows), make([]float64, columns), make([]float64, columns)
			size := func(v float64) float64 { return math.Abs(v) }
			if j == 0 {
				size = func(v float64) float64 { return v }
			}
			for c, v := range before {
				products[j][c] = size(float64(v))
			}
			for at, v := range x {
				byRow[j][at/columns] += size(float64(v))
				byColumn[j][at%columns] += size(float64(v))
				products[j][at%columns] += size(float64(v) * float64(y[at]))
			}
		}
		what := fmt.Sprintf("%d×%d", rows, columns)
		at, of := p.upload(x), p.upload(make([]float32, rows))
		p.rowSums(of, at, rows, columns)
		near(t, "rows of "+what, p.download(t, of, rows), byRow[0], byRow[1], columns)
		of = p.upload(slices.Repeat([]float32{float32(math.NaN())}, columns+1))
		p.more = false
		p.columnSums(of, at, 0, 0, rows, columns)
		sums := p.download(t, of, columns+1)
		near(t, "columns of "+what, sums[:columns], byColumn[0], byColumn[1], rows)
		if v := sums[columns]; v == v {
			t.Errorf("columns of %s: a value behind the last became %v", what, v)
		}
		with := p.upload(before)
		p.more = true
		p.columnSums(p.upload(make([]float32, columns)), at, with, p.upload(y), rows, columns)
		near(t, "products of "+what, p.download(t, with, columns), products[0], products[1], rows+2)
	}
}
