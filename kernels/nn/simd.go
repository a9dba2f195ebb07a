//go:build cgo && (amd64 || arm64) && !windows

package nn

/*
#cgo CFLAGS: -std=c11 -O3
#cgo asan CFLAGS: -O1
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
#cgo noescape kin_nn_conv_run_forward
#cgo nocallback kin_nn_conv_run_forward
#cgo noescape kin_nn_conv_run_backward
#cgo nocallback kin_nn_conv_run_backward
#cgo noescape kin_nn_pool_forward
#cgo nocallback kin_nn_pool_forward
#cgo noescape kin_nn_pool_backward
#cgo nocallback kin_nn_pool_backward
#include "nn.h"
*/
import "C"

import "unsafe"

// instructions is a Device that runs vector instructions, in C. Operations that it does not
// override are Host's.
type instructions struct {
	host
	name string
	set  C.int
}

// simd returns the devices beside Host, the fastest last.
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

// pointer returns the address of x, or nil. The result keeps x alive.
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

// geometry returns the C description of a convolution of n images.
func (c *Conv) geometry(n int) C.kin_nn_conv {
	_, backPositions := c.corner()
	g := C.kin_nn_conv{
		tap: (*C.int32_t)(&c.taps[0]), back_tap: (*C.int32_t)(&c.backTaps[0]), n: C.size_t(n),
		channels: C.size_t(c.Channels), height: C.size_t(c.Height), width: C.size_t(c.Width), filters: C.size_t(c.Filters),
		pad: C.size_t(c.Pad), pool: C.size_t(c.Pool), out_rows: C.size_t(c.outRows), out_cols: C.size_t(c.outCols),
		stride: C.size_t(c.stride), plane: C.size_t(c.plane), frame: C.size_t(c.frame), z_plane: C.size_t(c.zPlane),
		lead: C.size_t(c.lead), dz_plane: C.size_t(c.dzPlane), dz: C.size_t(c.dz), dx_plane: C.size_t(c.dxPlane),
		taps: C.size_t(len(c.taps)), back_taps: C.size_t(len(c.backTaps)),
		positions: C.size_t(c.positions()), back_positions: C.size_t(backPositions), span: C.size_t(round16(c.rows * c.stride)),
	}
	if c.ReLU {
		g.relu = 1
	}
	return g
}

func bytes(s []uint8) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(s)) }

func (d instructions) ConvForward(c *Conv, a *ConvForward) {
	a.check(c)
	C.kin_nn_conv_run_forward(d.set, c.geometry(a.N), C.kin_nn_conv_forward{
		x: pointer(a.X), weights: pointer(a.Weights), bias: pointer(a.Bias), y: pointer(a.Y), frames: pointer(a.Frames),
		scratch: pointer(a.Scratch), at: bytes(a.At),
	})
}

func (d instructions) ConvBackward(c *Conv, a *ConvBackward) {
	a.check(c)
	C.kin_nn_conv_run_backward(d.set, c.geometry(a.N), C.kin_nn_conv_backward{
		dy: pointer(a.DY), frames: pointer(a.Frames), weights: pointer(a.Weights), at: bytes(a.At),
		dx: pointer(a.DX), dw: pointer(a.DW), db: pointer(a.DB), scratch: pointer(a.Scratch),
	})
}

func (d instructions) PoolForward(q Pool, y []float32, at []uint8, x []float32) {
	n := q.check(len(x), len(y), len(at))
	C.kin_nn_pool_forward(d.set, C.size_t(n), C.size_t(q.Height), C.size_t(q.Width), C.size_t(q.Size), pointer(y), bytes(at), pointer(x))
}

func (d instructions) PoolBackward(q Pool, dx []float32, at []uint8, dy []float32) {
	n := q.check(len(dx), len(dy), len(at))
	C.kin_nn_pool_backward(d.set, C.size_t(n), C.size_t(q.Height), C.size_t(q.Width), C.size_t(q.Size), pointer(dx), bytes(at), pointer(dy))
}
