package kernelstest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// encoder is one operation of kernels.Encoder with a slow and obvious version of it.
type encoder struct {
	name     string
	encoding kernels.Encoding
	size     func(n int) int
	encode   func(d kernels.Device, dst []byte, x, carry, residual []float32) error
	obvious  func(y []float32) []byte
}

const roundingSeed = 0x123456789abcdef0

var encoders = []encoder{
	{"EncodeBF16", kernels.BF16, twice, kernels.Device.EncodeBF16, obviousBF16},
	{"EncodeFP16", kernels.FP16, twice, kernels.Device.EncodeFP16, obviousFP16},
	{"EncodeInt8", kernels.Int8, kernels.Int8Bytes, kernels.Device.EncodeInt8, obviousInt8},
	{"EncodeInt8Stochastic", kernels.Int8, kernels.Int8Bytes,
		func(d kernels.Device, dst []byte, x, carry, residual []float32) error {
			return d.EncodeInt8Stochastic(dst, x, carry, residual, roundingSeed)
		},
		func(y []float32) []byte { // rounding at random has no obvious version; the tests of package kernels check Host's mean
			p := make([]byte, kernels.Int8Bytes(len(y)))
			kernels.Host.EncodeInt8Stochastic(p, y, nil, nil, roundingSeed)
			return p
		}},
	{"EncodeInt4", kernels.Int4, kernels.Int4Bytes, kernels.Device.EncodeInt4, obviousInt4},
	{"EncodeSign", kernels.Sign, kernels.SignBytes, kernels.Device.EncodeSign, obviousSign},
}

func twice(n int) int { return 2 * n }

// nearest returns the code whose value is nearest to v ≥ 0, among codes 0…last with rising values.
// Of two codes that are equally near it returns the even one.
func nearest(v float64, last int, value func(code uint16) float64) uint16 {
	above := sort.Search(last+1, func(c int) bool { return value(uint16(c)) > v })
	if above > last {
		return uint16(last)
	}
	down, up := v-value(uint16(above-1)), value(uint16(above))-v
	if down < up || down == up && above%2 == 1 {
		return uint16(above - 1)
	}
	return uint16(above)
}

func obviousHalves(y []float32, last int, value func(code uint16) float64) (p []byte) {
	for _, v := range y {
		sign := uint16(math.Float32bits(v) >> 31 << 15)
		p = append16(p, sign|nearest(math.Abs(float64(v)), last, value))
	}
	return p
}

func obviousBF16(y []float32) []byte {
	return obviousHalves(y, 0x7f7f, func(c uint16) float64 { return float64(math.Float32frombits(uint32(c) << 16)) })
}

func obviousFP16(y []float32) []byte {
	return obviousHalves(y, 0x7bff, func(c uint16) float64 {
		if c < 0x400 {
			return math.Ldexp(float64(c), -24)
		}
		return math.Ldexp(float64(c&0x3ff|0x400), int(c>>10)-25)
	})
}

// split calls f with each block of y.
func split(y []float32, f func(block []float32)) {
	for ; len(y) > 0; y = y[min(256, len(y)):] {
		f(y[:min(256, len(y))])
	}
}

func obviousInt8(y []float32) []byte {
	scales, codes := obviousLevels(y, 127)
	return append(scales, codes...)
}

// obviousInt4 puts one code of four bits into each half of a byte, the lower half first.
func obviousInt4(y []float32) []byte {
	p, codes := obviousLevels(y, 7)
	for i, q := range codes {
		if i%2 == 0 {
			p = append(p, q&15)
		} else {
			p[len(p)-1] += 16 * (q & 15)
		}
	}
	return p
}

// obviousLevels returns the scales of the blocks and a code for each value, with the given number
// of levels on either side of 0.
func obviousLevels(y []float32, levels float32) (scales, codes []byte) {
	split(y, func(block []float32) {
		var most float32
		for _, v := range block {
			most = max(most, float32(math.Abs(float64(v))))
		}
		scale := most / levels
		if !finite(levels * scale) {
			scale = math.Nextafter32(scale, 0)
		}
		var inverse float32
		if scale < 0x1p-126 {
			scale = 0
		} else {
			inverse = 1 / scale
		}
		scales = append32(scales, scale)
		for _, v := range block {
			codes = append(codes, byte(int8(math.RoundToEven(float64(v*inverse)))))
		}
	})
	return scales, codes
}

func obviousSign(y []float32) []byte {
	var scales []byte
	signs := make([]byte, (len(y)+7)/8)
	split(y, func(block []float32) {
		var sum [16]float64
		for i, v := range block {
			sum[i%16] += math.Abs(float64(v))
		}
		for half := 8; half > 0; half /= 2 {
			for i := range half {
				sum[i] += sum[i+half]
			}
		}
		scales = append32(scales, float32(sum[0]/float64(len(block))))
	})
	for i, v := range y {
		if math.Signbit(float64(v)) {
			signs[i/8] |= 1 << (i % 8)
		}
	}
	return append(scales, signs...)
}

func finite(v float32) bool { return !math.IsInf(float64(v), 0) && !math.IsNaN(float64(v)) }

// Kinds of values beside those of a step. All values of an encoder are finite, and so is x + carry.
const (
	few   = zeros + 1 + iota // few different values, so that there are ties and values halfway between two codes
	edges                    // near a number at which an encoding changes its behaviour
	finiteKinds
)

var edgeValues = []float32{
	math.MaxFloat32, math.Float32frombits(0x7f7f0000), math.Float32frombits(0x7f7f8000), // the largest BF16, and values that round to it
	65504, 65520, 65536, 0x1p-14, 0x1p-24, 0x1p-25, // the same for FP16, and its smallest numbers
	127 * 0x1p-126, 127 * 0x1p-127, math.SmallestNonzeroFloat32, // the smallest scales of Int8, and below
	7 * 0x1p-126, 7 * 0x1p-127, // the same for Int4
}

// drawer returns a function that draws values of the given kind.
func drawer(rng *rand.Rand, kind int) func() float32 {
	edge := edgeValues[rng.IntN(len(edgeValues))]
	return func() float32 {
		switch kind {
		case few:
			return float32(rng.IntN(9)-4) * 0.25
		case edges:
			v := [...]float32{edge, math.Nextafter32(edge, 0), -math.Nextafter32(edge, 1), rng.Float32() * edge}[rng.IntN(4)]
			return v * float32(1-2*rng.IntN(2))
		}
		for {
			if v := value(rng, kind); v > -1.7e38 && v < 1.7e38 {
				return v
			}
		}
	}
}

// The places of an encoder's arrays.
const (
	plain        = iota // neither carry nor residual
	carried             // no residual
	lossy               // no carry
	both                // in two separate arrays
	onCarry             // the residual is written over the carry
	onValues            // the residual is written over x
	onlyOnValues        // the residual is written over x, and nothing is carried
	feeds
)

// fed holds what an encoder reads and writes, with guards around it, and y.
type fed struct {
	built
	x, carry, residual, y []float32
}

func newFed(rng *rand.Rand, n, offset, kind, place int) *fed {
	f := &fed{y: make([]float32, n)}
	array := func(name string, kind int) []float32 {
		x, draw := f.array(name, rng, shape{n: n, offset: offset}), drawer(rng, kind)
		for i := range x {
			x[i] = draw()
		}
		return x
	}
	f.x = array("x", kind)
	if place == carried || place == both || place == onCarry || place == onValues {
		if f.carry = array("carry", kind); kind == edges {
			clear(f.carry) // otherwise the sum would not be of this kind
		}
	}
	switch place {
	case lossy, both:
		f.residual = array("residual", kind)
	case onCarry:
		f.residual = f.carry
	case onValues, onlyOnValues:
		f.residual = f.x
	}
	for i := range f.y {
		f.y[i] = f.x[i]
		if f.carry != nil {
			f.y[i] += f.carry[i]
		}
	}
	return f
}

// check compares the residual with the loss, and everything else with its contents before.
func (f *fed) check(t *testing.T, d kernels.Device, name string, before [][]float32, loss []float32) {
	t.Helper()
	for i, a := range f.arrays {
		written := a.n > 0 && f.residual != nil && &a.all[a.lo] == &f.residual[0]
		for j, v := range a.all {
			want := before[i][j]
			if written && j >= a.lo && j < a.lo+a.n {
				want = loss[j-a.lo]
			}
			if !equal(v, want) {
				t.Fatalf("%s: %s of %d values: %s at %d is %v (%x), want %v (%x)", d.Name(), name, a.n, a.name, j-a.lo, v, math.Float32bits(v), want, math.Float32bits(want))
			}
		}
	}
}

func (f *fed) snapshot() (before [][]float32) {
	for _, a := range f.arrays {
		before = append(before, append([]float32(nil), a.all...))
	}
	return before
}

func testEncoders(t *testing.T, d kernels.Device) {
	for _, e := range encoders {
		rng := rand.New(rand.NewPCG(uint64(e.encoding), 2))
		for kind := range finiteKinds {
			for n := range 35 {
				e.test(t, d, newFed(rng, n, n%5, kind, (n+kind)%feeds))
			}
			for place := range feeds {
				for _, n := range []int{257, 511, 512 + 24} {
					e.test(t, d, newFed(rng, n, n%5, kind, place))
				}
			}
		}
		e.test(t, d, newFed(rng, 65536, 1, ordinary, onCarry))
		e.test(t, d, newFed(rng, 70001, 0, bits, plain))
	}
	testStreaming(t, d)
}

// testStreaming shows that residuals that are written past the caches have the same bits. Arrays
// that start on a cache line are written so.
func testStreaming(t *testing.T, d kernels.Device) {
	const onLine = 8 // after the guards
	for _, e := range encoders {
		rng := rand.New(rand.NewPCG(uint64(e.encoding), 3))
		for place := range feeds {
			e.test(t, kernels.Streaming(d), newFed(rng, 600, 3, ordinary, place))
		}
		e.test(t, kernels.Streaming(d), newFed(rng, 20011, onLine, ordinary, both))
	}
}

func (e *encoder) test(t *testing.T, d kernels.Device, f *fed) {
	t.Helper()
	n := len(f.x)
	memory := bytes.Repeat([]byte{0xa5}, e.size(n)+2*guards)
	dst := memory[guards:][:e.size(n)]
	before := f.snapshot()
	if err := e.encode(d, dst, f.x, f.carry, f.residual); err != nil {
		t.Fatalf("%s: %s: %v", d.Name(), e.name, err)
	}
	if want := e.obvious(f.y); !bytes.Equal(dst, want) {
		at := 0
		for dst[at] == want[at] {
			at++
		}
		t.Fatalf("%s: %s of %d values: byte %d of the payload is %#x, want %#x", d.Name(), e.name, n, at, dst[at], want[at])
	}
	if size, err := kernels.Check(e.encoding, n, dst); err != nil || size != len(dst) {
		t.Fatalf("%s: %s of %d values: Check of the payload: %d bytes, %v", d.Name(), e.name, n, size, err)
	}
	loss := make([]float32, n)
	kernels.Host.Decode(loss, e.encoding, dst)
	for i := range loss {
		loss[i] = f.y[i] - loss[i]
	}
	f.check(t, d, e.name, before, loss)
	for i, b := range memory {
		if b != 0xa5 && (i < guards || i >= guards+len(dst)) {
			t.Fatalf("%s: %s of %d values wrote %d bytes from the start of its payload", d.Name(), e.name, n, i-guards)
		}
	}
}

// obviousSelect sorts all values by magnitude, and values of equal magnitude by index.
func obviousSelect(y []float32, k int) []int32 {
	index := make([]int32, len(y))
	for i := range index {
		index[i] = int32(i)
	}
	slices.SortFunc(index, func(a, b int32) int {
		return cmp.Or(cmp.Compare(math.Abs(float64(y[b])), math.Abs(float64(y[a]))), cmp.Compare(a, b))
	})
	index = index[:k]
	slices.Sort(index)
	return index
}

func testSelect(t *testing.T, d kernels.Device) {
	rng := rand.New(rand.NewPCG(3, 4))
	for kind := range finiteKinds {
		for place := range feeds {
			for _, n := range []int{1, 2, 15, 17, 40, 600} {
				for _, k := range []int{1, (n + 9) / 10, (n + 1) / 2, n} {
					testSelection(t, d, newFed(rng, n, n%5, kind, place), k)
				}
			}
		}
	}
	for place, k := range []int{66, 656, 6554, 30000, 1, 65535, 65536} { // these are sampled first
		testSelection(t, d, newFed(rng, 65536, 0, ordinary, place), k)
		testSelection(t, d, newFed(rng, 8192+11, 0, few, place), 1+k/8)
		testSelection(t, d, misleading(rng, 20000, place), 1+k/4)
	}
}

// misleading draws values of which the C code's sample is far larger than the others, so that too
// few values reach the estimate of the k-th largest.
func misleading(rng *rand.Rand, n, place int) *fed {
	f := newFed(rng, n, 0, ordinary, place)
	const samples = 1024
	for i := range uint64(samples) {
		stride := uint64(n / samples)
		at := i*stride + uint64(uint32(i*0x9e3779b9))*stride>>32
		f.x[at] *= 1e6
		f.y[at] = f.x[at]
		if f.carry != nil {
			f.y[at] += f.carry[at]
		}
	}
	return f
}

func testSelection(t *testing.T, d kernels.Device, f *fed, k int) {
	t.Helper()
	out := &built{}
	value := out.array("value", rand.New(rand.NewPCG(1, 1)), shape{n: k})
	memory := make([]int32, k+2*guards)
	for i := range memory {
		memory[i] = -7
	}
	index := memory[guards:][:k]
	before := f.snapshot()
	if err := d.Select(index, value, f.x, f.carry, f.residual); err != nil {
		t.Fatalf("%s: Select: %v", d.Name(), err)
	}
	loss := append([]float32(nil), f.y...)
	for j, i := range obviousSelect(f.y, k) {
		if index[j] != i || !equal(value[j], f.y[i]) {
			t.Fatalf("%s: Select of %d of %d: entry %d is value %d, %v; want %d, %v", d.Name(), k, len(f.x), j, index[j], value[j], i, f.y[i])
		}
		loss[i] = 0
	}
	f.check(t, d, "Select", before, loss)
	out.check(t, d, k)
	for i, v := range memory {
		if v != -7 && (i < guards || i >= guards+k) {
			t.Fatalf("%s: Select of %d wrote %d indices from the start", d.Name(), k, i-guards)
		}
	}
}

// check checks the memory around the arrays.
func (b *built) check(t *testing.T, d kernels.Device, n int) {
	t.Helper()
	for _, a := range b.arrays {
		for j, v := range a.all {
			if (j < a.lo || j >= a.lo+a.n) && !equal(v, guard) {
				t.Fatalf("%s: %d values: wrote %d values from the start of %s", d.Name(), n, j-a.lo, a.name)
			}
		}
	}
}

func testSparse(t *testing.T, d kernels.Device) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, e := range []kernels.Encoding{kernels.Sparse16, kernels.Sparse32} {
		for kind := range finiteKinds {
			for place := range feeds {
				for _, n := range []int{1, 30, 700} {
					testSparsePayload(t, d, e, newFed(rng, n, 0, kind, place), 1+rng.IntN(n))
				}
			}
			testSparsePayload(t, d, e, newFed(rng, 9000, 0, kind, both), 40) // gaps of more than one byte
		}
	}
}

func testSparsePayload(t *testing.T, d kernels.Device, e kernels.Encoding, f *fed, k int) {
	t.Helper()
	before, n := f.snapshot(), len(f.x)
	dst, err := kernels.AppendSparse(d, []byte("head"), e, k, f.x, f.carry, f.residual)
	if err != nil || string(dst[:4]) != "head" {
		t.Fatalf("%s: AppendSparse: %v, and the first bytes are %q", d.Name(), err, dst[:4])
	}
	dst = dst[4:]
	if size, err := kernels.Check(e, n, dst); err != nil || size != len(dst) || size > kernels.MaxSparseBytes(e, n, k) {
		t.Fatalf("%s: %v payload of %d of %d values in %d bytes, at most %d: Check says %d, %v", d.Name(), e, k, n, len(dst), kernels.MaxSparseBytes(e, n, k), size, err)
	}
	decoded := make([]float32, n)
	kernels.Host.Decode(decoded, e, dst)
	loss := append([]float32(nil), f.y...)
	named := uint64(0)
	for _, i := range obviousSelect(f.y, k) {
		if f.y[i] == 0 { // not named
			loss[i] = 0
			continue
		}
		named++
		want := f.y[i]
		if e == kernels.Sparse16 {
			want = math.Float32frombits(uint32(binary.LittleEndian.Uint16(obviousBF16(f.y[i:i+1]))) << 16)
		}
		if !equal(decoded[i], want) {
			t.Fatalf("%s: %v payload has %v at %d, want %v", d.Name(), e, decoded[i], i, want)
		}
		loss[i] = f.y[i] - want
		decoded[i] = 0
	}
	if count, _ := binary.Uvarint(dst); count != named {
		t.Fatalf("%s: %v payload names %d values, want %d", d.Name(), e, count, named)
	}
	for i, v := range decoded {
		if !equal(v, 0) {
			t.Fatalf("%s: %v payload has %v at %d, which was not selected", d.Name(), e, v, i)
		}
	}
	f.check(t, d, "AppendSparse", before, loss)
}
