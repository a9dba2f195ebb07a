package model

import (
	"math"
	"testing"
)

func TestRectifyKeepsNaNAndGivesPositiveZero(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	negativeNaN := math.Float32frombits(math.Float32bits(nan) | 1<<31) // what x86 computes from 0·∞
	x := []float32{1, -1, float32(math.Copysign(0, -1)), 0, inf, -inf, math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, nan, negativeNaN}
	want := []float32{1, 0, 0, 0, inf, 0, math.SmallestNonzeroFloat32, 0, nan, negativeNaN}
	wantGradient := []float32{7, 0, 0, 0, 7, 0, 7, 0, 7, 7}
	y, dy, dx := make([]float32, len(x)), make([]float32, len(x)), make([]float32, len(x))
	rectify(y, x)
	for i := range dy {
		dy[i] = 7
	}
	rectifyGradient(dx, y, dy)
	for i := range x {
		if math.Float32bits(y[i]) != math.Float32bits(want[i]) || dx[i] != wantGradient[i] {
			t.Errorf("at %g: value %g and derivative %g, want %g and %g", x[i], y[i], dx[i], want[i], wantGradient[i])
		}
	}
}

func TestALayersPanicIsAnError(t *testing.T) {
	o := newLayerOp("broken", []int{1}, nil)
	o.run = func([][]float32, []float32) { panic("out of range") }
	if _, err := o.Do(); err == nil || err.Error() != "broken: out of range" {
		t.Errorf("got %v, want the panic as an error that names the layer", err)
	}
}
