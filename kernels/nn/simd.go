//go:build cgo && (amd64 || arm64) && !windows

package nn

/*
#cgo CFLAGS: -std=c11 -O3
#cgo noescape kin_nn_add_bias
#cgo nocallback kin_nn_add_bias
#cgo noescape kin_nn_relu
#cgo nocallback kin_nn_relu
#cgo noescape kin_nn_relu_gradient
#cgo nocallback kin_nn_relu_gradient
#cgo noescape kin_nn_multiply
#cgo nocallback kin_nn_multiply
#cgo noescape kin_nn_add_row_sums
#cgo nocallback kin_nn_add_row_sums
#include "nn.h"
*/
import "C"

import "unsafe"

// instructions is a Device that runs vector instructions, in C. What it does not override is Host's.
type instructions struct {
	host
	name string
	set  C.int
}

// simd lists the devices beside Host, the fastest last.
func simd() []Device {
	var all []Device
	can := C.kin_nn_detect()
	for _, d := range []instructions{{name: "neon", set: C.kin_nn_neon}, {name: "avx2", set: C.kin_nn_avx2}, {name: "avx512", set: C.kin_nn_avx512}} {
		if can&(1<<d.set) != 0 {
			all = append(all, d)
		}
	}
	return all
}

func (d instructions) Name() string { return d.name }

// pointer returns where x starts, or nil. The result keeps x alive.
func pointer(x []float32) *C.float { return (*C.float)(unsafe.SliceData(x)) }

func (d instructions) AddBias(y []float32, stride, rows int, bias []float32, relu bool) {
	checkRows("y", len(y), stride, rows, len(bias))
	flag := C.int(0)
	if relu {
		flag = 1
	}
	C.kin_nn_add_bias(d.set, pointer(y), C.size_t(stride), C.size_t(rows), pointer(bias), C.size_t(len(bias)), flag)
}

func (d instructions) ReLU(y, x []float32) {
	checkEqual(len(y), len(x), len(x))
	C.kin_nn_relu(d.set, pointer(y), pointer(x), C.size_t(len(y)))
}

func (d instructions) ReLUGradient(dx, y, dy []float32) {
	checkEqual(len(dx), len(y), len(dy))
	C.kin_nn_relu_gradient(d.set, pointer(dx), pointer(y), pointer(dy), C.size_t(len(dx)))
}

func (d instructions) Multiply(z, x, y []float32) {
	checkEqual(len(z), len(x), len(y))
	C.kin_nn_multiply(d.set, pointer(z), pointer(x), pointer(y), C.size_t(len(z)))
}

func (d instructions) AddRowSums(sum, x []float32, rows int) {
	checkRows("x", len(x), len(sum), rows, len(sum))
	C.kin_nn_add_row_sums(d.set, pointer(sum), pointer(x), C.size_t(len(sum)), C.size_t(rows))
}
