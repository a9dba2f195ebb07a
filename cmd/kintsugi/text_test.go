package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestCharlmIsTrainedOnTextAndWithTheOptimizerItSuggests runs processes on a short text, so that
// evaluations are short.
func TestCharlmIsTrainedOnTextAndWithTheOptimizerItSuggests(t *testing.T) {
	notUnderRace(t)
	data, dir := t.TempDir(), newDir(t)
	writeFile(t, filepath.Join(data, "input.txt"), []byte(strings.Repeat("If music be the food of love, play on;\n", 40)))
	out := must(t, "train", "--model", "charlm", "--data", "shakespeare", "--data-dir", data, "--batch", "2", "--steps", "12",
		"--workers", "2", "--eval-every", "12", "--out", dir)
	if !strings.Contains(out, "charlm on shakespeare: 12 steps") || !strings.Contains(out, "nats a character on the test part") {
		t.Errorf("it says %q", out)
	}
	r := readRun(t, dir)
	const classes = 23 // number of different characters in the line
	for _, want := range []string{"optimizer: adam\n", "input: 64x23\n"} {
		if !strings.Contains(string(r.Config), want) {
			t.Errorf("the settings are\n%s; want %q among them", r.Config, want)
		}
	}
	if s := r.Summary; !(s.FinalTestLoss < 2.5) || !(s.FinalAccuracy > 2.0/classes) {
		t.Errorf("a test loss of %v and an accuracy of %v; want to be better than guessing", s.FinalTestLoss, s.FinalAccuracy)
	}
}
