package report

import (
	"math"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// maxMarks is the limit on failures that are drawn individually; the table lists more.
const maxMarks = 400

func (s *story) failures() []record.FailureCost {
	return s.run.Summary.Failures[:min(maxMarks, len(s.run.Summary.Failures))]
}

// labels places texts in the line above a panel, where there is no curve, so that they do not
// overlap. A text without room is left out, and can be read in the table.
type labels struct{ end float64 }

func (l *labels) add(f *figure, x, y float64, text string) {
	width := 6.3 * float64(len(text))
	left := min(x, figureWidth-width)
	if left < l.end {
		return
	}
	f.text("mark", left, y, text)
	l.end = left + width + 14
}

// failuresOverSteps marks the step of each failure, and tints the steps that were repeated.
func (s *story) failuresOverSteps(f *figure, top, bottom float64) {
	first := f.bottom-top > 200 // labels only in the large panel
	l := labels{f.named}
	for _, c := range s.failures() {
		x := f.x.at(float64(c.Step))
		if c.LostSteps > 0 {
			from := f.x.at(float64(c.RestoredStep))
			to := f.x.at(float64(c.RestoredStep + c.LostSteps))
			f.rect("again", from, top, to-from, bottom-top)
			x = to
		}
		f.line(failureClass(c), x, top, x, bottom)
		if first {
			l.add(f, x, top-9, failureLabel(c))
		}
	}
}

// outagesOverTime shades the time between each failure and the first step after it, and marks the
// moment when the run had caught up.
func (s *story) outagesOverTime(f *figure, top, bottom float64) {
	first := f.bottom-top > 150
	l := labels{f.named}
	for _, c := range s.failures() {
		from, to := f.x.at(c.Seconds), f.x.to
		if c.RecoverySeconds.Known() {
			to = f.x.at(c.Seconds + float64(c.RecoverySeconds))
		}
		f.rect("outage", from, top, max(1, to-from), bottom-top)
		if c.CaughtUpSeconds.Known() && c.LostSteps > 0 {
			whole := f.x.at(c.Seconds + float64(c.CaughtUpSeconds))
			f.rect("again", to, top, whole-to, bottom-top)
			f.line("mended", whole, top, whole, bottom)
		} else if c.RecoverySeconds.Known() {
			f.line("mended", to, top, to, bottom)
		}
		f.line("failure", from, top, from, bottom)
		if first {
			l.add(f, from, top-9, failureLabel(c))
		}
	}
}

// failureClass returns the class of a failure: recovered from or not.
func failureClass(c record.FailureCost) string {
	if c.CaughtUpSeconds.Known() {
		return "mended"
	}
	return "failure"
}

func failureLabel(c record.FailureCost) string {
	switch {
	case c.LostSteps > 0:
		return c.Part + ", " + plural(c.LostSteps, "step") + " again"
	case c.RecoverySeconds.Known():
		return c.Part + ", " + seconds(float64(c.RecoverySeconds))
	}
	return c.Part
}

// endOf returns the time of the last event of a run.
func endOf(run *record.Run) float64 {
	end := max(run.Summary.WallSeconds, run.Newest.Seconds)
	if math.IsNaN(end) || end <= 0 {
		return 1
	}
	return end
}
