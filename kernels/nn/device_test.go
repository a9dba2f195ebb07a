package nn_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels/nn"
)

// odd draws values, including those that code often forgets.
func odd(rng *rand.Rand, s []float32) []float32 {
	special := []float32{0, float32(math.Copysign(0, -1)), float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)),
		math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, math.MaxFloat32, 1, -1}
	for i := range s {
		s[i] = rng.Float32()*2 - 1
		if rng.IntN(4) == 0 {
			s[i] = special[rng.IntN(len(special))]
		}
	}
	return s
}

func sameValues(a, b []float32) int {
	for i := range a {
		// Which of two NaN an addition keeps is up to the processor.
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && (a[i] == a[i] || b[i] == b[i]) {
			return i
		}
	}
	return -1
}

// TestDevicesGiveTheSameBitsForSingleValues compares each device with Host on arrays of many lengths.
func TestDevicesGiveTheSameBitsForSingleValues(t *testing.T) {
	for _, dev := range nn.Devices()[1:] {
		t.Run(dev.Name(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 4))
			for n := range 70 {
				x, y := odd(rng, make([]float32, n)), odd(rng, make([]float32, n))
				positive := make([]float32, n)
				nn.Host.ReLU(positive, x)
				for what, run := range map[string]func(d nn.Device, z []float32){
					"ReLU":         func(d nn.Device, z []float32) { d.ReLU(z, x) },
					"ReLUGradient": func(d nn.Device, z []float32) { d.ReLUGradient(z, positive, y) },
					"Multiply":     func(d nn.Device, z []float32) { d.Multiply(z, x, y) },
					"in place":     func(d nn.Device, z []float32) { copy(z, x); d.ReLU(z, z); d.ReLUGradient(z, positive, z) },
				} {
					compare(t, rng, dev, what, n, run)
				}
				rows, stride := rng.IntN(4), n+rng.IntN(3)
				many := odd(rng, make([]float32, rows*stride))
				for _, relu := range []bool{false, true} {
					compare(t, rng, dev, "AddBias", rows*stride, func(d nn.Device, z []float32) { copy(z, many); d.AddBias(z, stride, rows, y, relu) })
				}
				tall := odd(rng, make([]float32, rows*n))
				compare(t, rng, dev, "AddRowSums", n, func(d nn.Device, z []float32) { copy(z, x); d.AddRowSums(z, tall, rows) })
			}
		})
	}
}

func compare(t *testing.T, rng *rand.Rand, dev nn.Device, what string, n int, run func(d nn.Device, z []float32)) {
	t.Helper()
	want := make([]float32, n)
	run(nn.Host, want)
	got, untouched := guarded(rng, n)
	run(dev, got)
	if i := sameValues(got, want); i >= 0 {
		t.Fatalf("%s: value %d of %d is %g; Host's is %g", what, i, n, got[i], want[i])
	}
	if !untouched() {
		t.Fatalf("%s of %d values wrote outside", what, n)
	}
}

// TestReLUKeepsNaNAndGivesPositiveZero checks Host, with which the others are compared.
func TestReLUKeepsNaNAndGivesPositiveZero(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	x := []float32{1, -1, float32(math.Copysign(0, -1)), 0, inf, -inf, nan}
	want, wantGradient := []float32{1, 0, 0, 0, inf, 0, nan}, []float32{7, 0, 0, 0, 7, 0, 7}
	y, dy := make([]float32, len(x)), []float32{7, 7, 7, 7, 7, 7, 7}
	nn.Host.ReLU(y, x)
	nn.Host.ReLUGradient(dy, y, dy)
	if i := sameValues(y, want); i >= 0 {
		t.Errorf("ReLU(%g) = %g, want %g", x[i], y[i], want[i])
	}
	if i := sameValues(dy, wantGradient); i >= 0 {
		t.Errorf("the derivative at %g is %g times 7, want %g", x[i], dy[i], wantGradient[i])
	}
}

// TestPoolingTakesTheFirstLargestValue covers windows of all sizes on planes that they do not fill,
// with many equal values.
func TestPoolingTakesTheFirstLargestValue(t *testing.T) {
	for _, dev := range nn.Devices() {
		rng := rand.New(rand.NewPCG(7, 8))
		for size := 1; size <= 15; size++ {
			q := nn.Pool{Height: size + rng.IntN(2*size+3), Width: size + rng.IntN(3*size+3), Size: size}
			const planes = 3
			x := make([]float32, planes*q.Height*q.Width)
			for i := range x {
				x[i] = float32(rng.IntN(6))
			}
			y, dy, dx := make([]float32, planes*q.Outputs()), fill(rng, make([]float32, planes*q.Outputs())), make([]float32, len(x))
			at := make([]uint8, len(y))
			dev.PoolForward(q, y, at, x)
			dev.PoolBackward(q, dx, at, dy)
			want, cols := make([]float32, len(x)), q.Width/size
			for i := range y {
				corner := i/q.Outputs()*q.Height*q.Width + i%q.Outputs()/cols*size*q.Width + i%cols*size
				best := corner
				for p := range size * size {
					if j := corner + p/size*q.Width + p%size; x[j] > x[best] {
						best = j
					}
				}
				if y[i] != x[best] {
					t.Fatalf("%s, %+v: result %d is %g; want %g", dev.Name(), q, i, y[i], x[best])
				}
				want[best] = dy[i]
			}
			if i := sameValues(dx, want); i >= 0 {
				t.Fatalf("%s, %+v: the gradient for value %d is %g; want %g", dev.Name(), q, i, dx[i], want[i])
			}
		}
	}
}

// TestCrossEntropyIsItsDefinition includes logits whose exponentials overflow, and answers of which
// the model is certain.
func TestCrossEntropyIsItsDefinition(t *testing.T) {
	logits := []float32{1, 2, 3 /**/, 500, -500, 499 /**/, 0, 0, 0 /**/, 30, 0, 0}
	labels := []int32{0, 2, 1, 0}
	d := make([]float32, len(logits))
	sum, correct := nn.CrossEntropy(d, logits, labels, 0.5)
	want, wantCorrect := 0.0, 0
	for r, label := range labels {
		total, best := 0.0, 0
		row := logits[3*r:][:3]
		for j, z := range row {
			total += math.Exp(float64(z) - float64(row[label]))
			if z > row[best] {
				best = j
			}
		}
		want += math.Log1p(total - 1)
		if best == int(label) {
			wantCorrect++
		}
		for j, z := range row {
			p := math.Exp(float64(z)-float64(row[label])) / total
			if j == int(label) {
				p = -(total - 1) / total // not 1/total − 1, as the result may be tiny
			}
			if got := float64(d[3*r+j]); !(math.Abs(got-0.5*p) <= 1e-6*math.Abs(0.5*p)) {
				t.Errorf("row %d: the gradient for logit %d is %g; want %g", r, j, got, 0.5*p)
			}
		}
	}
	if math.Abs(sum-want) > 1e-12*want || correct != wantCorrect {
		t.Errorf("loss %v, %d correct; want %v, %d", sum, correct, want, wantCorrect)
	}
	if again, _ := nn.CrossEntropy(nil, logits, labels, 0.5); again != sum {
		t.Errorf("without a gradient the loss is %v; with one %v", again, sum)
	}
}
