package main

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// A simulated run is a run directory like any other, and the same seed gives the same run.
func TestASimulatedRunIsRecordedAndReplays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{"simulate", "--workers", "8", "--steps", "40", "--times", "exp:1", "--seed", "3"}
	wall := regexp.MustCompile(`\([0-9.]+ s\)|report:.*`)
	first := wall.ReplaceAllString(must(t, append(args, "--out", dir)...), "")
	second := wall.ReplaceAllString(must(t, args...), "")
	if first != second+"\n" {
		t.Errorf("%q and then %q", first, second)
	}
	run, err := record.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Steps) != 40 || run.Steps[0].Reason == "" || run.Steps[39].Seconds <= 0 {
		t.Errorf("%d steps are recorded; the first waited for %q", len(run.Steps), run.Steps[0].Reason)
	}
}
