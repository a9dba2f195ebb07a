package checkpoint

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// A checkpoint is listed with the newest evaluation of what it goes back to, and not with that of a
// step that was taken back.
func TestACheckpointIsListedWithTheEvaluationOfItsHistory(t *testing.T) {
	evaluation := func(line, step uint64) *record.Evaluation { return &record.Evaluation{Line: line, Step: step} }
	run := record.NewRun([]record.Event{
		&record.View{Number: 1, Line: 1},
		evaluation(1, 10), evaluation(1, 20), evaluation(1, 30),
		&record.View{Number: 2, Line: 2, RestoredStep: 25}, // step 30 is taken back
		evaluation(2, 40),
		&record.View{Number: 3, Line: 3, Keeps: 2}, // nothing is taken back
		evaluation(3, 50),
	}, nil)
	for _, c := range []struct{ line, step, want, on uint64 }{
		{1, 9, 0, 0}, {1, 10, 10, 1}, {1, 35, 30, 1}, {2, 26, 20, 1}, {2, 39, 20, 1}, {2, 45, 40, 2}, {3, 45, 40, 2}, {3, 99, 50, 3}, {1, 99, 30, 1},
	} {
		e := evaluatedBefore(run, kintsugi.Line(c.line), kintsugi.Step(c.step))
		if (e == nil) != (c.want == 0) || e != nil && (e.Step != c.want || e.Line != c.on) {
			t.Errorf("step %d on line %d has the evaluation %+v, want that of step %d on line %d", c.step, c.line, e, c.want, c.on)
		}
	}
}
