package kernels_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// roundedUp returns which of n equal values between two codes are rounded up. Value 0 sets the
// scale to 1.
func roundedUp(t *testing.T, n int, part float32, seed uint64) []bool {
	t.Helper()
	x := make([]float32, n)
	for i := range x {
		x[i] = 3 + part
		if i%256 == 0 {
			x[i] = 127
		}
	}
	p := make([]byte, kernels.Int8Bytes(n))
	kernels.Best().EncodeInt8Stochastic(p, x, nil, nil, seed)
	var up []bool
	for i, q := range p[len(p)-n:] {
		switch {
		case i%256 == 0 && q == 127:
		case q == 3 || q == 4:
			up = append(up, q == 4)
		default:
			t.Fatalf("value %d, %v, is rounded to %d", i, x[i], int8(q))
		}
	}
	return up
}

// Of n draws with probability p, n·p are counted, with a deviation of √(n·p·(1−p)). Six of these
// are exceeded once in 10⁹ tests.
func TestStochasticRoundingIsRightOnAverage(t *testing.T) {
	const n = 1 << 16
	for _, part := range []float32{0, 1. / 1024, 0.125, 0.5, 0.75} {
		for seed := range uint64(8) {
			up, count := roundedUp(t, n, part, seed), 0.
			for _, u := range up {
				if u {
					count++
				}
			}
			p, draws := float64(part), float64(len(up))
			if off := math.Abs(count - draws*p); off > 6*math.Sqrt(draws*p*(1-p)) {
				t.Errorf("seed %d: %v of %v values with part %v were rounded up", seed, count, draws, part)
			}
		}
	}
}

// The draws of neighbours, of values a vector or a row apart, and of the same value under the next
// seed agree half of the time.
func TestStochasticRoundingDrawsUnrelatedNumbers(t *testing.T) {
	const n = 1 << 16
	agree := func(name string, a, b []bool) {
		t.Helper()
		same := 0.
		for i := range a {
			if a[i] == b[i] {
				same++
			}
		}
		if draws := float64(len(a)); math.Abs(same-draws/2) > 6*math.Sqrt(draws/4) {
			t.Errorf("%s agree %v times of %v", name, same, draws)
		}
	}
	for seed := range uint64(16) {
		up := roundedUp(t, n, 0.5, seed)
		for _, apart := range []int{1, 2, 16, 255, 1020, 4080} {
			agree("values apart", up[apart:], up[:len(up)-apart])
		}
		agree("neighbouring seeds", up, roundedUp(t, n, 0.5, seed+1))
		agree("seeds that differ in a high bit", up, roundedUp(t, n, 0.5, seed|1<<60))
	}
}

func TestStochasticRoundingReplays(t *testing.T) {
	x := values(rand.New(rand.NewPCG(1, 2)), 1000, false)
	var payloads [3][]byte
	for i, seed := range []uint64{5, 5, 6} {
		payloads[i] = make([]byte, kernels.Int8Bytes(len(x)))
		kernels.Best().EncodeInt8Stochastic(payloads[i], x, nil, nil, seed)
	}
	if !bytes.Equal(payloads[0], payloads[1]) || bytes.Equal(payloads[0], payloads[2]) {
		t.Error("the same seed gives another payload, or another seed the same")
	}
}

// In C, the arrays of an encoder have no bounds checks.
func TestEncodersRefuseArraysThatDoNotFit(t *testing.T) {
	long := make([]float32, 64)
	x, short := long[:32], long[:31]
	index, value := make([]int32, 4), make([]float32, 4)
	for _, d := range kernels.Devices() {
		for name, f := range map[string]func(){
			"a payload too short":        func() { d.EncodeBF16(make([]byte, 63), x, nil, nil) },
			"a payload too long":         func() { d.EncodeFP16(make([]byte, 65), x, nil, nil) },
			"a short carry":              func() { d.EncodeInt8(make([]byte, kernels.Int8Bytes(32)), x, short, nil) },
			"a payload of another width": func() { d.EncodeInt4(make([]byte, kernels.Int8Bytes(32)), x, nil, nil) },
			"a short residual":           func() { d.EncodeSign(make([]byte, kernels.SignBytes(32)), x, nil, short) },
			"a payload over the values":  func() { d.EncodeBF16(kernels.Bytes(x)[:64], x, nil, nil) },
			"a residual that overlaps":   func() { d.EncodeBF16(make([]byte, 64), x, nil, long[1:33]) },
			"a residual that overlaps carry": func() {
				d.EncodeInt8Stochastic(make([]byte, kernels.Int8Bytes(32)), make([]float32, 32), x, long[1:33], 1)
			},
			"more selected than there are": func() { d.Select(index, value, x[:3], nil, nil) },
			"nothing selected":             func() { d.Select(nil, nil, x, nil, nil) },
			"as many values as indices":    func() { d.Select(index, value[:3], x, nil, nil) },
			"a selection over the values":  func() { d.Select(index, x[:4], x, nil, nil) },
			"a dense encoding of a few":    func() { kernels.AppendSparse(d, nil, kernels.BF16, 1, x, nil, nil) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: %s does not panic", d.Name(), name)
					}
				}()
				f()
			}()
		}
	}
}
