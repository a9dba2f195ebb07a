package model

import "math"

// reluStage is a ReLU that follows neither a Dense nor a Conv2D.
type reluStage struct{}

func (reluStage) forward(y []float32, in [][]float32) { rectify(y, in[0]) }

func (reluStage) backward(d, _ [][]float32, y, dy []float32) { rectifyGradient(d[0], y, dy) }

// dropoutStage multiplies its first input by its second, the mask.
type dropoutStage struct{}

func (dropoutStage) forward(y []float32, in [][]float32) { multiply(y, in[0], in[1]) }

func (dropoutStage) backward(d, in [][]float32, _, dy []float32) { multiply(d[0], dy, in[1]) }

func multiply(z, x, y []float32) {
	x, y = x[:len(z)], y[:len(z)]
	for i := range z {
		z[i] = x[i] * y[i]
	}
}

// rectify sets y = max(0, x). x and y may be the same slice. NaN stays NaN, so that it is noticed
// later.
//
// Half of all values are negative, in an unpredictable order. The comparison is therefore one of
// integers, which compiles to a conditional move and not to a branch.
func rectify(y, x []float32) {
	x = x[:len(y)]
	for i := range y {
		u := math.Float32bits(x[i])
		if u-1<<31 <= 0x7f80_0000 { // sign bit set, and not NaN
			u = 0
		}
		y[i] = math.Float32frombits(u)
	}
}

// rectifyGradient sets dx = dy where y > 0 or NaN, and dx = 0 elsewhere. y is the result of
// rectify.
func rectifyGradient(dx, y, dy []float32) {
	y, dy = y[:len(dx)], dy[:len(dx)]
	for i := range dx {
		u := math.Float32bits(dy[i])
		if math.Float32bits(y[i]) == 0 {
			u = 0
		}
		dx[i] = math.Float32frombits(u)
	}
}
