package compress

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

func mustParse(t testing.TB, spec string) Codec {
	t.Helper()
	c, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eachChunk calls f for every codec, shape and kind of values.
func eachChunk(t *testing.T, f func(t *testing.T, c Codec, x []float32, rowLen int)) {
	for _, spec := range allSpecs {
		t.Run(spec, func(t *testing.T) {
			c := mustParse(t, spec)
			for _, s := range shapes {
				for kind := range kinds {
					if s.n > 10_000 && kind > 1 {
						continue
					}
					f(t, c, drawn(kind, s.n, 7), s.rowLen)
					if t.Failed() {
						t.Fatalf("with %d values in rows of %d, %s", s.n, s.rowLen, kinds[kind].name)
					}
				}
			}
		})
	}
}

func TestPayloadsPassTheCheckAndDecodeAsTheFormatSays(t *testing.T) {
	eachChunk(t, func(t *testing.T, c Codec, x []float32, rowLen int) {
		payload := c.Encode(nil, x, nil, rowLen, 3)
		size, err := kernels.Check(c.Encoding(), len(x), payload)
		if err != nil || size != len(payload) {
			t.Errorf("a payload of %d bytes is checked to have %d: %v", len(payload), size, err)
			return
		}
		if most := c.MaxBytes(len(x), rowLen); size > most {
			t.Errorf("a payload of %d bytes, at most %d were promised", size, most)
		}
		got := make([]float32, len(x))
		if err := kernels.Best().Decode(got, c.Encoding(), payload); err != nil {
			t.Error(err)
		}
		if !sameBits(got, decoded(c.Encoding(), len(x), payload)) {
			t.Error("the device decodes other values than the format says")
		}
	})
}

func TestTheResidualIsWhatDecodingLacks(t *testing.T) {
	race.Skip(t)
	eachChunk(t, func(t *testing.T, c Codec, x []float32, rowLen int) {
		before := bytes.Clone(kernels.Bytes(x))
		residual := drawn(0, len(x), 9)
		payload := c.Encode(nil, x, residual, rowLen, 3)
		if !bytes.Equal(before, kernels.Bytes(x)) {
			t.Error("encoding has changed what it encodes")
		}
		if !bytes.Equal(payload, c.Encode(nil, x, nil, rowLen, 3)) {
			t.Error("the payload is another one without a residual")
		}
		for i, d := range decoded(c.Encoding(), len(x), payload) {
			if want := x[i] - d; residual[i] != want {
				t.Errorf("value %d is %g and decoded %g: the residual is %g, want %g", i, x[i], d, residual[i], want)
				return
			}
		}
	})
}

// Rounding to a format that keeps the leading digits loses a number that float32 holds exactly, and
// so does leaving a value out: decoded + residual is the value itself.
func TestRoundingAndLeavingOutLoseNothing(t *testing.T) {
	for _, spec := range []string{"fp32", "bf16", "fp16", "topk:0.1", "topk:0.1:fp32", "int8"} {
		c := mustParse(t, spec)
		for kind := range 4 {
			x := drawn(kind, 5000, 1)
			residual := make([]float32, len(x))
			payload := c.Encode(nil, x, residual, 1, 0)
			for i, d := range decoded(c.Encoding(), len(x), payload) {
				if d+residual[i] != x[i] {
					t.Fatalf("%s, %s: value %d is %g, decoded %g and residual %g make %g", spec, kinds[kind].name, i, x[i], d, residual[i], d+residual[i])
				}
			}
		}
	}
}

func TestWhatIsCarriedIsAddedFirst(t *testing.T) {
	for _, spec := range allSpecs {
		c := mustParse(t, spec)
		for _, s := range shapes {
			x, carry, sum := drawn(1, s.n, 1), drawn(0, s.n, 2), make([]float32, s.n)
			for i := range sum {
				sum[i] = x[i] + carry[i]
			}
			got, want := make([]float32, s.n), make([]float32, s.n)
			if !bytes.Equal(c.encode(device, nil, x, carry, got, s.rowLen, 5), c.encode(device, nil, sum, nil, want, s.rowLen, 5)) || !sameBits(got, want) {
				t.Errorf("%s: %d values with a carry are encoded otherwise than their sum", spec, s.n)
			}
		}
	}
}

func TestEncodingAppends(t *testing.T) {
	for _, spec := range allSpecs {
		c, x := mustParse(t, spec), drawn(0, 600, 1)
		alone := c.Encode(nil, x, nil, 20, 1)
		for _, room := range []int{0, 1, len(alone), 2 * len(alone)} {
			dst := append(make([]byte, 0, 3+room), 1, 2, 3)
			if got := c.Encode(dst, x, nil, 20, 1); !bytes.Equal(got, append([]byte{1, 2, 3}, alone...)) {
				t.Errorf("%s: with room for %d bytes the payload is another one", spec, room)
			}
		}
	}
}

func TestTheSeedDecidesWhatIsDrawn(t *testing.T) {
	for _, spec := range allSpecs {
		c, x := mustParse(t, spec), drawn(0, 4096, 1)
		first := c.Encode(nil, x, nil, 64, 1)
		if !bytes.Equal(first, c.Encode(nil, x, nil, 64, 1)) {
			t.Errorf("%s: the same seed gives other bytes", spec)
		}
		if same := bytes.Equal(first, c.Encode(nil, x, nil, 64, 2)); same == AtRandom(c) {
			t.Errorf("%s: another seed gives the same bytes: %v", spec, same)
		}
	}
}

// The mean of m roundings of a value to levels with distance s has a standard deviation of at most
// s/(2√m). One value in 5·10⁸ exceeds six of these, and there are 512 values.
func TestStochasticRoundingIsRightOnAverage(t *testing.T) {
	const rounds = 400
	c, x := mustParse(t, "int8:stochastic"), drawn(0, 512, 4)
	mean := make([]float64, len(x))
	for seed := range uint64(rounds) {
		for i, d := range decoded(kernels.Int8, len(x), c.Encode(nil, x, nil, 1, seed)) {
			mean[i] += float64(d) / rounds
		}
	}
	for b := range 2 {
		level := 0.0
		for _, v := range x[256*b:][:256] {
			level = max(level, math.Abs(float64(v))/127)
		}
		for i := 256 * b; i < 256*(b+1); i++ {
			if off := math.Abs(mean[i] - float64(x[i])); off > 6*level/2/math.Sqrt(rounds) {
				t.Fatalf("value %d is %g, and %g on average: off by %.2f levels", i, x[i], mean[i], off/level)
			}
		}
	}
}

func TestTopKSendsTheLargest(t *testing.T) {
	for _, density := range []float64{1e-9, 0.001, 0.01, 0.5, 1} {
		c := mustParse(t, fmt.Sprintf("topk:%g:fp32", density))
		for kind := range kinds {
			for _, n := range []int{1, 7, 300, 5000} {
				x := drawn(kind, n, 3)
				want := make([]float32, n)
				for _, i := range largest(x, max(1, int(math.Ceil(density*float64(n))))) {
					want[i] = x[i]
				}
				got := decoded(kernels.Sparse32, n, c.Encode(nil, x, nil, 1, 0))
				for i := range got {
					if got[i] != want[i] {
						t.Fatalf("density %g of %d values, %s: value %d is %g, want %g", density, n, kinds[kind].name, i, got[i], want[i])
					}
				}
			}
		}
	}
}

// A frame of top-k with one percent is at least a hundred times smaller than its float32.
func TestTopKOnePercentIsAHundredTimesSmaller(t *testing.T) {
	c := mustParse(t, "topk:0.01")
	for _, n := range []int{16384, 65536} {
		x := drawn(0, n, 1)
		if got := len(c.Encode(nil, x, nil, 1, 0)); 4*n < 100*got {
			t.Errorf("%d values are sent in %d bytes, %.1f times smaller", n, got, 4*float64(n)/float64(got))
		}
	}
}

func TestZerosCostNothingInTopK(t *testing.T) {
	c := mustParse(t, "topk:0.01")
	if got := c.Encode(nil, make([]float32, 65536), nil, 1, 0); len(got) != 2 {
		t.Errorf("a chunk of zeros has a payload of %d bytes", len(got))
	}
}

func TestBytesPerValue(t *testing.T) {
	x := drawn(0, 65536, 1)
	for spec, want := range map[string]float64{
		"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1 + 4./256, "int8:stochastic": 1 + 4./256, "sign": 1./8 + 4./256,
		"topk:0.01": 0.0327, "topk:0.01:fp32": 0.0527, "topk:0.1": 0.300, "powersgd:2": 0.1329,
	} {
		got := float64(len(mustParse(t, spec).Encode(nil, x, nil, 1024, 0))) / float64(len(x))
		if math.Abs(got/want-1) > 0.02 {
			t.Errorf("%s takes %.4f bytes per value, want %.4f", spec, got, want)
		}
	}
}

func TestShapesOfPowerSGD(t *testing.T) {
	for _, c := range []struct{ n, rowLen, rank, rows, cols, sent int }{
		{65536, 1024, 2, 64, 1024, 2}, // the tensor's rows
		{1200, 25, 2, 48, 25, 2},      // a convolution
		{120, 1, 2, 120, 1, 1},        // a vector, exactly
		{2048, 2048, 2, 64, 32, 2},    // one row, as a square
		{384, 128, 2, 24, 16, 2},      // three rows: 262 numbers; as a square 80
		{241, 400, 2, 241, 1, 1},      // a piece of a row whose length is prime
		{12, 4, 4, 12, 1, 1},          // a rank that the matrix cannot have
		{4096, 64, 31, 64, 64, 31},    // the largest rank that saves something
		{4096, 64, 32, 4096, 1, 1},    // would save nothing
	} {
		p := powerSGD{c.rank}
		if rows, cols, rank := p.shape(c.n, c.rowLen); rows != c.rows || cols != c.cols || rank != c.sent {
			t.Errorf("%d values in rows of %d are sent as %d × %d with rank %d, want %d × %d with rank %d", c.n, c.rowLen, rows, cols, rank, c.rows, c.cols, c.sent)
		}
	}
}

// Two iterations come close to the best approximation, that of the singular value decomposition. If
// each singular value is about 0.8 of the one before, they come within a fifth of its error.
func TestPowerSGDIsCloseToTheBestApproximation(t *testing.T) {
	const rows, cols = 64, 96
	for _, rank := range []int{1, 2, 4} {
		rng := rand.New(rand.NewPCG(uint64(rank), 1))
		m := mat.NewDense(rows, cols, nil)
		for k := range 24 {
			size := math.Pow(0.8, float64(k))
			u, v := make([]float64, rows), make([]float64, cols)
			for i := range u {
				u[i] = size * rng.NormFloat64()
			}
			for i := range v {
				v[i] = rng.NormFloat64()
			}
			m.RankOne(m, 1, mat.NewVecDense(rows, u), mat.NewVecDense(cols, v))
		}
		x := make([]float32, rows*cols)
		for i, v := range m.RawMatrix().Data {
			x[i] = float32(v)
		}
		var svd mat.SVD
		if !svd.Factorize(m, mat.SVDNone) {
			t.Fatal("no decomposition")
		}
		best := 0.0
		for _, s := range svd.Values(nil)[rank:] {
			best += s * s
		}
		residual, total := make([]float32, len(x)), 0.0
		const seeds = 20
		for seed := range uint64(seeds) {
			powerSGD{rank}.encode(device, nil, x, nil, residual, cols, seed)
			total += kernels.SquaredNorm(residual) / seeds
		}
		if math.Sqrt(total/best) > 1.2 {
			t.Errorf("rank %d: the error is %.3f times that of the best approximation", rank, math.Sqrt(total/best))
		}
	}
}

// A matrix of lower rank is sent exactly, up to the rounding of its factors: 2⁻²⁴ of each of two
// numbers and a product, and of a difference.
func TestPowerSGDKeepsMatricesOfItsRank(t *testing.T) {
	const rows, cols = 40, 50
	x := make([]float32, rows*cols)
	u, v := drawn(0, rows, 1), drawn(0, cols, 2)
	for i := range x {
		x[i] = u[i/cols] * v[i%cols]
	}
	residual := make([]float32, len(x))
	powerSGD{2}.encode(device, nil, x, nil, residual, cols, 1)
	if off := math.Sqrt(kernels.SquaredNorm(residual) / kernels.SquaredNorm(x)); off > 4*0x1p-23 {
		t.Errorf("a matrix of rank 1 is off by %g of its norm", off)
	}
}

func TestExactCodecsKeepEveryBit(t *testing.T) {
	c, x := mustParse(t, "fp32"), drawn(4, 1000, 1)
	if !c.Exact() || !bytes.Equal(c.Encode(nil, x, nil, 1, 0), kernels.Bytes(x)) {
		t.Error("fp32 does not send the memory as it is")
	}
}

// TestSparseSendsEveryBitOfWhatIsNotZero, for every kind of values and every length of a gap.
func TestSparseSendsEveryBitOfWhatIsNotZero(t *testing.T) {
	c := mustParse(t, "sparse")
	for kind := range kinds {
		for _, apart := range []int{1, 2, 127, 128, 129, 16384, 16385} {
			x := make([]float32, 40000)
			for i, v := range drawn(kind, len(x), 3) {
				if i%apart == apart-1 {
					x[i] = v
				}
			}
			x[0] = float32(math.Copysign(0, -1))
			payload := c.Encode(nil, x, nil, 1, 0)
			for _, lo := range []int{0, 1, 15, 16, 1000} { // x begins there, after values that are touched
				touched := make([]byte, kernels.Spots(lo+len(x)))
				for i := range touched[:kernels.Spots(lo)] {
					touched[i] = 1
				}
				for i, v := range x {
					if math.Float32bits(v) != 0 {
						touched[(lo+i)/kernels.Spot] = 1
					}
				}
				if got := AppendTouched([]byte{7}, touched, x, lo); !bytes.Equal(got[1:], payload) {
					t.Errorf("%s, every %d, from value %d on: other bytes, since it is said which are touched", kinds[kind].name, apart, lo)
				}
			}
			if got := decoded(c.Encoding(), len(x), payload); !sameBits(got, x) {
				t.Errorf("%s, every %d: not the bits that were sent", kinds[kind].name, apart)
			}
			if len(payload) > c.MaxBytes(len(x), 1) {
				t.Errorf("%s, every %d: %d bytes, at most %d were promised", kinds[kind].name, apart, len(payload), c.MaxBytes(len(x), 1))
			}
		}
	}
	if got := c.Encode(nil, make([]float32, 65536), nil, 1, 0); len(got) != 2 || !kernels.Empty(c.Encoding(), got) {
		t.Errorf("a chunk without values is %x, want two bytes and empty", got)
	}
	if kernels.Empty(c.Encoding(), c.Encode(nil, []float32{float32(math.Copysign(0, -1))}, nil, 1, 0)) {
		t.Error("a chunk of one -0 counts as empty")
	}
}

// Every build and every machine encodes to the same bytes, also with PowerSGD, where a fused
// product and sum would change them.
func TestRecordedPayloads(t *testing.T) {
	for spec, want := range map[string]uint32{
		"int8": 0xef8cb1f6, "int8:stochastic": 0x8fc5fc37, "sign": 0xed0896b3, "topk:0.1": 0xe6b17a74, "powersgd:3": 0x81a0c2e1,
	} {
		x := make([]float32, 4096)
		for i := range x {
			x[i] = float32(int32(mix(uint64(i)))) * 0x1p-31 * float32(1+i%7) // only functions that are the same on all machines
		}
		if got := crc32.ChecksumIEEE(mustParse(t, spec).Encode(nil, x, nil, 64, 5)); got != want {
			t.Errorf("%s: the payload has the CRC %#x, recorded is %#x", spec, got, want)
		}
	}
}
