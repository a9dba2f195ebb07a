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
	"github.com/kintsugi-ml/kintsugi/kernels/nn"
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
	return &pass{lane: lane{q: q}, side: lane{q: q}, precision: cuda.FP32}
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

// near reports the first value of got that is farther from want than a number of roundings of a sum
// of that size.
func near(t *testing.T, what string, got []float32, want, size []float64, roundings int) {
	t.Helper()
	for i, v := range got {
		if far := math.Abs(float64(v) - want[i]); !(far <= float64(roundings)*0x1p-24*size[i]) {
			t.Fatalf("%s: value %d is %v, want %v", what, i, v, want[i])
		}
	}
}

// Sums of rows and of columns are those of float64 up to rounding, for any shape: with fewer rows
// than threads, and with so many that a thread reads several at once.
func TestSumsOfRowsAndColumns(t *testing.T) {
	p, rng := newPass(t), rand.New(rand.NewPCG(1, 2))
	for i, shape := range [][2]int{{1, 1}, {3, 7}, {31, 8}, {33, 9}, {256, 17}, {257, 1}, {700, 20}, {5, 300}, {16, 784}} {
		t.Setenv(emulate.Schedule, fmt.Sprint(i%4))
		rows, columns := shape[0], shape[1]
		x, y, before := normal(rng, rows*columns), normal(rng, rows*columns), normal(rng, columns)
		byRow, byColumn, products := [2][]float64{}, [2][]float64{}, [2][]float64{}
		for j := range 2 { // the sums, and those of the absolute values
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
		of, with := p.upload(make([]float32, columns)), p.upload(before)
		p.more = true
		p.columnSums(of, at, with, p.upload(y), rows, columns)
		near(t, "columns with products of "+what, p.download(t, of, columns), byColumn[0], byColumn[1], rows)
		near(t, "products of "+what, p.download(t, with, columns), products[0], products[1], rows+2)
	}
}

// A product that is computed in parts along k is right: with a k that is not a multiple of the
// parts' length, transposed factors, bias, ReLU, and results that are added to what is there. So is
// a sum of products of a batch.
func TestProductsInParts(t *testing.T) {
	p, rng := newPass(t), rand.New(rand.NewPCG(5, 6))
	for i, c := range []struct {
		m, n, k, batch int
		flags          uint32
		bias           bool
		parts          int
	}{
		{5, 7, 256, 1, 0, true, 4}, {5, 7, 255, 1, 0, true, 1}, {64, 10, 333, 1, withReLU, true, 4}, {3, 9, 1568, 1, aTransposed | accumulate, false, 17},
		{130, 65, 300, 1, bTransposed | withReLU, true, 4}, {4, 6, 270, 1, aTransposed | bTransposed | accumulate, false, 3},
		{3, 5, 260, 3, bTransposed | accumulate, false, 3}, {2, 3, 40, 19, bTransposed, false, 1}, {70, 65, 256, 33, 0, false, 1}, {3, 5, 260, 40, accumulate, false, 3},
	} {
		t.Setenv(emulate.Schedule, fmt.Sprint(i%4))
		a, b, bias, before := normal(rng, c.batch*c.m*c.k), normal(rng, c.batch*c.k*c.n), normal(rng, c.n), normal(rng, c.m*c.n)
		g := product{a: p.upload(a), b: p.upload(b), c: p.upload(before), flags: c.flags, m: uint64(c.m), n: uint64(c.n), k: uint64(c.k),
			lda: uint64(c.k), ldb: uint64(c.n), ldc: uint64(c.n), aOuter: uint64(c.m * c.k), bOuter: uint64(c.k * c.n)}
		stepA, stepB := [2]int{c.k, 1}, [2]int{c.n, 1} // from row to row, and from column to column
		if c.flags&aTransposed != 0 {
			g.lda, stepA = uint64(c.m), [2]int{1, c.m}
		}
		if c.flags&bTransposed != 0 {
			g.ldb, stepB = uint64(c.k), [2]int{1, c.k}
		}
		if c.bias {
			g.bias = p.upload(bias)
		}
		want, size := make([]float64, c.m*c.n), make([]float64, c.m*c.n)
		for at := range want {
			row, column := at/c.n, at%c.n
			add := func(v float64) { want[at], size[at] = want[at]+v, size[at]+math.Abs(v) }
			if c.flags&accumulate != 0 {
				add(float64(before[at]))
			}
			for z := range c.batch {
				for k := range c.k {
					add(float64(a[z*c.m*c.k+row*stepA[0]+k*stepA[1]]) * float64(b[z*c.k*c.n+k*stepB[0]+column*stepB[1]]))
				}
			}
			if c.bias {
				add(float64(bias[column]))
			}
			if c.flags&withReLU != 0 {
				want[at] = max(want[at], 0)
			}
		}
		what := fmt.Sprintf("%d products of %d×%d×%d, flags %b", c.batch, c.m, c.n, c.k, c.flags)
		if c.batch == 1 {
			p.multiply(g, 1)
		} else {
			p.multiplySum(g, c.batch)
		}
		near(t, what, p.download(t, g.c, c.m*c.n), want, size, c.k*c.batch)
		if n, _ := p.parts(&g, c.batch); n != c.parts {
			t.Errorf("%s are split into %d, want %d parts", what, n, c.parts)
		}
	}
}

// For a row of logits, loss, gradient and answer are the host's: with fewer classes than a warp has
// lanes and with more, with equal logits, and with NaN.
func TestLossOfLogits(t *testing.T) {
	p, rng := newPass(t), rand.New(rand.NewPCG(3, 4))
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for i, classes := range []int{1, 2, 10, 31, 32, 33, 65, 100} {
		t.Setenv(emulate.Schedule, fmt.Sprint(i%4))
		const rows, scale = 21, 0.125
		logits, labels := normal(rng, rows*classes), make([]int32, rows)
		for r := range rows {
			labels[r] = int32(rng.IntN(classes))
			row := logits[r*classes:][:classes]
			switch r {
			case 0, 1, 2, 3: // the largest occurs twice
				row[rng.IntN(classes)], row[labels[r]] = 9, 9
			case 4:
				row[0] = nan
			case 5:
				row[classes-1] = nan
			case 6:
				copy(row, slices.Repeat([]float32{-inf}, classes))
			case 7:
				row[rng.IntN(classes)] = -inf
			case 8:
				row[classes/2] = inf
			case 9:
				for j := range row { // beyond the range of exp
					row[j] = row[j]*1000 + 5000
				}
			}
		}
		at, of := p.upload(logits), make([]float32, rows)
		for r, l := range labels {
			of[r] = math.Float32frombits(uint32(l))
		}
		d, losses, correct := p.upload(make([]float32, len(logits))), p.upload(make([]float32, 2*rows)), p.upload(make([]float32, rows))
		cuda.Launch(p.q, "layer", "cross_entropy", warps(rows), threads, &lossArgs{
			logits: at, labels: p.upload(of), d: d, losses: losses, correct: correct, rows: rows, classes: uint64(classes), scale: scale,
		})
		gotD, gotLosses, gotCorrect := p.download(t, d, len(logits)), p.download(t, losses, 2*rows), p.download(t, correct, rows)
		wantD := make([]float32, len(logits))
		for r := range rows {
			span := [2]int{r * classes, (r + 1) * classes}
			want, right := nn.CrossEntropy(wantD[span[0]:span[1]], logits[span[0]:span[1]], labels[r:r+1], scale)
			got := math.Float64frombits(uint64(math.Float32bits(gotLosses[2*r+1]))<<32 | uint64(math.Float32bits(gotLosses[2*r])))
			if !(math.Abs(got-want) <= 1e-13*(1+want)) && got != want && (got == got || want == want) {
				t.Errorf("%d classes, row %d: the loss is %v, want %v", classes, r, got, want)
			}
			if math.Float32bits(gotCorrect[r]) != uint32(right) {
				t.Errorf("%d classes, row %d, label %d: %d right answers, want %d", classes, r, labels[r], math.Float32bits(gotCorrect[r]), right)
			}
			for j := span[0]; j < span[1]; j++ {
				if v, w := gotD[j], wantD[j]; !(math.Abs(float64(v-w)) <= 1e-7*scale) && (v == v || w == w) {
					t.Errorf("%d classes, row %d: the gradient for logit %d is %v, want %v", classes, r, j-span[0], v, w)
				}
			}
		}
	}
}

// The gradients of an embedding are added in the order of the rows, bit for bit: of a token that is
// everywhere, of one that does not occur, and of positions, in more rows than a block looks at
// once, and added to what is there.
func TestGradientsOfAnEmbedding(t *testing.T) {
	p, rng := newPass(t), rand.New(rand.NewPCG(7, 8))
	for i, c := range []struct{ examples, length, width, tokens int }{{1, 1, 1, 1}, {3, 7, 9, 4}, {40, 7, 300, 3}, {70, 60, 33, 20}} {
		t.Setenv(emulate.Schedule, fmt.Sprint(i%4))
		l := &embedding{tokens: tensor{0}, positions: tensor{c.tokens * c.width}, vocabulary: c.tokens, length: c.length, width: c.width}
		rows := c.examples * c.length
		x, dy := make([]float32, rows), normal(rng, rows*c.width)
		for r := range x {
			if x[r] = float32(rng.IntN(c.tokens)); rng.IntN(2) == 0 || int(x[r]) == c.tokens-1 {
				x[r] = 0
			}
		}
		p.n, l.x = c.examples, p.upload(x)
		for _, p.more = range []bool{false, true} {
			want := normal(rng, (c.tokens+c.length)*c.width)
			p.grads = p.upload(want)
			if !p.more {
				clear(want)
			}
			for r, token := range x {
				for j, v := range dy[r*c.width:][:c.width] {
					want[int(token)*c.width+j] += v
					want[(c.tokens+r%c.length)*c.width+j] += v
				}
			}
			l.backward(p, p.upload(dy))
			if got := p.download(t, p.grads, len(want)); !slices.Equal(got, want) {
				t.Errorf("%+v, added: %v: the gradient is not the sum in order", c, p.more)
			}
		}
	}
}
