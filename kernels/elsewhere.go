package kernels

// The parts of the contract that a device outside this package needs: the checks that panic, and
// the parts of payloads.

// Check panics, with the values, on a step that breaks the rules of [Step]. A device calls it first
// if it copies the arrays or runs code without bounds checks.
func (s *Step) Check() { s.check() }

// Given returns the scaled sum if the step has it already: From, or the values of an Assign in
// FP32. Otherwise it returns nil.
func (s *Step) Given() []float32 { return s.given() }

// Coefficients returns the scalars of the step in the form in which the formulas use them, each
// rounded to float32 once: Scale, η, μ, λ, β₁, 1−β₁, β₂, 1−β₂, α, ρ, ε, δ.
func (s *Step) Coefficients() [12]float32 {
	c := s.coefficients()
	return [12]float32{
		c.scale, c.rate, c.momentum, c.decay, c.beta1, c.rest1, c.beta2, c.rest2, c.alpha, c.rho, c.epsilon, c.weightKept,
	}
}

// CheckPayload panics unless data is exactly as long as the payload of n values in e.
func CheckPayload(e Encoding, n int, data []byte) { checkPayload(e, n, data) }

// CheckEncode panics, with the values, on arguments that break the rules of [Encoder]. dst must
// have want bytes; name is the name of the encoding.
func CheckEncode(name string, dst []byte, want int, x, carry, residual []float32) {
	checkEncode(name, dst, want, x, carry, residual)
}

// CheckSelect panics, with the values, on arguments that break the rules of Select.
func CheckSelect(index []int32, value, x, carry, residual []float32) {
	checkSelect(index, value, x, carry, residual)
}

// CheckPair panics unless x and y have the same length.
func CheckPair(x, y []float32) { checkPair(x, y) }

// CheckRows panics on lengths that do not fit and on overlapping memory. It returns the error of
// AddRows and AssignRows if rows names a row that dst does not have.
func CheckRows(dst []float32, rowLen int, rows []int32, values []float32) error {
	return checkRows(dst, rowLen, rows, values)
}

// SparseParts returns the values and the gaps in a payload of n values in Sparse16 or Sparse32.
// [Check] must have accepted the payload. Both results alias data.
func SparseParts(e Encoding, n int, data []byte) (values, gaps []byte) {
	s, _, _ := parseSparse(e, n, data) // Check has seen the error
	return s.values, s.gaps
}

// LowRankParts returns the shape and the factors in a payload of n values in LowRank. [Check] must
// have accepted the payload. p and q alias data.
func LowRankParts(n int, data []byte) (cols, rank int, p, q []byte) {
	f, _, _ := parseLowRank(n, data) // Check has seen the error
	return f.cols, f.rank, f.p, f.q
}

// RoundingKey returns the two words from which EncodeInt8Stochastic makes its random numbers.
func RoundingKey(seed uint64) (a, b uint32) {
	k := keyOf(seed)
	return k.a, k.b
}

// Noise returns the random bits of element i under the key (a, b) of [RoundingKey].
func Noise(a, b, i uint32) uint32 { return key{a, b}.noise(i) }
