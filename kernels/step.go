package kernels

import (
	"fmt"
	"unsafe"
)

// Rule says what a step does with the scaled sum of its operands. The values equal those of
// kintsugi.Rule and are stored in checkpoints: never renumber.
type Rule uint8

// The rules. The package comment has their formulas.
const (
	SGD      Rule = 1
	Momentum Rule = 2
	Nesterov Rule = 3
	Adam     Rule = 4
	AdamW    Rule = 5
	Add      Rule = 6
	Assign   Rule = 7
	Adagrad  Rule = 8
	LazyAdam Rule = 9
)

// States returns the number of arrays of optimizer state that the rule keeps. Each is as long as
// the parameters and starts at zero.
func (r Rule) States() int {
	switch r {
	case Momentum, Nesterov, Adagrad:
		return 1
	case Adam, AdamW, LazyAdam:
		return 2
	}
	return 0
}

// String returns the rule's name in lower case, such as "adamw".
func (r Rule) String() string {
	names := [...]string{SGD: "sgd", Momentum: "momentum", Nesterov: "nesterov", Adam: "adam", AdamW: "adamw", Add: "add", Assign: "assign", Adagrad: "adagrad", LazyAdam: "lazyadam"}
	if int(r) < len(names) && names[r] != "" {
		return names[r]
	}
	return fmt.Sprintf("rule %d", uint8(r))
}

// Scalars are the numbers of an optimizer step. A rule uses those in its formula.
type Scalars struct {
	LearningRate float32
	Momentum     float32
	Beta1, Beta2 float32
	Epsilon      float32
	WeightDecay  float32
	Correction1  float32 // 1 − β₁ᵗ
	Correction2  float32 // 1 − β₂ᵗ
}

// Operand is one gradient of a step on one chunk, as it was sent. A step with encoded operands has
// the same bits as a step with the decoded values.
type Operand struct {
	Weight float32 // finite

	// Values are the gradient if Encoding is FP32. Otherwise Data is its payload, of exactly one
	// chunk, which [Check] has accepted. The other field is nil.
	Values   []float32
	Encoding Encoding
	Data     []byte
}

// Step is one optimizer step on one chunk of n values. All slices have n values; a slice may be nil
// only where its comment says so. [Device].Step uses the memory until it returns and keeps none of
// it.
//
// The step writes Next, NextState, Update, Broadcast and Copy. Next may be the same slice as Params
// or as Previous, and NextState[i] the same as State[i]. Apart from that, nothing that is written
// may overlap any other slice.
type Step struct {
	Rule    Rule
	Scalars Scalars

	// Operands are summed in this order. With no operands the sum is +0. Assign takes exactly one
	// operand.
	Operands []Operand
	Scale    float32 // multiplies the sum

	// From, unless nil, replaces Operands and Scale. It is the scaled sum, as an earlier step wrote
	// it to Update. Both steps have the same bits.
	From []float32

	Params []float32 // before the step
	Next   []float32 // after the step

	// State and NextState hold the rule's arrays of state before and after the step. The first
	// Rule.States() of them are set, the others nil.
	State, NextState [2][]float32

	// Update, unless nil, receives the scaled sum. It must be nil in a step with From.
	Update []float32

	// Previous holds the parameters one version before Params. Only WantDot needs it.
	Previous []float32

	// Saved holds parameters that were saved. Only WantSaved needs it.
	Saved []float32

	// Broadcast, unless nil, receives Next in BF16: 2n bytes. The package comment specifies the
	// rounding.
	Broadcast []byte

	// Copy, unless nil, receives Next as well, from where it is in the cache.
	Copy []float32

	// Streaming says that the arrays of the model are larger than the caches, so that Next,
	// NextState and Copy will no longer be cached when they are read again. Where they are aligned to
	// a cache line, they are then written past the caches, which saves reading each line first. It
	// changes no bits.
	Streaming bool

	WantDot          bool // ask for Products.DotDisplacement, which reads Previous
	WantDisplacement bool // ask for Products.SquaredDisplacement
	WantSaved        bool // ask for Products.SquaredDistanceSaved, which reads Saved
}

// Products are the by-products of a step on one chunk. Displacements are differences of parameters,
// rounded to float32. Products of two float32 are exact in float64, and the package comment
// specifies the order of the sums.
type Products struct {
	SquaredNorm         float64 // ‖g‖² of the scaled sum
	DotDisplacement     float64 // ⟨g, Params − Previous⟩, or 0 if not asked for
	SquaredDisplacement float64 // ‖Next − Params‖², or 0 if not asked for

	SquaredDistanceSaved float64 // ‖Next − Saved‖², or 0 if not asked for
}

// Streams reports whether steps on a model should be Streaming. bytes is the size of all arrays
// that one step of the model reads and writes. The threshold comes from the machine of
// bench/results: somewhat above the size of a core's own cache, stores past the caches became the
// faster ones.
func Streams(bytes int) bool { return bytes > 16<<20 }

// given returns the scaled sum if the step has it already, otherwise nil.
func (s *Step) given() []float32 {
	if s.From == nil && s.Rule == Assign && s.Operands[0].Encoding == FP32 {
		return s.Operands[0].Values
	}
	return s.From
}

// check panics, with the values, on a step that breaks the rules of Step. Without it, the C code,
// which has no bounds checks, would write past the end of an array.
func (s *Step) check() {
	if s.Rule < SGD || s.Rule > LazyAdam {
		panic(fmt.Sprintf("kernels: step with %v", s.Rule))
	}
	if s.From != nil && (s.Operands != nil || s.Update != nil) {
		panic(fmt.Sprintf("kernels: step From an update has %d operands and Update of %d values; both must be nil", len(s.Operands), len(s.Update)))
	}
	if s.From == nil && s.Rule == Assign && len(s.Operands) != 1 {
		panic(fmt.Sprintf("kernels: assign of %d operands; it takes one", len(s.Operands)))
	}
	n := len(s.Params)
	for j := range s.Operands {
		s.Operands[j].check(j, n)
	}
	s.checkLen("Next", s.Next, true)
	s.checkLen("From", s.From, s.From != nil)
	s.checkLen("Update", s.Update, s.Update != nil)
	s.checkLen("Copy", s.Copy, s.Copy != nil)
	s.checkLen("Previous", s.Previous, s.WantDot || s.Previous != nil)
	s.checkLen("Saved", s.Saved, s.WantSaved || s.Saved != nil)
	if s.Broadcast != nil && len(s.Broadcast) != 2*n {
		panic(fmt.Sprintf("kernels: %v step on %d values: Broadcast has %d bytes", s.Rule, n, len(s.Broadcast)))
	}
	for j := range s.State {
		s.checkLen("State", s.State[j], j < s.Rule.States())
		s.checkLen("NextState", s.NextState[j], j < s.Rule.States())
	}
	if n > 0 {
		s.checkOverlap()
	}
}

// check panics unless operand number j has n values.
func (o *Operand) check(j, n int) {
	if o.Encoding == FP32 {
		if len(o.Values) != n || o.Data != nil {
			panic(fmt.Sprintf("kernels: step on %d values: operand %d has %d, and %d bytes", n, j, len(o.Values), len(o.Data)))
		}
		return
	}
	if o.Values != nil {
		panic(fmt.Sprintf("kernels: step on %d values: operand %d in %v has %d as well", n, j, o.Encoding, len(o.Values)))
	}
	checkPayload(o.Encoding, n, o.Data)
}

func (s *Step) checkLen(name string, x []float32, used bool) {
	want := 0
	if used {
		want = len(s.Params)
	}
	if len(x) != want {
		panic(fmt.Sprintf("kernels: %v step on %d values: %s has %d, want %d", s.Rule, len(s.Params), name, len(x), want))
	}
}

// checkOverlap panics if a written array overlaps another one against the rules. Otherwise a pooled
// buffer that is in use twice would show only as a replica that differs in a few values.
func (s *Step) checkOverlap() {
	written := [...]struct {
		name     string
		x        []float32
		twin     []float32 // may be the same slice
		previous bool      // x may also be Previous
	}{
		{"Next", s.Next, s.Params, true},
		{"NextState[0]", s.NextState[0], s.State[0], false},
		{"NextState[1]", s.NextState[1], s.State[1], false},
		{"Update", s.Update, nil, false},
		{"Copy", s.Copy, nil, false},
	}
	read := [...][]float32{s.Params, s.State[0], s.State[1], s.From, s.Saved}
	for i := range written {
		w := &written[i]
		if len(w.x) == 0 {
			continue
		}
		bad := overlap(w.x, s.Broadcast) || overlap(w.x, s.Previous) && !(w.previous && same(w.x, s.Previous))
		for _, r := range read {
			bad = bad || overlap(w.x, r) && !(same(w.x, r) && same(w.x, w.twin))
		}
		for j := range s.Operands {
			o := &s.Operands[j]
			bad = bad || overlap(w.x, o.Values) || overlap(w.x, o.Data)
		}
		for j := range i {
			bad = bad || overlap(w.x, written[j].x)
		}
		if bad {
			panic(fmt.Sprintf("kernels: %v step: %s overlaps another array of the step", s.Rule, w.name))
		}
	}
	bad := overlap(s.Broadcast, s.Previous)
	for _, r := range read {
		bad = bad || overlap(s.Broadcast, r)
	}
	for j := range s.Operands {
		bad = bad || overlap(s.Broadcast, s.Operands[j].Values) || overlap(s.Broadcast, s.Operands[j].Data)
	}
	if bad {
		panic(fmt.Sprintf("kernels: %v step: Broadcast overlaps another array of the step", s.Rule))
	}
}

// overlap reports whether x and y share memory.
func overlap[X, Y float32 | byte | int32](x []X, y []Y) bool {
	a, b := uintptr(unsafe.Pointer(unsafe.SliceData(x))), uintptr(unsafe.Pointer(unsafe.SliceData(y)))
	var xSize, ySize = unsafe.Sizeof(*new(X)), unsafe.Sizeof(*new(Y))
	return len(x) > 0 && len(y) > 0 && a < b+uintptr(len(y))*ySize && b < a+uintptr(len(x))*xSize
}

// same reports whether x and y, which have equal lengths, are the same memory.
func same(x, y []float32) bool { return unsafe.SliceData(x) == unsafe.SliceData(y) }

// coefficients are a step's scalars in the form in which the formulas use them, each rounded to
// float32 once.
type coefficients struct {
	scale, rate, momentum, decay    float32 // Scale, η, μ, λ
	beta1, rest1, beta2, rest2      float32 // β₁, 1−β₁, β₂, 1−β₂
	alpha, rho, epsilon, weightKept float32 // η/Correction1, 1/√Correction2, ε, 1−η·λ
}

func (s *Step) coefficients() coefficients {
	x := &s.Scalars
	return coefficients{
		scale: s.Scale, rate: x.LearningRate, momentum: x.Momentum, decay: x.WeightDecay,
		beta1: x.Beta1, rest1: 1 - x.Beta1, beta2: x.Beta2, rest2: 1 - x.Beta2,
		alpha: x.LearningRate / x.Correction1, rho: 1 / sqrt(x.Correction2), epsilon: x.Epsilon,
		weightKept: 1 - float32(x.LearningRate*x.WeightDecay),
	}
}
