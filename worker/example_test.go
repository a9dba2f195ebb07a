package worker_test

import (
	"context"
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// A model depends on nothing but the parameters and the push id, so a worker that dies and comes
// back computes the same gradient. This one fits a constant to noisy measurements of 3.
func ExampleGradient() {
	var gradient worker.Gradient = func(_ context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
		measured := 3 + 0.1*float32(int(id.Version+kintsugi.Step(id.Slot))%3-1)
		d := params[0] - measured
		grads[0] = d
		return float64(d*d) / 2, 1, nil
	}
	params, grads := []float32{0}, make([]float32, 1)
	for version := range kintsugi.Step(60) {
		if _, _, err := gradient(context.Background(), params, grads, kintsugi.PushID{Slot: 1, Version: version}); err != nil {
			fmt.Println(err)
		}
		params[0] -= 0.2 * grads[0]
	}
	fmt.Printf("%.1f\n", params[0])
	// Output: 3.0
}
