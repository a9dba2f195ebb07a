// Package kernelstest checks that a device keeps the contract of package kernels. [Run] is for
// every device, [RunArrays] for accelerators.
//
// [Run] compares a device with kernels.Host, bit by bit, over sizes, alignments, aliasing, numbers
// of operands, rules, and values that are not ordinary numbers. Arrays lie between guard values,
// which reveal a write out of bounds. What a step only reads must come back unchanged. The tests of
// package kernels compare Host itself with an obvious version of the formulas.
//
// Results that are NaN are compared only as NaN. The payload that an operation on two NaNs returns
// depends on the hardware and on the order in which a compiler puts the factors of a product. Where
// nothing is computed, payloads must match too.
package kernelstest

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Run tests that device d keeps the contract of kernels.Device.
func Run(t *testing.T, d kernels.Device) {
	t.Run("steps of every size", func(t *testing.T) { testSizes(t, d) })
	t.Run("any number of operands", func(t *testing.T) { testOperands(t, d) })
	t.Run("values that are not ordinary", func(t *testing.T) { testValues(t, d) })
	t.Run("in place and beside", func(t *testing.T) { testPlaces(t, d) })
	t.Run("unaligned arrays", func(t *testing.T) { testOffsets(t, d) })
	t.Run("from an update", func(t *testing.T) { testFrom(t, d) })
	t.Run("payloads", func(t *testing.T) { testDecode(t, d) })
	t.Run("encoded operands", func(t *testing.T) { testEncoded(t, d) })
	t.Run("norms and distances", func(t *testing.T) { testNorms(t, d) })
	t.Run("finite", func(t *testing.T) { testFinite(t, d) })
	t.Run("rows", func(t *testing.T) { testRows(t, d) })
	t.Run("encoders", func(t *testing.T) { testEncoders(t, d) })
	t.Run("selection", func(t *testing.T) { testSelect(t, d) })
	t.Run("sparse payloads", func(t *testing.T) { testSparse(t, d) })
	t.Run("mistakes panic", func(t *testing.T) { testMistakes(t, d) })
}

// Rules lists the rules.
var Rules = []kernels.Rule{
	kernels.SGD, kernels.Momentum, kernels.Nesterov, kernels.Adam, kernels.AdamW, kernels.Add, kernels.Assign, kernels.Adagrad, kernels.LazyAdam,
}

// bulk is a size with several tiles, a partial last tile, and a rest that does not fill a vector.
const bulk = 3*512 + 3*64 + 16 + 7

func testSizes(t *testing.T, d kernels.Device) {
	for _, rule := range Rules {
		for n := range 71 {
			compare(t, d, shape{rule: rule, n: n, operands: 3, seed: uint64(n), update: n%2 == 0, dot: n%3 == 0, displacement: n%5 < 2, saved: n%7 < 4, broadcast: n%4 < 2, copied: n%11 < 6})
		}
		for _, n := range []int{511, 512, 513, 1023, 1024, 1040, bulk} {
			compare(t, d, shape{rule: rule, n: n, operands: 2, seed: uint64(n), update: true, dot: true, displacement: true, saved: true, broadcast: true})
		}
	}
	compare(t, d, shape{rule: kernels.Adam, n: 65536 + 13, operands: 4, dot: true, displacement: true, saved: true, broadcast: true}) // the largest chunk
}

func testOperands(t *testing.T, d kernels.Device) {
	for k := range 67 {
		for _, update := range []bool{false, true} {
			compare(t, d, shape{rule: kernels.Momentum, n: 512 + 48 + 5, operands: k, seed: uint64(k), update: update})
		}
	}
	for _, k := range []int{128, 129, 200} {
		for _, update := range []bool{false, true} {
			compare(t, d, shape{rule: kernels.Adam, n: bulk, operands: k, seed: uint64(k), update: update, displacement: true})
		}
	}
}

func testValues(t *testing.T, d kernels.Device) {
	for _, rule := range Rules {
		for v := range kinds {
			for seed := range uint64(8) {
				compare(t, d, shape{rule: rule, n: bulk, operands: 1 + int(seed), seed: seed, kind: v, dot: true, displacement: true, update: true, saved: true, broadcast: true})
			}
		}
	}
}

func testPlaces(t *testing.T, d kernels.Device) {
	for _, rule := range Rules {
		for p := range places {
			for flags := range 16 {
				for _, n := range []int{5, 16, bulk} {
					compare(t, d, shape{rule: rule, n: n, operands: 4, seed: 7 + uint64(flags>>3), place: p, update: flags&1 > 0, dot: flags&2 > 0, displacement: flags&4 > 0, saved: flags&1 == 0, broadcast: flags&4 == 0, copied: flags&6 != 6})
				}
			}
		}
	}
}

func testOffsets(t *testing.T, d kernels.Device) {
	for _, rule := range Rules {
		for offset := range 17 {
			for _, seed := range []uint64{3, 4} {
				compare(t, d, shape{rule: rule, n: 600, operands: 2, seed: seed, offset: offset, update: true, dot: true, displacement: true, copied: true})
			}
		}
	}
}

// testFrom shows that a step From the update of another step has the same bits. Replicas down the
// chain rely on this.
func testFrom(t *testing.T, d kernels.Device) {
	for _, rule := range Rules {
		for kind := range kinds {
			for _, n := range []int{1, 15, 16, 100, bulk} {
				s := shape{rule: rule, n: n, operands: 9, seed: uint64(n), kind: kind, update: true, dot: true, displacement: true, saved: true, broadcast: true}
				first, second := s.build(), s.build()
				want := step(t, d, first)
				second.From, second.Operands, second.Update, second.Scale = first.Update, nil, nil, 0
				got := step(t, d, second)
				s.same(t, d, "Next", second.Next, first.Next)
				s.same(t, d, "Broadcast", broadcast(second), broadcast(first))
				s.same(t, d, "NextState[0]", second.NextState[0], first.NextState[0])
				s.same(t, d, "NextState[1]", second.NextState[1], first.NextState[1])
				s.sameProducts(t, d, got, want)
			}
		}
	}
}

func testMistakes(t *testing.T, d kernels.Device) {
	long := make([]float32, 64)
	mistakes := map[string]func(s *kernels.Step){
		"no rule":                    func(s *kernels.Step) { s.Rule = 0 },
		"unknown rule":               func(s *kernels.Step) { s.Rule = kernels.LazyAdam + 1 },
		"short operand":              func(s *kernels.Step) { s.Operands[1].Values = s.Operands[1].Values[1:] },
		"values and data":            func(s *kernels.Step) { s.Operands[1].Data = []byte{1} },
		"values of an encoding":      func(s *kernels.Step) { s.Operands[1].Encoding = kernels.BF16 },
		"a payload that is too long": func(s *kernels.Step) { s.Operands[1] = kernels.Operand{Encoding: kernels.BF16, Data: make([]byte, 65)} },
		"an unknown encoding":        func(s *kernels.Step) { s.Operands[1] = kernels.Operand{Encoding: 8, Data: make([]byte, 64)} },
		"Next is a payload": func(s *kernels.Step) {
			s.Operands[1] = kernels.Operand{Encoding: kernels.BF16, Data: kernels.Bytes(s.Next)[3:67]}
		},
		"short Next":                     func(s *kernels.Step) { s.Next = s.Next[1:] },
		"short Update":                   func(s *kernels.Step) { s.Update = s.Update[1:] },
		"no state":                       func(s *kernels.Step) { s.State[1] = nil },
		"no new state":                   func(s *kernels.Step) { s.NextState[0] = nil },
		"state that the rule lacks":      func(s *kernels.Step) { s.Rule = kernels.Momentum },
		"dot without Previous":           func(s *kernels.Step) { s.Previous = nil },
		"From and operands":              func(s *kernels.Step) { s.From, s.Update = s.Params, nil },
		"From and Update":                func(s *kernels.Step) { s.From, s.Operands = s.Params, nil },
		"short From":                     func(s *kernels.Step) { s.From, s.Operands, s.Update = s.Params[1:], nil, nil },
		"Next overlaps Params":           func(s *kernels.Step) { s.Params, s.Next = long[:32], long[1:33] },
		"Next is an operand":             func(s *kernels.Step) { s.Next = s.Operands[0].Values },
		"Update is an operand":           func(s *kernels.Step) { s.Update = s.Operands[0].Values },
		"Update is Params":               func(s *kernels.Step) { s.Update = s.Params },
		"short Broadcast":                func(s *kernels.Step) { s.Broadcast = make([]byte, 63) },
		"Broadcast is an operand":        func(s *kernels.Step) { s.Broadcast = kernels.Bytes(s.Operands[0].Values)[:64] },
		"Broadcast is in Next":           func(s *kernels.Step) { s.Broadcast = kernels.Bytes(s.Next)[60:124] },
		"short Copy":                     func(s *kernels.Step) { s.Copy = make([]float32, 31) },
		"Copy is Next":                   func(s *kernels.Step) { s.Copy = s.Next },
		"Copy is an operand":             func(s *kernels.Step) { s.Copy = s.Operands[0].Values },
		"distance without Saved":         func(s *kernels.Step) { s.WantSaved = true },
		"Saved is Next":                  func(s *kernels.Step) { s.Saved = s.Next },
		"Next is Update":                 func(s *kernels.Step) { s.Update = s.Next },
		"new states are one array":       func(s *kernels.Step) { s.NextState[1] = s.NextState[0] },
		"states are swapped":             func(s *kernels.Step) { s.NextState[0], s.NextState[1] = s.State[1], s.State[0] },
		"state overlaps Previous":        func(s *kernels.Step) { s.NextState[0] = s.Previous },
		"assign of more than one":        func(s *kernels.Step) { s.Rule, s.State, s.NextState = kernels.Assign, [2][]float32{}, [2][]float32{} },
		"Next overlaps Previous in part": func(s *kernels.Step) { s.Previous, s.Next = long[:32], long[31:63] },
	}
	for name, spoil := range mistakes {
		s := shape{rule: kernels.Adam, n: 32, operands: 2, update: true, dot: true}.build()
		spoil(&s.Step)
		if !panics(func() { d.Step(&s.Step) }) {
			t.Errorf("%s: step with %s does not panic", d.Name(), name)
		}
	}
	if !panics(func() { d.SquaredDistance(long, long[1:]) }) {
		t.Errorf("%s: distance of unequal lengths does not panic", d.Name())
	}
}

func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

// The places to which a step writes.
const (
	beside     = iota // new arrays
	inPlace           // Next is Params, NextState is State
	twoBuffers        // Next is Previous
	places
)

// The kinds of values that fill a shape.
const (
	ordinary = iota
	tiny     // subnormal numbers, and numbers that become subnormal
	huge     // sums and squares overflow
	bits     // any bit pattern, many NaN and infinities
	zeros    // zeros of both signs
	kinds
)

// value draws a value of the given kind.
func value(rng *rand.Rand, kind int) float32 {
	x := float32(rng.NormFloat64())
	switch kind {
	case tiny:
		return x * 1e-39
	case huge:
		return x * 1e38
	case bits:
		if rng.IntN(8) > 0 {
			return math.Float32frombits(rng.Uint32())
		}
		odd := [...]uint32{0, 1 << 31, 1, 1<<31 | 1, 0x007fffff, 0x00800000, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x7f812345}
		return math.Float32frombits(odd[rng.IntN(len(odd))])
	case zeros:
		return math.Float32frombits(rng.Uint32() << 31)
	}
	return x
}

// shape describes a step. build fills it, with the same values each time.
type shape struct {
	rule                      kernels.Rule
	n, operands, offset       int
	seed                      uint64
	kind, place               int
	update, dot, displacement bool
	saved, broadcast, copied  bool
}

func (s shape) String() string {
	type fields shape // a type without this method
	return fmt.Sprintf("%+v", fields(s))
}

// built is a step and all memory that it may touch.
type built struct {
	kernels.Step
	arrays []array
}

// array is memory with guards around it.
type array struct {
	name string
	all  []float32
	lo   int
	n    int
}

func (a *array) values() []float32 { return a.all[a.lo:][:a.n:a.n] }

const guards = 24

// guard is a NaN that no operation produces.
var guard = math.Float32frombits(0x7fabcdef)

func (b *built) array(name string, rng *rand.Rand, s shape) []float32 {
	a := array{name: name, all: make([]float32, guards+s.offset+s.n+guards), lo: guards + s.offset, n: s.n}
	for s.offset%16 == 0 && uintptr(unsafe.Pointer(&a.all[a.lo]))%64 != 0 {
		a.lo--
	}
	for i := range a.all {
		a.all[i] = guard
	}
	x := a.values()
	for i := range x {
		x[i] = value(rng, s.kind)
	}
	b.arrays = append(b.arrays, a)
	return x
}

func (s shape) build() *built {
	rng := rand.New(rand.NewPCG(s.seed, uint64(s.n)))
	b := &built{Step: kernels.Step{
		Rule: s.rule, WantDot: s.dot, WantDisplacement: s.displacement,
		Scalars: kernels.Scalars{
			LearningRate: 0.013, Momentum: 0.9, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.021,
			Correction1: 0.271, Correction2: 0.002996,
		},
		Scale:     1 / float32(s.operands+2),
		Streaming: s.seed%2 == 0,
	}}
	operands := s.operands
	if s.rule == kernels.Assign {
		operands = 1
	}
	for j := range operands {
		b.Operands = append(b.Operands, kernels.Operand{Weight: float32(1 + rng.Float64()), Values: b.array(fmt.Sprintf("operand %d", j), rng, s)})
	}
	if s.rule == kernels.LazyAdam { // which is Adam unless there are zeros
		for i := range s.n {
			if rng.IntN(3) > 0 {
				continue
			}
			for _, o := range b.Operands {
				o.Values[i] = value(rng, zeros)
			}
		}
	}
	b.Params = b.array("Params", rng, s)
	b.Next = b.Params
	b.Previous = b.array("Previous", rng, s)
	switch s.place {
	case beside:
		b.Next = b.array("Next", rng, s)
	case twoBuffers:
		b.Next = b.Previous
	}
	for j := range s.rule.States() {
		b.State[j] = b.array(fmt.Sprintf("State[%d]", j), rng, s)
		b.NextState[j] = b.State[j]
		if s.place == beside {
			b.NextState[j] = b.array(fmt.Sprintf("NextState[%d]", j), rng, s)
		}
	}
	if s.rule.States() == 2 && s.kind != bits {
		for i, v := range b.State[1] { // a second moment that is not negative; otherwise all results are NaN
			b.State[1][i] = float32(math.Abs(float64(v)))
		}
	}
	if s.update {
		b.Update = b.array("Update", rng, s)
	}
	if s.copied {
		b.Copy = b.array("Copy", rng, s)
	}
	if s.saved {
		b.WantSaved, b.Saved = true, b.array("Saved", rng, s)
	}
	if s.broadcast {
		s.n = (s.n + 1) / 2
		b.Broadcast = kernels.Bytes(b.array("Broadcast", rng, s))[:2*len(b.Params)]
	}
	return b
}

// compare runs the step on d and on Host and compares everything.
func compare(t *testing.T, d kernels.Device, s shape) {
	t.Helper()
	got, want := s.build(), s.build()
	gotProducts, wantProducts := step(t, d, got), step(t, kernels.Host, want)
	for i := range got.arrays {
		s.same(t, d, got.arrays[i].name, got.arrays[i].values(), want.arrays[i].values())
	}
	s.sameProducts(t, d, gotProducts, wantProducts)
}

// step runs b and checks that the device wrote nothing except what the step writes.
func step(t *testing.T, d kernels.Device, b *built) kernels.Products {
	t.Helper()
	before := make([][]float32, len(b.arrays))
	for i, a := range b.arrays {
		before[i] = slices.Clone(a.all)
	}
	p, err := d.Step(&b.Step)
	if err != nil {
		t.Fatalf("%s: %v", d.Name(), err)
	}
	if b.Copy != nil && !bytes.Equal(raw(b.Copy), raw(b.Next)) {
		t.Fatalf("%s: %v step of %d values: Copy is not Next", d.Name(), b.Rule, len(b.Params))
	}
	for i, a := range b.arrays {
		written := a.n > 0 && (&a.all[a.lo] == &b.Next[0] ||
			b.Update != nil && &a.all[a.lo] == &b.Update[0] || a.name == "Broadcast" || a.name == "Copy" ||
			b.NextState[0] != nil && &a.all[a.lo] == &b.NextState[0][0] ||
			b.NextState[1] != nil && &a.all[a.lo] == &b.NextState[1][0])
		if bytes.Equal(raw(a.all), raw(before[i])) {
			continue
		}
		for j := range a.all {
			inside := j >= a.lo && j < a.lo+a.n
			if math.Float32bits(a.all[j]) != math.Float32bits(before[i][j]) && !(inside && written) {
				t.Fatalf("%s: %v step of %d values wrote to %s at %d, which it may not", d.Name(), b.Rule, a.n, a.name, j-a.lo)
			}
		}
	}
	return p
}

// broadcast returns the Broadcast of b, as float32.
func broadcast(b *built) []float32 {
	x := make([]float32, len(b.Params))
	for i := range x {
		x[i] = math.Float32frombits(uint32(b.Broadcast[2*i])<<16 | uint32(b.Broadcast[2*i+1])<<24)
	}
	return x
}

// same fails the test unless got and want have equal bits. If the step computed them, two NaNs also
// count as equal.
func (s shape) same(t *testing.T, d kernels.Device, name string, got, want []float32) {
	t.Helper()
	if bytes.Equal(raw(got), raw(want)) {
		return
	}
	for i := range want {
		if !equal(got[i], want[i]) && (s.rule == kernels.Assign || !bothNaN(float64(got[i]), float64(want[i]))) {
			t.Fatalf("%s: %v: %s at %d of %d is %x, host has %x", d.Name(), s, name, i, len(want), math.Float32bits(got[i]), math.Float32bits(want[i]))
		}
	}
}

func (s shape) sameProducts(t *testing.T, d kernels.Device, got, want kernels.Products) {
	t.Helper()
	check := func(name string, got, want float64) {
		if math.Float64bits(got) != math.Float64bits(want) && !bothNaN(got, want) {
			t.Fatalf("%s: %v: %s is %v, want %v", d.Name(), s, name, got, want)
		}
	}
	check("SquaredNorm", got.SquaredNorm, want.SquaredNorm)
	check("DotDisplacement", got.DotDisplacement, want.DotDisplacement)
	check("SquaredDistanceSaved", got.SquaredDistanceSaved, want.SquaredDistanceSaved)
	check("SquaredDisplacement", got.SquaredDisplacement, want.SquaredDisplacement)
}

// raw views x as bytes, because comparing bytes is fast even under the race detector.
func raw(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

func equal(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }

func bothNaN(x, y float64) bool { return math.IsNaN(x) && math.IsNaN(y) }
