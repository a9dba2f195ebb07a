package report

import (
	"math"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// A summary.json may not belong to the events beside it. Curves do not become longer because of its
// time.
func TestTimesBehindTheEndTakeNoMemory(t *testing.T) {
	step := func(seconds float64, line, step uint64) *record.Step {
		return &record.Step{At: record.At{Seconds: seconds}, Line: line, Step: step, Loss: 3}
	}
	run := record.NewRun([]record.Event{&record.Header{Format: record.Format}, step(1, 1, 1), step(1e12, 1, 2), step(3, 2, 3)}, nil)
	run.Summary.WallSeconds = 3
	draw(t, run)
}

// Steps are counted from 1, and slots have numbers below that of the workers. A damaged digit makes
// any number of either.
func TestStepsAndSlotsOfAnyNumberAreDrawn(t *testing.T) {
	for _, workers := range []int{-1, 0, 3, math.MaxInt} {
		for _, step := range []uint64{0, 1, math.MaxUint64} {
			for _, slot := range []uint32{0, 3, math.MaxUint32} {
				draw(t, record.NewRun([]record.Event{
					&record.Header{Format: record.Format, Workers: workers},
					&record.Step{At: record.At{Seconds: 1}, Line: 1, Step: step, Loss: 3, Counted: []uint32{0, slot}},
				}, nil))
			}
		}
	}
}
