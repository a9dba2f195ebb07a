package nn

import "math"

// Exp32 returns eˣ within 2 units in the last place for x in [−87, 88]. It clamps other x to that
// interval, so that no result overflows or is subnormal; NaN stays. It has the same bits
// everywhere: each operation is one IEEE 754 operation in float32, and none is contracted.
//
// x = n·ln 2 + r with |r| ≤ ½·ln 2. eʳ is computed by its Taylor polynomial of degree 7, whose
// remainder is below 6e-9, and n is added to the exponent of the result. Adding 1.5·2²³ rounds to n
// and leaves n in the low bits of the float.
func Exp32(x float32) float32 {
	const (
		magic  = 12582912
		log2e  = 0x1.715476p+0
		ln2    = 0.693359375     // ln 2 to a few bits, so that n·ln2 is exact
		ln2low = -0x1.bd0106p-13 // ln 2 − ln2
	)
	if x > 88 {
		x = 88
	}
	if x < -87 {
		x = -87
	}
	shifted := float32(x*log2e) + magic
	n := shifted - magic
	r := x - float32(n*ln2)
	r -= float32(n * ln2low)
	p := float32(1.0 / 5040)
	p = float32(p*r) + 1.0/720
	p = float32(p*r) + 1.0/120
	p = float32(p*r) + 1.0/24
	p = float32(p*r) + 1.0/6
	p = float32(p*r) + 0.5
	p = float32(p*float32(r*r)) + r
	p++
	return math.Float32frombits(math.Float32bits(p) + math.Float32bits(shifted)<<23)
}

// Constants of GELU: c, 2·√(2/π), and 3·c·2·√(2/π).
const (
	geluCubic = 0.044715
	geluSlope = 0x1.988454p+0
	geluCurve = 0x1.b6676cp-3
)

// geluFactor returns the factor f by which GELU multiplies x, and 1 − f. f = 1/(1 + e) with e =
// exp(−2·√(2/π)·(x + c·x³)). 1 − f is computed as e·f, since the difference would lose the digits
// of a small result. x2 is x².
func geluFactor(x, x2 float32) (f, rest float32) {
	v := x + float32(geluCubic*float32(x2*x))
	e := Exp32(-geluSlope * v)
	f = 1 / (1 + e)
	return f, float32(e * f)
}
