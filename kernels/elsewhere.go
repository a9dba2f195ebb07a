package kernels

// What a device outside this package needs of the contract: the checks that panic, and the parts of payloads.

// Check panics, with the values, on a step that breaks the rules of [Step]. A device that copies the arrays, or runs
// code without bounds checks, calls it first.
func (s *Step) Check() { s.check() }

// Given returns the scaled sum where the step has it already: From, or the values of Assign. Else nil.
func (s *Step) Given() []float32 { return s.given() }

// Coefficients returns the numbers of the step as the formulas use them, each rounded to float32
// once: Scale, η, μ, λ, β₁, 1−β₁, β₂, 1−β₂, α, ρ, ε, δ.
func (s *Step) Coefficients() [12]float32 {
	c := s.coefficients()
	return [12]float32{
		c.scale, c.rate, c.momentum, c.decay, c.beta1, c.rest1, c.beta2, c.rest2, c.alpha, c.rho, c.epsilon, c.weightKept,
	}
}

// CheckPayload panics unless data is as long as the payload of n values in e.
func CheckPayload(e Encoding, n int, data []byte) { checkPayload(e, n, data) }

// CheckEncode panics, with the values, on arguments that break the rules of [Encoder]: dst must have want bytes.
func CheckEncode(name string, dst []byte, want int, x, carry, residual []float32) {
	checkEncode(name, dst, want, x, carry, residual)
}

// CheckSelect does so for Select.
func CheckSelect(index []int32, value, x, carry, residual []float32) {
	checkSelect(index, value, x, carry, residual)
}

// CheckPair panics unless x and y have one length.
func CheckPair(x, y []float32) { checkPair(x, y) }

// CheckRows panics on lengths that do not fit, and returns the error of AddRows and AssignRows for
// a row that dst lacks.
func CheckRows(dst []float32, rowLen int, rows []int32, values []float32) error {
	return checkRows(dst, rowLen, rows, values)
}

// SparseParts returns the values and the gaps in a payload of n values, in Sparse16 or Sparse32,
// that [Check] has accepted. They alias data.
func SparseParts(e Encoding, n int, data []byte) (values, gaps []byte) {
	s, _, _ := parseSparse(e, n, data) // Check has seen the error
	return s.values, s.gaps
}

// LowRankParts returns the shape and the factors in a payload of n values in LowRank that [Check] has accepted. p
// and q alias data.
func LowRankParts(n int, data []byte) (cols, rank int, p, q []byte) {
	f, _, _ := parseLowRank(n, data) // Check has seen the error
	return f.cols, f.rank, f.p, f.q
}

// RoundingKey returns the two words that the random numbers of EncodeInt8Stochastic are made of.
func RoundingKey(seed uint64) (a, b uint32) {
	k := keyOf(seed)
	return k.a, k.b
}

// Noise returns the random bits of element i under a key of [RoundingKey].
func Noise(a, b, i uint32) uint32 { return key{a, b}.noise(i) }
