package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// A simulated run leaves a run folder like any other, and the same seed gives the same run.
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

// The folder of a run can be used as a trace. If a worker took the same time for each gradient, a
// simulated one takes that time for all of its own, in every rotation.
func TestARunIsATrace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{"simulate", "--workers", "1", "--steps", "40", "--consistency", "bsp", "--out", dir, "--times", "exp:1"}
	seconds := regexp.MustCompile(`[0-9.]+ virtual seconds`)
	first := must(t, args...)
	second := must(t, "simulate", "--workers", "1", "--steps", "40", "--consistency", "bsp", "--trace", dir, "--seed", "9")
	if a, b := seconds.FindString(first), seconds.FindString(second); a == "" || a != b || !strings.Contains(second, "times recorded:") {
		t.Errorf("%q, and with its times %q", first, second)
	}
}
