package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// With gradients of a quarter of their size or less, a run goes on through the death of a server,
// learns, and reports how many bytes were pushed.
func TestEncodedGradientsTrainThroughAKill(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	const steps, workers = 120, 2
	for spec, smaller := range map[string]float64{"int8": 3.8, "topk:0.01": 40} {
		if testing.Short() && spec == "int8" {
			continue
		}
		dir := newDir(t)
		must(t, "train", "--model", "lenet", "--codec", spec, "--blas", "gonum", "--batch", "8", "--steps", "120", "--workers", "2",
			"--recovery", "checkpoint", "--checkpoint-every", "20", "--fault", "kill server/0 at step 50", "--out", dir)
		r := readRun(t, dir)
		s := r.Summary
		if s.Steps != steps || len(s.Failures) != 1 || s.ReworkSteps == 0 || s.ResidualsLost != workers {
			t.Errorf("%s: %d of %d steps, failures %+v, %d steps done twice, %d residuals lost; want one death, some rework and the residual of each worker",
				spec, s.Steps, steps, s.Failures, s.ReworkSteps, s.ResidualsLost)
		}
		dense := 4 * float64(r.Header.Parameters) * workers * float64(steps+s.ReworkSteps)
		if most := dense/smaller + 1; float64(s.BytesPushed) > most {
			t.Errorf("%s: %d bytes were pushed, want at most %.0f", spec, s.BytesPushed, most)
		}
		if first := r.Steps[0].Loss; !(s.FinalLoss < 0.8*first) {
			t.Errorf("%s: the loss went from %v to %v", spec, first, s.FinalLoss)
		}
		if page := tree(t, dir)[filepath.Join(dir, record.ReportFile)]; r.Header.Codec != spec || !strings.Contains(page, spec) {
			t.Errorf("the report of a run with %s does not say so", spec)
		}
		noOrphans(t, dir)
	}
}
