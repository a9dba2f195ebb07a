package scar_test

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/scar"
)

// Four chunks of equal size move unevenly. With the bytes of the model in eight steps, two steps
// pay for one chunk.
func Example() {
	p, err := scar.New(scar.Config{Bytes: []int64{100, 100, 100, 100}, Period: 8, Fraction: 0.25, MaxAge: 32})
	if err != nil {
		panic(err)
	}
	distances := make([]float64, 4) // ‖x − saved‖² of each chunk
	for step := kintsugi.Step(1); step <= 8; step++ {
		for c, speed := range []float64{1, 5, 2, 1} {
			distances[c] += speed
		}
		if !p.Due(step) {
			continue
		}
		plan := p.Plan(step, distances)
		fmt.Printf("step %d: save %v, %d bytes\n", step, plan.Chunks, plan.Bytes)
		for _, c := range plan.Chunks {
			distances[c] = 0
		}
		p.Done(plan, true) // when the chunks are durable
	}
	// Output:
	// step 2: save [1], 100 bytes
	// step 4: save [1], 100 bytes
	// step 6: save [2], 100 bytes
	// step 8: save [1], 100 bytes
}
