package kernels_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/kernelstest"
)

// obviousPayload decodes value by value, by the definition of the encodings.
func obviousPayload(e kernels.Encoding, n int, p []byte) []float32 {
	x := make([]float32, n)
	u16 := func(at int) uint32 { return uint32(binary.LittleEndian.Uint16(p[at:])) }
	f32 := func(at int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(p[at:])) }
	number := func() int {
		v, size := binary.Uvarint(p)
		p = p[size:]
		return int(v)
	}
	scales := 4 * ((n + 255) / 256)
	switch e {
	case kernels.FP32:
		for i := range x {
			x[i] = f32(4 * i)
		}
	case kernels.BF16:
		for i := range x {
			x[i] = math.Float32frombits(u16(2*i) << 16)
		}
	case kernels.FP16:
		for i := range x {
			h := u16(2 * i)
			v := math.Ldexp(float64(h&0x3ff), -24)
			if exponent := int(h >> 10 & 31); exponent > 0 {
				v = math.Ldexp(float64(h&0x3ff|0x400), exponent-25)
			}
			if h>>15 == 1 {
				v = math.Copysign(v, -1)
			}
			x[i] = float32(v)
		}
	case kernels.Int8:
		for i := range x {
			x[i] = mul(f32(i/256*4), float32(int8(p[scales+i])))
		}
	case kernels.Int4:
		for i := range x {
			q := int(p[scales+i/2]) >> (4 * (i % 2)) & 15
			x[i] = mul(f32(i/256*4), float32((q+8)%16-8))
		}
	case kernels.Sign:
		for i := range x {
			x[i] = f32(i / 256 * 4)
			if p[scales+i/8]>>(i%8)&1 == 1 {
				x[i] = float32(math.Copysign(float64(x[i]), -1))
			}
		}
	case kernels.Sparse16, kernels.Sparse32:
		width := map[kernels.Encoding]int{kernels.Sparse16: 2, kernels.Sparse32: 4}[e]
		k, _ := number(), number()
		values := p
		p = p[width*k:]
		at := -1
		for j := range k {
			at += number() + 1
			bits := uint32(binary.LittleEndian.Uint16(values[width*j:])) << 16
			if width == 4 {
				bits = binary.LittleEndian.Uint32(values[4*j:])
			}
			x[at] = math.Float32frombits(bits)
		}
	case kernels.LowRank:
		rows, cols, rank := number(), number(), number()
		for i := range x {
			for r := range rank {
				x[i] = add(x[i], mul(f32(4*(i/cols*rank+r)), f32(4*(rows*rank+i%cols*rank+r))))
			}
		}
	}
	return x
}

func TestHostDecodesAsTheDefinitionReads(t *testing.T) {
	for _, e := range kernelstest.Encodings {
		for _, n := range []int{0, 1, 7, 8, 9, 16, 255, 256, 257, 600, 1280, 4099} {
			for seed := range uint64(6) {
				data := kernelstest.Payload(rand.New(rand.NewPCG(seed, uint64(n))), e, n)
				got, want := make([]float32, n), obviousPayload(e, n, data)
				kernels.Host.Decode(got, e, data)
				for i := range got {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
						t.Fatalf("%v: value %d of %d is %v, want %v", e, i, n, got[i], want[i])
					}
				}
			}
		}
	}
}

// What follows a payload is not part of it, and a payload with missing bytes is refused.
func TestCheckFindsWhereThePayloadEnds(t *testing.T) {
	for _, e := range kernelstest.Encodings {
		for _, n := range []int{0, 1, 8, 100, 256, 700} {
			data := kernelstest.Payload(rand.New(rand.NewPCG(uint64(e), uint64(n))), e, n)
			if size, err := kernels.Check(e, n, append(data[:len(data):len(data)], 0xff, 0xff, 0xff)); err != nil || size != len(data) {
				t.Errorf("%v: Check of %d values is %d, %v; the payload has %d bytes", e, n, size, err, len(data))
			}
			for short := range len(data) {
				if size, err := kernels.Check(e, n, data[:short]); !errors.Is(err, kernels.ErrPayload) {
					t.Fatalf("%v: Check of %d of %d bytes is %d, %v", e, short, len(data), size, err)
				}
			}
		}
	}
	if _, err := kernels.Check(9, 1, make([]byte, 9)); !errors.Is(err, kernels.ErrPayload) {
		t.Errorf("Check of encoding 9: %v", err)
	}
}

func TestCheckRefuses(t *testing.T) {
	f := func(x ...float32) (p []byte) {
		for _, v := range x {
			p = binary.LittleEndian.AppendUint32(p, math.Float32bits(v))
		}
		return p
	}
	infinity, negativeZero := float32(math.Inf(1)), float32(math.Copysign(0, -1))
	cat := func(parts ...[]byte) (p []byte) {
		for _, x := range parts {
			p = append(p, x...)
		}
		return p
	}
	tests := []struct {
		name string
		e    kernels.Encoding
		n    int
		data []byte
	}{
		{"infinity", kernels.FP32, 3, f(1, 2, -infinity)},
		{"a NaN between", kernels.FP32, 3, f(1, float32(math.NaN()), 1)},
		{"infinity", kernels.BF16, 5, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x7f}},
		{"NaN", kernels.BF16, 4, []byte{0, 0, 0xff, 0xff, 0, 0, 0, 0}},
		{"infinity", kernels.FP16, 4, []byte{0, 0, 0, 0, 0, 0, 0, 0xfc}},
		{"NaN", kernels.FP16, 1, []byte{1, 0x7c}},
		{"−128", kernels.Int8, 9, cat(f(1), []byte{0, 0, 0, 0, 0x80, 0, 0, 0, 0})},
		{"−128 at the end", kernels.Int8, 9, cat(f(1), []byte{0, 0, 0, 0, 0, 0, 0, 0, 0x80})},
		{"a negative scale", kernels.Int8, 1, cat(f(-1), []byte{0})},
		{"a scale of −0", kernels.Int8, 1, cat(f(negativeZero), []byte{0})},
		{"an infinite scale", kernels.Int8, 1, cat(f(infinity), []byte{0})},
		{"a scale that overflows", kernels.Int8, 1, cat(f(math.MaxFloat32/127), []byte{127})},
		{"−8", kernels.Int4, 19, cat(f(1), []byte{0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0})},
		{"−8 at the end", kernels.Int4, 19, cat(f(1), []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0x08})},
		{"a negative scale", kernels.Int4, 1, cat(f(-1), []byte{0})},
		{"a scale that overflows", kernels.Int4, 1, cat(f(math.Nextafter32(math.MaxFloat32/7, math.MaxFloat32)), []byte{7})},
		{"half a byte too many", kernels.Int4, 3, cat(f(1), []byte{0, 0x10})},
		{"an infinite scale", kernels.Sign, 257, cat(f(1, infinity), make([]byte, 33))},
		{"a negative scale", kernels.Sign, 1, cat(f(-1), []byte{0})},
		{"a bit too many", kernels.Sign, 3, cat(f(1), []byte{8})},
		{"more values than there are", kernels.Sparse32, 1, cat([]byte{2, 2}, f(1, 1), []byte{0, 0})},
		{"an index past the end", kernels.Sparse32, 2, cat([]byte{2, 2}, f(1, 1), []byte{0, 1})},
		{"an index past the end", kernels.Sparse16, 300, []byte{1, 2, 0, 0, 0xac, 0x02}},
		{"fewer gaps than values", kernels.Sparse32, 300, cat([]byte{2, 2}, f(1, 1), []byte{0x81, 0x01})},
		{"more gaps than values", kernels.Sparse16, 3, []byte{1, 2, 0, 0, 0, 0}},
		{"a number with a byte too many", kernels.Sparse16, 3, []byte{0x81, 0, 1, 0, 0, 0}},
		{"a gap with a byte too many", kernels.Sparse16, 3, []byte{1, 2, 0, 0, 0x81, 0}},
		{"a gap that does not end", kernels.Sparse16, 3, []byte{1, 1, 0, 0, 0x81}},
		{"a gap of 2⁶⁴", kernels.Sparse16, 3, []byte{1, 10, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}},
		{"infinity", kernels.Sparse16, 3, []byte{1, 1, 0x80, 0xff, 0}},
		{"infinity", kernels.Sparse32, 3, cat([]byte{1, 1}, f(infinity), []byte{0})},
		{"another shape", kernels.LowRank, 6, cat([]byte{2, 2, 1}, f(1, 1, 1, 1))},
		{"a shape that overflows", kernels.LowRank, 0, []byte{0x80, 0x80, 0x80, 0x80, 0x04, 0x80, 0x80, 0x80, 0x80, 0x04, 0}},
		{"a rank above the shape", kernels.LowRank, 3, cat([]byte{1, 3, 2}, make([]byte, 32))},
		{"infinity", kernels.LowRank, 1, cat([]byte{1, 1, 1}, f(1, infinity))},
		{"a product that overflows", kernels.LowRank, 1, cat([]byte{1, 1, 1}, f(1e20, -1e20))},
	}
	for _, test := range tests {
		if size, err := kernels.Check(test.e, test.n, test.data); !errors.Is(err, kernels.ErrPayload) {
			t.Errorf("%v with %s: Check is %d, %v", test.e, test.name, size, err)
		}
	}
}

// What Check accepts, every device decodes to the same finite values, and so does a step.
func FuzzCheck(f *testing.F) {
	for _, e := range kernelstest.Encodings {
		for _, n := range []int{0, 1, 20, 300} {
			f.Add(uint8(e), uint16(n), kernelstest.Payload(rand.New(rand.NewPCG(uint64(e), uint64(n))), e, n))
		}
	}
	f.Fuzz(func(t *testing.T, encoding uint8, length uint16, data []byte) {
		e, n := kernels.Encoding(encoding), int(length)
		size, err := kernels.Check(e, n, data)
		if err != nil {
			if !errors.Is(err, kernels.ErrPayload) {
				t.Fatalf("Check: %v", err)
			}
			return
		}
		data = append([]byte(nil), data[:size]...) // so that a sanitizer sees reads past the end
		want := obviousPayload(e, n, data)
		if i := kernels.Finite(want); i >= 0 {
			t.Fatalf("value %d is %v", i, want[i])
		}
		for _, d := range kernels.Devices() {
			got, next := make([]float32, n), make([]float32, n)
			d.Decode(got, e, data)
			o := kernels.Operand{Weight: 1, Encoding: e, Data: data}
			if e == kernels.FP32 {
				o = kernels.Operand{Weight: 1, Values: got}
			}
			d.Step(&kernels.Step{Rule: kernels.Assign, Operands: []kernels.Operand{o}, Params: make([]float32, n), Next: next})
			for i := range want {
				if b := math.Float32bits(want[i]); math.Float32bits(got[i]) != b || math.Float32bits(next[i]) != b {
					t.Fatalf("%s: value %d of %d is %v, assigned %v; want %v", d.Name(), i, n, got[i], next[i], want[i])
				}
			}
		}
	})
}

// A payload of runs has the values of the runs, zeros included. Set, they replace those of before,
// and nothing else.
func TestNamedValuesAreSetAndOthersStay(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		n := 1 + rng.IntN(70_000)
		x, dst, want := make([]float32, n), make([]float32, n), make([]float32, n)
		for i := range x {
			x[i], dst[i] = float32(rng.IntN(3)), rng.Float32()
		}
		copy(want, dst)
		var runs []kernels.Run
		long, far := 1+rng.IntN(40), 1+rng.IntN(30_000)
		values := 0
		for lo := rng.IntN(2 * far); lo < n; {
			hi := min(n, lo+1+rng.IntN(long))
			runs = append(runs, kernels.Run{Lo: int32(lo), Hi: int32(hi)})
			copy(want[lo:hi], x[lo:hi])
			values += hi - lo
			lo = hi + rng.IntN(far)
		}
		data := kernels.AppendRuns([]byte{1, 2, 3}, x, runs)[3:]
		size, err := kernels.Check(kernels.Sparse32, n, append(slices.Clone(data), 9))
		if err != nil || size != len(data) || size > kernels.MaxSparseBytes(kernels.Sparse32, n, values) {
			t.Fatalf("a payload of %d bytes for %d values in %d runs: size %d, %v", len(data), values, len(runs), size, err)
		}
		decoded := make([]float32, n)
		if err := kernels.Host.Decode(decoded, kernels.Sparse32, data); err != nil {
			t.Fatal(err)
		}
		if norm, _ := kernels.Host.SquaredNorm(decoded); kernels.NamedNorm(kernels.Sparse32, n, data) != norm {
			t.Fatalf("squared norm of %d values in %d runs: %v, want %v", n, len(runs), kernels.NamedNorm(kernels.Sparse32, n, data), norm)
		}
		if kernels.SetNamed(dst, kernels.Sparse32, data); !slices.Equal(dst, want) {
			t.Fatalf("%d runs of %d values: other values are set", len(runs), n)
		}
	}
}
