package checkpoint

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

func listCheckpoints(cmd *cobra.Command, path string) error {
	at, err := checkpointsOf(cmd, path)
	if err != nil {
		return err
	}
	names, err := ckpt.List(at.FS, at.Dir)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%s: %w", at.Name, ckpt.ErrNoCheckpoint)
	}
	var run *record.Run
	if record.Has(path) {
		if run, err = record.ReadOutline(path); err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "no evaluations are shown: %v\n", err)
		} else if len(run.Evaluations) == 0 {
			run = nil
		}
	}
	t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	if run != nil {
		fmt.Fprintln(t, "STEP\tLINE\tSHARDS\tMODEL\tCREATED\tEVALUATED\tLOSS\tACCURACY\tMANIFEST")
	} else {
		fmt.Fprintln(t, "STEP\tLINE\tSHARDS\tMODEL\tCREATED\tMANIFEST")
	}
	next := 0
	for m, err := range ckpt.ReadEach(at.FS, at.Dir, names) {
		name := names[next]
		next++
		if err != nil && !errors.Is(err, kintsugi.ErrCorrupt) {
			return err
		}
		evaluated := ""
		if run != nil {
			evaluated = "\t\t\t"
		}
		if err != nil {
			fmt.Fprintf(t, "damaged\t\t\t\t%s\t%s: %v\n", evaluated, name, err)
			continue
		}
		if run != nil {
			evaluated = evaluationText(evaluatedBefore(run, m.Line, m.Step))
		}
		fmt.Fprintf(t, "%d\t%d\t%d\t%s\t%s%s\t%s\n", m.Step, m.Line, len(m.Shards), m.Model, m.Created.Format(time.RFC3339), evaluated, name)
	}
	return t.Flush()
}

// evaluatedBefore returns the newest evaluation of a version that a checkpoint goes back to: of its
// step or an earlier one, on its line or on one before, and not of a step that was taken back in
// between. It returns nil if there is none.
func evaluatedBefore(run *record.Run, line kintsugi.Line, step kintsugi.Step) *record.Evaluation {
	var newest *record.Evaluation
	for i := range run.Evaluations {
		e := &run.Evaluations[i]
		if e.Line > uint64(line) || e.Step > uint64(step) || newest != nil && e.Step < newest.Step {
			continue
		}
		takenBack := false
		for _, v := range run.Views {
			if v.Line > e.Line && v.Line <= uint64(line) && v.Keeps == 0 && v.RestoredStep < e.Step {
				takenBack = true
			}
		}
		if !takenBack {
			newest = e
		}
	}
	return newest
}

func evaluationText(e *record.Evaluation) string {
	if e == nil {
		return "\t–\t–\t–"
	}
	number := func(format string, x record.Number) string {
		if !x.Known() {
			return "–"
		}
		return fmt.Sprintf(format, float64(x))
	}
	return fmt.Sprintf("\t%d\t%s\t%s", e.Step, number("%.5g", e.Loss), number("%.4f", e.Accuracy))
}
