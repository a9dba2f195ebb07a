package machine

import (
	"context"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// A cluster whose workers compute nothing, to measure the cost of everything else.

// syntheticLayout returns a model of about the given number of values.
func syntheticLayout(values int) (*kintsugi.Layout, error) {
	const columns = 1024
	return kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{max(1, values/columns), columns}}})
}

// syntheticValue is the value of every element of every gradient, so that all parameters are equal
// at every step.
const syntheticValue = 1.0 / 1024

// syntheticGradient fills an array when it sees it for the first time. Later calls take no time.
func syntheticGradient(_ context.Context, _, grads []float32, _ kintsugi.PushID) (loss float64, examples int, err error) {
	if grads[0] != syntheticValue || grads[len(grads)-1] != syntheticValue {
		for i := range grads {
			grads[i] = syntheticValue
		}
	}
	return 1, 1, nil
}

func syntheticSchedule() conductor.Schedule {
	return conductor.Schedule{Rule: kintsugi.RuleAdam, LearningRate: 1e-3}
}
