package nn

import (
	"fmt"
	"math"
)

// Host is the device in plain Go. It is the reference for the others, and the only device without a
// C compiler.
var Host Device = host{}

type host struct{}

func (host) Name() string { return "host" }

func (host) AddBias(y []float32, stride, rows int, bias []float32, relu bool) {
	checkRows("y", len(y), stride, rows, len(bias))
	for r := range rows {
		row := y[r*stride:][:len(bias)]
		for j, b := range bias {
			row[j] += b
		}
		if relu {
			rectify(row, row)
		}
	}
}

func (host) ReLU(y, x []float32) {
	checkEqual(len(y), len(x), len(x))
	rectify(y, x)
}

// rectify is ReLU on integers. About half of all values are negative, in no predictable order, so a
// branch would be slow; this compiles to a conditional move.
func rectify(y, x []float32) {
	x = x[:len(y)]
	for i := range y {
		u := math.Float32bits(x[i])
		if u-1<<31 <= 0x7f80_0000 { // the sign bit is set, and it is not NaN
			u = 0
		}
		y[i] = math.Float32frombits(u)
	}
}

func (host) ReLUGradient(dx, y, dy []float32) {
	checkEqual(len(dx), len(y), len(dy))
	y, dy = y[:len(dx)], dy[:len(dx)]
	for i := range dx {
		u := math.Float32bits(dy[i])
		if math.Float32bits(y[i]) == 0 {
			u = 0
		}
		dx[i] = math.Float32frombits(u)
	}
}

func (host) Multiply(z, x, y []float32) {
	checkEqual(len(z), len(x), len(y))
	x, y = x[:len(z)], y[:len(z)]
	for i := range z {
		z[i] = x[i] * y[i]
	}
}

func (host) AddRowSums(sum, x []float32, rows int) {
	checkRows("x", len(x), len(sum), rows, len(sum))
	for r := range rows {
		for j, v := range x[r*len(sum):][:len(sum)] {
			sum[j] += v
		}
	}
}

// checkRows panics unless length values hold rows rows of width values that begin stride values
// apart.
func checkRows(name string, length, stride, rows, width int) {
	if rows < 0 || stride < width || rows > 0 && length < (rows-1)*stride+width {
		panic(fmt.Sprintf("nn: %s holds %d values; %d rows of %d with stride %d do not fit", name, length, rows, width, stride))
	}
}

// checkEqual panics unless three lengths are equal.
func checkEqual(a, b, c int) {
	if a != b || a != c {
		panic(fmt.Sprintf("nn: arrays of %d, %d and %d values; they must be equally long", a, b, c))
	}
}
