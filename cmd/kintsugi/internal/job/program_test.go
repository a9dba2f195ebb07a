package job

import (
	"errors"
	"math"
	"testing"
)

// Slopes are measured accurately enough near corners of the loss. A slope that is not the
// gradient's agrees at no distance.
func TestSlopesAgreeBetweenCorners(t *testing.T) {
	const loss, reach = 0.7, 0.02
	for name, c := range map[string]struct {
		said   float64
		f      func(x float64) float64 // the loss along the gradient
		agrees bool
		want   float64 // expected result of the measurement
	}{
		"straight":          {0.01, func(x float64) float64 { return loss + 0.01*x }, true, 0.01},
		"a corner on a way": {0.01, func(x float64) float64 { return loss + 0.01*max(x, -0.004) }, true, 0.01},
		"another gradient":  {0.01, func(x float64) float64 { return loss + 0.012*x }, false, 0.012},
		"five times it":     {0.05, func(x float64) float64 { return loss + 0.01*x }, false, 0.01},
		"none":              {0, func(x float64) float64 { return loss }, true, 0},
		"none, and it is":   {0, func(x float64) float64 { return loss + 0.01*x }, false, 0.01},
		"no number":         {0.01, func(x float64) float64 { return math.NaN() }, false, math.NaN()},
	} {
		measured, agrees, err := agreeing(c.said, 1e-4, loss, reach, func(r float64) (float64, error) {
			return (float64(float32(c.f(r))) - float64(float32(c.f(-r)))) / (2 * r), nil
		})
		if err != nil || agrees != c.agrees || !(math.Abs(measured-c.want) <= 1e-4) && !(math.IsNaN(measured) && math.IsNaN(c.want)) {
			t.Errorf("%s: %v, %v, %v; want %v, %v", name, measured, agrees, err, c.want, c.agrees)
		}
	}
	broken := errors.New("it has died")
	if _, _, err := agreeing(1, 0, 1, 1, func(float64) (float64, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}
