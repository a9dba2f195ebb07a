package kernelstest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Encodings lists all encodings.
var Encodings = []kernels.Encoding{
	kernels.FP32, kernels.BF16, kernels.FP16, kernels.Int8, kernels.Sign, kernels.Sparse16, kernels.Sparse32, kernels.LowRank,
	kernels.Int4,
}

// Payload draws a payload of n values that kernels.Check accepts. It may draw any such payload,
// also those that no codec would write.
func Payload(rng *rand.Rand, e kernels.Encoding, n int) []byte {
	var p []byte
	switch e {
	case kernels.FP32:
		for range n {
			p = append32(p, float(rng))
		}
	case kernels.BF16:
		for range n {
			p = append16(p, half(rng, 0x7f80))
		}
	case kernels.FP16:
		for range n {
			p = append16(p, half(rng, 0x7c00))
		}
	case kernels.Int8:
		p = scales(rng, n)
		for range n {
			p = append(p, byte(int8(rng.IntN(255)-127)))
		}
	case kernels.Int4:
		p = scales(rng, n)
		for i := range n {
			q := byte(rng.IntN(15)-7) & 15
			if i%2 == 0 {
				p = append(p, q)
			} else {
				p[len(p)-1] |= q << 4
			}
		}
	case kernels.Sign:
		p = scales(rng, n)
		for range (n + 7) / 8 {
			p = append(p, byte(rng.Uint32()))
		}
		if n%8 > 0 {
			p[len(p)-1] &= 1<<(n%8) - 1
		}
	case kernels.Sparse16, kernels.Sparse32:
		p = sparse(rng, e, n)
	case kernels.LowRank:
		p = lowRank(rng, n)
	}
	return p
}

func append32(p []byte, x float32) []byte {
	return binary.LittleEndian.AppendUint32(p, math.Float32bits(x))
}
func append16(p []byte, x uint16) []byte { return binary.LittleEndian.AppendUint16(p, x) }

// float draws a finite number; one in eight is not an ordinary one.
func float(rng *rand.Rand) float32 {
	if rng.IntN(8) > 0 {
		return float32(rng.NormFloat64())
	}
	odd := [...]float32{0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32, -1e-39, math.MaxFloat32, -math.MaxFloat32}
	return odd[rng.IntN(len(odd))]
}

// half draws the bits of a finite two-byte number; exponent masks its exponent.
func half(rng *rand.Rand, exponent uint16) uint16 {
	for {
		if h := uint16(rng.Uint32()); h&exponent != exponent {
			return h
		}
	}
}

func scales(rng *rand.Rand, n int) []byte {
	var p []byte
	for range (n + 255) / 256 {
		odd := [...]float32{0, math.SmallestNonzeroFloat32, 1e-41, 2.6e36}
		x := float32(rng.ExpFloat64())
		if rng.IntN(4) == 0 {
			x = odd[rng.IntN(len(odd))]
		}
		p = append32(p, x)
	}
	return p
}

// sparse draws a payload that names none, few, half or all of the values, at times with gaps that
// need several bytes.
func sparse(rng *rand.Rand, e kernels.Encoding, n int) []byte {
	one := [...]int{1, 2, 9, 100, 1000, 1 << 30}[rng.IntN(6)]
	var values, gaps []byte
	count, previous := 0, -1
	for i := range n {
		if rng.IntN(one) > 0 {
			continue
		}
		gaps = binary.AppendUvarint(gaps, uint64(i-previous-1))
		previous = i
		count++
		if e == kernels.Sparse16 {
			values = append16(values, half(rng, 0x7f80))
		} else {
			values = append32(values, float(rng))
		}
	}
	p := binary.AppendUvarint(nil, uint64(count))
	p = binary.AppendUvarint(p, uint64(len(gaps)))
	return append(append(p, values...), gaps...)
}

func lowRank(rng *rand.Rand, n int) []byte {
	rows, cols := min(n, 1), n
	for r := 1 + rng.IntN(300); r > 1; r-- {
		if n > 0 && n%r == 0 {
			rows, cols = r, n/r
			break
		}
	}
	if rng.IntN(2) == 0 {
		rows, cols = cols, rows
	}
	rank := min(rng.IntN(6), rows, cols)
	var p []byte
	for _, v := range []int{rows, cols, rank} {
		p = binary.AppendUvarint(p, uint64(v))
	}
	for range (rows + cols) * rank {
		x := float32(rng.NormFloat64())
		if rng.IntN(8) == 0 {
			x *= 1e-24 // products below the normal numbers
		}
		p = append32(p, x)
	}
	return p
}

// encodedSizes returns lengths of chunks around each border: of lanes, blocks and tiles.
func encodedSizes() []int {
	sizes := []int{127, 128, 255, 256, 257, 271, 511, 512, 513, 1024 + 256 + 40, bulk}
	for n := range 40 {
		sizes = append(sizes, n)
	}
	return sizes
}

// testDecode compares with Host, and checks the memory around the values and the payload.
func testDecode(t *testing.T, d kernels.Device) {
	for _, e := range Encodings {
		for _, n := range encodedSizes() {
			rng := rand.New(rand.NewPCG(uint64(e), uint64(n)))
			data := offset(rng, Payload(rng, e, n))
			b := new(built)
			got, want := b.array("dst", rng, shape{n: n, offset: n % 3}), make([]float32, n)
			if err := kernels.Host.Decode(want, e, data); err != nil {
				t.Fatal(err)
			}
			sameRows(t, d, fmt.Sprintf("Decode of %v", e), b, got, want, d.Decode(got, e, data), true)
		}
		if !panics(func() { d.Decode(make([]float32, 70), e, make([]byte, 3)) }) {
			t.Errorf("%s: Decode of a payload in %v that is too short does not panic", d.Name(), e)
		}
	}
}

// offset returns a copy of data that starts at any alignment and ends where its memory ends, so
// that a sanitizer detects a read past it.
func offset(rng *rand.Rand, data []byte) []byte {
	at := rng.IntN(64)
	x := make([]byte, at+len(data))
	copy(x[at:], data)
	return x[at:]
}

// encode replaces the operands of s by payloads in the given encodings, in turn, and returns the
// same operands decoded.
func encode(t *testing.T, s *kernels.Step, rng *rand.Rand, encodings []kernels.Encoding) (decoded []kernels.Operand) {
	t.Helper()
	decoded = append([]kernels.Operand(nil), s.Operands...)
	for j := range s.Operands {
		e := encodings[j%len(encodings)]
		n := len(s.Params)
		data := offset(rng, Payload(rng, e, n))
		if size, err := kernels.Check(e, n, data); err != nil || size != len(data) {
			t.Fatalf("Check of %v payload with %d bytes of %d values: %d, %v", e, len(data), n, size, err)
		}
		values := make([]float32, n)
		if err := kernels.Host.Decode(values, e, data); err != nil {
			t.Fatal(err)
		}
		s.Operands[j].Values, decoded[j].Values = values, values
		if e != kernels.FP32 {
			s.Operands[j] = kernels.Operand{Weight: s.Operands[j].Weight, Encoding: e, Data: data}
		}
	}
	return decoded
}

// testEncoded shows that a step has the bits of the step with decoded operands on Host.
func testEncoded(t *testing.T, d kernels.Device) {
	mixes := [][]kernels.Encoding{
		{kernels.FP32, kernels.Int8},
		{kernels.Sparse16, kernels.BF16, kernels.Sparse32, kernels.FP32},
		{kernels.FP32, kernels.FP32, kernels.Sparse16},
		{kernels.LowRank, kernels.Sign, kernels.Sign, kernels.FP16, kernels.FP16, kernels.Sparse32, kernels.Sparse32},
	}
	for _, e := range Encodings {
		mixes = append(mixes, []kernels.Encoding{e})
	}
	turn := 0
	for _, mix := range mixes {
		for _, n := range encodedSizes() {
			turn++
			s := shape{
				rule: Rules[turn%len(Rules)], n: n, operands: 1 + turn%9, seed: uint64(turn), place: turn % places,
				update: turn%2 == 0, dot: turn%3 == 0, displacement: turn%5 == 0, saved: turn%4 == 0, broadcast: turn%3 == 1,
			}
			if turn%11 == 0 {
				s.operands = 60 + turn%90
			}
			if n > 5000 && s.operands > 9 {
				s.operands = 9
			}
			compareEncoded(t, d, s, mix)
		}
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for range 24 { // drawn
		n := rng.IntN(1 << rng.IntN(14))
		mix := make([]kernels.Encoding, 1+rng.IntN(5))
		for i := range mix {
			mix[i] = Encodings[rng.IntN(len(Encodings))]
		}
		compareEncoded(t, d, shape{
			rule: Rules[rng.IntN(len(Rules))], n: n, operands: rng.IntN(12), offset: rng.IntN(17), seed: rng.Uint64(), place: rng.IntN(places),
			update: rng.IntN(2) == 0, dot: rng.IntN(2) == 0, displacement: rng.IntN(2) == 0, saved: rng.IntN(2) == 0, broadcast: rng.IntN(2) == 0,
		}, mix)
	}
	for i, e := range Encodings { // the largest chunk, and a larger one
		compareEncoded(t, d, shape{rule: Rules[i%len(Rules)], n: 65536 + 4464*(i%2), operands: 2, seed: uint64(i)}, []kernels.Encoding{e})
	}
	for _, rule := range Rules { // every encoding with every rule
		for _, e := range Encodings {
			compareEncoded(t, d, shape{rule: rule, n: bulk, operands: 3, seed: uint64(e)}, []kernels.Encoding{e})
		}
	}
}

func compareEncoded(t *testing.T, d kernels.Device, s shape, mix []kernels.Encoding) {
	t.Helper()
	got, want := s.build(), s.build()
	want.Operands = encode(t, &got.Step, rand.New(rand.NewPCG(s.seed, 1)), mix)
	gotProducts, wantProducts := step(t, d, got), step(t, kernels.Host, want)
	for i := range got.arrays {
		s.same(t, d, fmt.Sprintf("%s with operands in %v", got.arrays[i].name, mix), got.arrays[i].values(), want.arrays[i].values())
	}
	s.sameProducts(t, d, gotProducts, wantProducts)
}
