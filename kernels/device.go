package kernels

import (
	"fmt"
	"strings"
)

// Device runs the operations on arrays in host memory. All devices return equal bits; they differ in
// speed. A Device is safe for concurrent use; it keeps no memory of its callers.
//
// Lengths that do not fit and arrays that overlap against the rules are mistakes of the program and
// panic, with the values. Errors are conditions of the world: a device that can be lost (a GPU) returns
// one from any operation, after which what the operation writes is undefined. The devices of this package
// cannot be lost; only their row operations return errors.
type Device interface {
	// Name returns the device's name in lower case, such as "avx512".
	Name() string

	// Step does one optimizer step on one chunk. It is ordered.
	Step(s *Step) (Products, error)

	// Decode sets dst to the values of one chunk's payload, which [Check] has accepted. It is ordered; where
	// nothing is computed (FP32, BF16, FP16, Sign, Sparse16, Sparse32) that means exact.
	Decode(dst []float32, e Encoding, data []byte) error

	// SquaredNorm returns ‖x‖². It is ordered: float64 sums in 16 lanes, as in Products.
	SquaredNorm(x []float32) (float64, error)

	// SquaredDistance returns ‖x − y‖² with differences rounded to float32, of arrays of equal length. It
	// is ordered. x and y may overlap.
	SquaredDistance(x, y []float32) (float64, error)

	// Finite returns the index of the first NaN or infinity in x, or -1 if all values are finite. It is
	// exact.
	Finite(x []float32) (int, error)

	// AddRows adds the rows of values, each of rowLen values, to the rows of dst that rows names, in
	// order; a row may be named more than once. It is ordered. A row that dst does not have is an error,
	// and then dst is unchanged. values has len(rows)·rowLen values and does not overlap dst.
	AddRows(dst []float32, rowLen int, rows []int32, values []float32) error

	// AssignRows is AddRows with assignment in place of addition: of a row named twice the last counts.
	// It is exact.
	AssignRows(dst []float32, rowLen int, rows []int32, values []float32) error

	Encoder
}

// Encoder writes payloads: see [Encoding] for their bytes. What is encoded is y = x + carry, rounded to
// float32, or y = x where carry is nil. Unless residual is nil, residual[i] = y[i] − d[i], rounded to float32,
// where d is what the payload decodes to: what error feedback carries into the next gradient. It is written
// in the same pass. All three have the same length. residual may be the same slice as x or as carry; apart
// from that nothing that is written may overlap anything else, and dst has the exact size of the payload.
//
// All operations are ordered where y is finite. Where it is not, the payload has its size and no more is said
// about it: a caller looks for such values first, with Finite.
type Encoder interface {
	// EncodeBF16 and EncodeFP16 round to nearest even; beyond the largest finite number they write that.
	// dst has 2n bytes.
	EncodeBF16(dst []byte, x, carry, residual []float32) error
	EncodeFP16(dst []byte, x, carry, residual []float32) error

	// EncodeInt8 rounds y/scale to nearest even, where scale is the largest magnitude of the block over
	// 127. A block whose scale is not a normal number is sent as zeros. dst has Int8Bytes(n) bytes.
	EncodeInt8(dst []byte, x, carry, residual []float32) error

	// EncodeInt8Stochastic is EncodeInt8 but rounds up or down at random, so that the mean of what is
	// decoded is y. The random numbers are a function of seed and of the place of a value in x.
	EncodeInt8Stochastic(dst []byte, x, carry, residual []float32, seed uint64) error

	// EncodeInt4 is EncodeInt8 with 7 in place of 127. dst has Int4Bytes(n) bytes.
	EncodeInt4(dst []byte, x, carry, residual []float32) error

	// EncodeSign keeps the signs, that of −0 included, and the mean magnitude of each block. dst has
	// SignBytes(n) bytes.
	EncodeSign(dst []byte, x, carry, residual []float32) error

	// Select finds the len(index) values of y that are largest in magnitude, and writes where they are,
	// ascending, and the values. Of equal magnitudes the lower index wins. What was selected is +0 in
	// residual, what was not is y there. 0 < len(index) = len(value) ≤ len(x).
	Select(index []int32, value, x, carry, residual []float32) error
}

// Devices returns the devices that run on this machine, Host first and the fastest last.
func Devices() []Device { return append([]Device{Host}, simd()...) }

// Best returns the fastest device of this machine.
func Best() Device { return best }

var best = fastest()

func fastest() Device {
	all := Devices()
	return all[len(all)-1]
}

// ByName returns the device of that name. A device that this machine or this build does not have is an
// error that lists those it has.
func ByName(name string) (Device, error) {
	var have []string
	for _, d := range Devices() {
		if d.Name() == name {
			return d, nil
		}
		have = append(have, d.Name())
	}
	return nil, fmt.Errorf("kernels: no device %q on this machine; it has %s", name, strings.Join(have, ", "))
}

// SquaredNorm returns ‖x‖² from the best device; see [Device].
func SquaredNorm(x []float32) float64 {
	n, _ := best.SquaredNorm(x) // devices of this package cannot be lost
	return n
}

// SquaredDistance returns ‖x − y‖² from the best device; see [Device].
func SquaredDistance(x, y []float32) float64 {
	n, _ := best.SquaredDistance(x, y)
	return n
}

// Finite returns the index of the first NaN or infinity in x, or -1, from the best device; see [Device].
func Finite(x []float32) int {
	i, _ := best.Finite(x)
	return i
}

func checkPair(x, y []float32) {
	if len(x) != len(y) {
		panic(fmt.Sprintf("kernels: distance of %d and %d values", len(x), len(y)))
	}
}
