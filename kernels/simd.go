//go:build cgo && (amd64 || arm64) && !windows

package kernels

/*
#cgo CFLAGS: -std=c11 -O3
#cgo asan CFLAGS: -O2
#cgo noescape kin_run
#cgo nocallback kin_run
#cgo noescape kin_decode
#cgo nocallback kin_decode
#cgo noescape kin_squares
#cgo nocallback kin_squares
#cgo noescape kin_distances
#cgo nocallback kin_distances
#cgo noescape kin_finite
#cgo nocallback kin_finite
#cgo noescape kin_add_rows
#cgo nocallback kin_add_rows
#include "simd.h"
*/
import "C"

import "unsafe"

// instructions is a Device that runs vector instructions, in C. The C code handles whole groups of
// 16 values, so that it has each formula once and no masks. Go code with the same bits handles the
// up to 15 values at the end.
type instructions struct {
	name string
	set  C.int
	past bool // encoders write residuals with stores that bypass the caches
}

// simd returns the devices beside Host, the fastest last.
func simd() []Device {
	var all []Device
	can := C.kin_detect()
	for _, d := range []instructions{{name: "neon", set: C.kin_neon}, {name: "avx2", set: C.kin_avx2}, {name: "avx512", set: C.kin_avx512}} {
		if can&(1<<d.set) != 0 {
			all = append(all, d)
		}
	}
	return all
}

func (d instructions) Name() string { return d.name }

func (d instructions) Step(s *Step) (Products, error) {
	s.check()
	whole := len(s.Params) / lanes * lanes
	var t sums
	if whole > 0 {
		d.run(s, whole, &t)
	}
	s.span(whole, len(s.Params), &t)
	return t.products(s), nil
}

// run does the step on the first n values and adds its by-products to t. n > 0 is a multiple of
// lanes.
func (d instructions) run(s *Step, n int, t *sums) {
	c := s.coefficients()
	a := C.kin_step{
		params: pointer(s.Params), previous: pointer(s.Previous), next: pointer(s.Next),
		state0: pointer(s.State[0]), state1: pointer(s.State[1]),
		next_state0: pointer(s.NextState[0]), next_state1: pointer(s.NextState[1]),
		values: C.size_t(len(s.Params)), n: C.size_t(n), rule: C.int(s.Rule),
		scale: C.float(c.scale), rate: C.float(c.rate), momentum: C.float(c.momentum), decay: C.float(c.decay),
		beta1: C.float(c.beta1), rest1: C.float(c.rest1), beta2: C.float(c.beta2), rest2: C.float(c.rest2),
		alpha: C.float(c.alpha), rho: C.float(c.rho), epsilon: C.float(c.epsilon), weight_kept: C.float(c.weightKept),
	}
	if s.WantDot {
		a.want_dot = 1
	}
	if s.WantDisplacement {
		a.want_displacement = 1
	}
	if s.Streaming {
		a.past = 1
	}
	if s.WantSaved {
		a.saved = pointer(s.Saved)
	}
	a.broadcast, a.copy = bytePointer(s.Broadcast), pointer(s.Copy)
	given := s.given()
	if given == nil && s.Rule == Assign {
		decoded, done := scratch(len(s.Params))
		defer done()
		d.Decode(decoded, s.Operands[0].Encoding, s.Operands[0].Data)
		given = decoded
	}
	if given != nil {
		a.from = pointer(given)
		if s.Update != nil {
			copy(s.Update[:n], given)
		}
		C.kin_run(d.set, a, lanesOf(t))
		return
	}
	a.update = pointer(s.Update)
	operands := s.Operands
	if len(operands) > C.kin_max_operands {
		sum, done := s.Update, func() {}
		if sum == nil {
			sum, done = scratch(n)
		}
		defer done()
		operands = d.sumFirst(&a, operands, sum)
	}
	setOperands(&a, operands)
	C.kin_run(d.set, a, lanesOf(t))
}

// sumFirst sums operands in groups of as many as one call takes, until at most that many are left.
// It returns those, and sets up a so that the final call starts from the sum.
func (d instructions) sumFirst(a *C.kin_step, operands []Operand, sum []float32) []Operand {
	final := *a
	a.rule, a.update = C.kin_sum, pointer(sum)
	for len(operands) > C.kin_max_operands {
		setOperands(a, operands[:C.kin_max_operands])
		C.kin_run(d.set, *a, nil)
		a.start = pointer(sum)
		operands = operands[C.kin_max_operands:]
	}
	a.rule, a.update = final.rule, final.update
	return operands
}

func setOperands(a *C.kin_step, operands []Operand) {
	a.operands = C.int(len(operands))
	for j := range operands {
		o := &operands[j]
		a.operand[j] = bytePointer(o.Data)
		if o.Encoding == FP32 {
			a.operand[j] = (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(o.Values)))
		}
		a.weight[j] = C.float(o.Weight)
		a.encoding[j] = C.uint8_t(o.Encoding)
	}
}

// pointer returns the address of x, or nil. The result keeps x alive. It may be an argument of a C
// function, on its own or in a struct passed by value, since the memory of x holds no pointers.
func pointer(x []float32) *C.float { return (*C.float)(unsafe.SliceData(x)) }

func bytePointer(x []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(x)) }

// lanesOf returns the lanes of t, one by-product after another.
func lanesOf(t *sums) *C.double { return (*C.double)(unsafe.Pointer(t)) }

func (d instructions) Decode(dst []float32, e Encoding, data []byte) error {
	whole := len(dst) / lanes * lanes
	if e.sparse() || whole == 0 {
		return Host.Decode(dst, e, data)
	}
	checkPayload(e, len(dst), data)
	C.kin_decode(d.set, pointer(dst), C.int(e), bytePointer(data), C.size_t(len(dst)), C.size_t(whole))
	decode(dst[whole:], e, data, len(dst), whole)
	return nil
}

func (d instructions) SquaredNorm(x []float32) (float64, error) {
	whole := len(x) / lanes * lanes
	var lane [lanes]float64
	if whole > 0 {
		C.kin_squares(d.set, pointer(x), C.size_t(whole), (*C.double)(&lane[0]))
	}
	addSquares(&lane, x[whole:])
	return fold(&lane), nil
}

func (d instructions) SquaredDistance(x, y []float32) (float64, error) {
	checkPair(x, y)
	whole := len(x) / lanes * lanes
	var lane [lanes]float64
	if whole > 0 {
		C.kin_distances(d.set, pointer(x), pointer(y), C.size_t(whole), (*C.double)(&lane[0]))
	}
	addDistances(&lane, x[whole:], y[whole:])
	return fold(&lane), nil
}

func (d instructions) Finite(x []float32) (int, error) {
	at, whole := 0, len(x)/lanes*lanes
	if whole > 0 {
		at = int(C.kin_finite(d.set, pointer(x), C.size_t(whole)))
	}
	if i := firstNotFinite(x[at:]); i >= 0 {
		return at + i, nil
	}
	return -1, nil
}

func (d instructions) AddRows(dst []float32, rowLen int, rows []int32, values []float32) error {
	if err := checkRows(dst, rowLen, rows, values); err != nil || len(rows) == 0 {
		return err
	}
	C.kin_add_rows(d.set, pointer(dst), C.size_t(rowLen), (*C.int32_t)(&rows[0]), C.size_t(len(rows)), pointer(values))
	return nil
}

func (d instructions) AssignRows(dst []float32, rowLen int, rows []int32, values []float32) error {
	return assignRows(dst, rowLen, rows, values)
}
