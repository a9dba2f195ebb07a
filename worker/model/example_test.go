package model_test

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// A model is found by its name. This one takes no data, and descends to an optimum that it knows.
func ExampleLookup() {
	d, err := model.Lookup("qp:dimension=50,condition=4", model.Input{})
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := model.New(d, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	params, grads := make([]float32, d.Values()), make([]float32, d.Values())
	if err := d.Init(1, params); err != nil {
		fmt.Println(err)
		return
	}
	for step := range 11 {
		loss, err := m.Gradient(params, grads, model.Batch{N: 1})
		if err != nil {
			fmt.Println(err)
			return
		}
		if step%5 == 0 {
			fmt.Printf("step %d: loss %.4f\n", step, loss)
		}
		for i, g := range grads {
			params[i] -= g
		}
	}
	// Output:
	// step 0: loss 26.3645
	// step 5: loss 0.1379
	// step 10: loss 0.0040
}
