package train

import (
	"fmt"
	"io"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/look"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/words"
)

// print prints the outcome of the run. folder is the folder to resume it from; "" if it cannot be
// resumed.
func (w *watcher) print(out io.Writer, s record.Summary, done kintsugi.Done, folder, page string) {
	fmt.Fprintf(out, "%s on %s: %d steps in %.1f s, %.0f examples/s", w.of.Model, w.of.Data, s.Steps, s.WallSeconds, s.SamplesPerSecond)
	if s.FinalLoss.Known() {
		fmt.Fprintf(out, ", loss %.5g", s.FinalLoss)
	}
	if s.FinalTestLoss.Known() {
		fmt.Fprint(out, w.problem.Quality(float64(s.FinalTestLoss)))
	}
	if s.FinalAccuracy.Known() {
		fmt.Fprintf(out, ", test accuracy %.4f", s.FinalAccuracy)
	}
	fmt.Fprintln(out)
	for _, f := range s.Failures {
		how, what := "failed", "next step after"
		if f.Announced {
			how, what = "left", "longest step meanwhile"
		}
		fmt.Fprintf(out, "%s %s at step %d (%s)", f.Part, how, f.Step, f.Cause)
		if f.RecoverySeconds.Known() {
			fmt.Fprintf(out, ": %s %.2f s", what, f.RecoverySeconds)
		}
		if f.PartialChunks > 0 {
			fmt.Fprintf(out, ", %d chunks came back, %s steps old", f.PartialChunks, words.Digits(f.PartialAge, 3))
		}
		if f.Moved != "" {
			fmt.Fprintf(out, ", it stayed away: %s", f.Moved)
		}
		if f.PartialRework.Known() {
			fmt.Fprintf(out, ", predicted to cost %s steps", words.Digits(float64(f.PartialRework), 2))
		}
		if f.MeasuredRework.Known() {
			fmt.Fprintf(out, ", measured %s ± %s", words.Digits(float64(f.MeasuredRework), 2), words.Digits(float64(f.MeasuredError), 2))
		}
		if f.LostSteps > 0 {
			fmt.Fprintf(out, ", back to step %d, %d steps lost", f.RestoredStep, f.LostSteps)
			if f.CaughtUpSeconds.Known() {
				fmt.Fprintf(out, ", made up for after %.2f s", f.CaughtUpSeconds)
			}
		}
		fmt.Fprintln(out)
	}
	if s.ClippedGradients > 0 {
		fmt.Fprintf(out, "clipped %d of %d gradients\n", s.ClippedGradients, s.CountedGradients)
	}
	if kept := s.KeptGradients + s.DroppedGradients; kept > 0 {
		fmt.Fprintf(out, "workers went on while servers were away: %d gradients kept, %d counted, %d dropped\n", kept, s.KeptGradients, s.DroppedGradients)
	}
	if s.Cost != nil && s.Cost.OnDemand != nil {
		fmt.Fprintln(out, look.InMoney(s.Cost))
	}
	if done.Reason != "" && uint64(done.Step) < w.of.Steps {
		fmt.Fprintf(out, "ended early at step %d: %s", done.Step, done.Reason)
		if folder != "" {
			fmt.Fprintf(out, "; go on with: kintsugi train --resume %s", cli.Words(folder))
		}
		fmt.Fprintln(out)
	}
	if w.best != nil && w.best.step > 0 {
		fmt.Fprintf(out, "best parameters: %s, of step %d, test loss %.5g\n", w.best.path, w.best.step, w.best.loss)
	}
	if page != "" {
		fmt.Fprintf(out, "report: %s\n", page)
	}
}
