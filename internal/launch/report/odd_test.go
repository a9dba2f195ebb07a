package report

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// A summary.json may be of another time than the events beside it: a curve is not longer than its figure for it.
func TestTimesBehindTheEndTakeNoMemory(t *testing.T) {
	step := func(seconds float64, line, step uint64) *record.Step {
		return &record.Step{At: record.At{Seconds: seconds}, Line: line, Step: step, Loss: 3}
	}
	run := record.NewRun([]record.Event{&record.Header{Format: record.Format}, step(1, 1, 1), step(1e12, 1, 2), step(3, 2, 3)}, nil)
	run.Summary.WallSeconds = 3
	draw(t, run)
}
