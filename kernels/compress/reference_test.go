package compress

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// decoded follows docs/formats.md: one value after the other, without regard to speed.
func decoded(e kernels.Encoding, n int, payload []byte) []float32 {
	x := make([]float32, n)
	float := func(at int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(payload[at:])) }
	half := func(at int) uint16 { return binary.LittleEndian.Uint16(payload[at:]) }
	at := 0
	number := func() int {
		v, size := binary.Uvarint(payload[at:])
		at += size
		return int(v)
	}
	scales := (n + 255) / 256 * 4
	switch e {
	case kernels.FP32:
		for i := range x {
			x[i] = float(4 * i)
		}
	case kernels.BF16:
		for i := range x {
			x[i] = math.Float32frombits(uint32(half(2*i)) << 16)
		}
	case kernels.FP16:
		for i := range x {
			x[i] = referenceFP16(half(2 * i))
		}
	case kernels.Int8:
		for i := range x {
			x[i] = float(i/256*4) * float32(int8(payload[scales+i]))
		}
	case kernels.Sign:
		for i := range x {
			x[i] = float(i / 256 * 4)
			if payload[scales+i/8]>>(i%8)&1 == 1 {
				x[i] = -x[i]
			}
		}
	case kernels.Sparse16, kernels.Sparse32:
		k := number()
		number()
		values, i := at, -1
		width := 2
		if e == kernels.Sparse32 {
			width = 4
		}
		at += width * k
		for j := range k {
			i += 1 + number()
			if e == kernels.Sparse32 {
				x[i] = float(values + 4*j)
			} else {
				x[i] = math.Float32frombits(uint32(half(values+2*j)) << 16)
			}
		}
	case kernels.LowRank:
		rows, cols, rank := number(), number(), number()
		for i := range rows {
			for j := range cols {
				for r := range rank {
					x[i*cols+j] += float32(float(at+4*(i*rank+r)) * float(at+4*((rows+j)*rank+r)))
				}
			}
		}
	}
	return x
}

func referenceFP16(h uint16) float32 {
	sign := 1 - 2*float64(h>>15)
	exponent, fraction := int(h>>10&31), float64(h&1023)
	if exponent == 0 {
		return float32(math.Copysign(math.Ldexp(fraction, -24), sign))
	}
	return float32(sign * math.Ldexp(1024+fraction, exponent-25))
}

// largest returns the indices of the k values of x with the largest magnitudes, in order. Of equal
// ones, the lower index counts.
func largest(x []float32, k int) []int {
	at := make([]int, len(x))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(i, j int) int {
		a, b := math.Abs(float64(x[i])), math.Abs(float64(x[j]))
		switch {
		case a > b:
			return -1
		case a < b:
			return 1
		}
		return 0
	})
	at = at[:k]
	slices.Sort(at)
	return at
}

// The kinds of arrays that gradients may be.
var kinds = []struct {
	name  string
	value func(rng *rand.Rand, i int) float32
}{
	{"normal", func(rng *rand.Rand, _ int) float32 { return float32(1e-3 * rng.NormFloat64()) }},
	{"layered", func(rng *rand.Rand, i int) float32 {
		if i/64%3 == 0 {
			return 0
		}
		return float32(math.Exp2(float64(i/256%16)) * rng.NormFloat64())
	}},
	{"zero", func(*rand.Rand, int) float32 { return 0 }},
	{"equal", func(_ *rand.Rand, i int) float32 { return float32(1 - 2*(i%2)) }},
	{"any bits", func(rng *rand.Rand, _ int) float32 {
		for {
			v := math.Float32frombits(rng.Uint32())
			if v-v == 0 {
				return v
			}
		}
	}},
	{"huge", func(rng *rand.Rand, _ int) float32 { return math.MaxFloat32 * (2*rng.Float32() - 1) }},
	{"largest", func(_ *rand.Rand, i int) float32 { return math.MaxFloat32 * float32(1-2*(i/3%2)) }},
	{"tiny", func(rng *rand.Rand, _ int) float32 { return math.Float32frombits(rng.Uint32() & 0x800fffff) }},
}

// drawn returns n values of a kind, which depend only on the seed.
func drawn(kind, n int, seed uint64) []float32 {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	x := make([]float32, n)
	for i := range x {
		x[i] = kinds[kind].value(rng, i)
	}
	return x
}

func sameBits(x, y []float32) bool {
	return slices.EqualFunc(x, y, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) })
}

// shapes are chunks: numbers of values, and the row lengths of their tensors.
var shapes = []struct{ n, rowLen int }{
	{1, 1}, {10, 1}, {15, 5}, {241, 400}, {255, 51}, {256, 1}, {257, 257}, {384, 128}, {1000, 10}, {1200, 25}, {4096, 64}, {6144, 6144}, {8191, 1}, {65536, 1024},
}

// allSpecs are codecs with different arithmetic, at least one of each form.
var allSpecs = []string{
	"fp32", "bf16", "fp16", "int8", "int8:stochastic", "sign", "topk:0.01", "topk:0.3", "topk:1", "topk:0.01:fp32", "powersgd:1", "powersgd:4", "sparse",
}
