package kernels

import (
	"fmt"
	"strings"
)

// Device runs the operations on arrays in host memory. All devices return equal bits; they differ
// in speed. A Device is safe for concurrent use. It keeps no reference to its callers' memory after
// a call.
//
// Lengths that do not fit and forbidden overlaps of arrays are mistakes of the program: they panic,
// with the values. Errors are conditions that the program cannot prevent. A device that can be lost
// (a GPU) may return one from any operation; then the contents of what that operation writes are
// undefined. The devices of this package cannot be lost, and only their row operations return
// errors.
type Device interface {
	// Name returns the device's name in lower case, such as "avx512".
	Name() string

	// Step does one optimizer step on one chunk. It is ordered.
	Step(s *Step) (Products, error)

	// Decode sets dst to the values of the payload of one chunk, which [Check] has accepted. It is
	// ordered. For encodings that need no arithmetic (FP32, BF16, FP16, Sign, Sparse16, Sparse32)
	// it is exact.
	Decode(dst []float32, e Encoding, data []byte) error

	// SquaredNorm returns ‖x‖². It is ordered: float64 sums in 16 lanes, as for Products.
	SquaredNorm(x []float32) (float64, error)

	// SquaredDistance returns ‖x − y‖² of arrays of equal length, which may overlap. Differences
	// are rounded to float32. It is ordered.
	SquaredDistance(x, y []float32) (float64, error)

	// Finite returns the index of the first NaN or infinity in x, or -1 if all values are finite. It is
	// exact.
	Finite(x []float32) (int, error)

	// AddRows adds the rows of values to rows of dst: row i of values, which has rowLen values, to
	// row rows[i] of dst, in order of i. rows may name a row more than once. values has
	// len(rows)·rowLen values and does not overlap dst. It is ordered. If rows names a row that dst
	// does not have, AddRows returns an error and leaves dst unchanged.
	AddRows(dst []float32, rowLen int, rows []int32, values []float32) error

	// AssignRows is AddRows with assignment in place of addition: the last assignment to a row
	// counts. It is exact.
	AssignRows(dst []float32, rowLen int, rows []int32, values []float32) error

	Encoder
}

// Encoder writes payloads; [Encoding] specifies their bytes. An encoder encodes y = x + carry,
// rounded to float32, or y = x if carry is nil. Unless residual is nil, it also sets residual[i] =
// y[i] − d[i], rounded to float32, where d are the values that the payload decodes to. Error
// feedback carries that residual into the next gradient. Both are written in one pass.
//
// x, carry and residual have the same length n, and dst has the exact size of the payload. residual
// may be the same slice as x or as carry. Apart from that, nothing that is written may overlap
// anything else.
//
// All operations are ordered if y is finite. Otherwise the payload has its proper size, but
// unspecified contents; use Finite first.
type Encoder interface {
	// EncodeBF16 and EncodeFP16 round to nearest even. A value beyond the largest finite number
	// becomes that number, with its sign. dst has 2n bytes.
	EncodeBF16(dst []byte, x, carry, residual []float32) error
	EncodeFP16(dst []byte, x, carry, residual []float32) error

	// EncodeInt8 rounds y/scale to nearest even, where scale is the largest magnitude in the block,
	// divided by 127. A block whose scale is not a normal number is sent as zeros. dst has
	// Int8Bytes(n) bytes.
	EncodeInt8(dst []byte, x, carry, residual []float32) error

	// EncodeInt8Stochastic is EncodeInt8, but rounds up or down at random, so that the expected
	// decoded value is y. The random numbers are a function of seed and of the index of a value in
	// x.
	EncodeInt8Stochastic(dst []byte, x, carry, residual []float32, seed uint64) error

	// EncodeInt4 is EncodeInt8 with 7 in place of 127. dst has Int4Bytes(n) bytes.
	EncodeInt4(dst []byte, x, carry, residual []float32) error

	// EncodeSign keeps the signs, including that of −0, and the mean magnitude of each block. dst
	// has SignBytes(n) bytes.
	EncodeSign(dst []byte, x, carry, residual []float32) error

	// Select finds the len(index) values of y with the largest magnitudes. It writes their indices,
	// ascending, to index and the values themselves to value. Among equal magnitudes the lower
	// index wins. residual is +0 where a value was selected, and y elsewhere. 0 < len(index) =
	// len(value) ≤ len(x).
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

// ByName returns the device with the given name. If this machine or this build does not have it,
// the error lists the devices that it has.
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
