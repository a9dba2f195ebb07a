package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReportComparesRuns(t *testing.T) {
	dir := t.TempDir()
	fast, slow, page := filepath.Join(dir, "fast"), filepath.Join(dir, "slow"), filepath.Join(dir, "both.html")
	must(t, quadratic(40, "--learning-rate", "0.02", "--tensorboard", "--out", fast)...)
	must(t, quadratic(40, "--learning-rate", "0.001", "--out", slow)...)
	if out := must(t, "report", fast, slow, "--out", page); strings.TrimSpace(out) != page {
		t.Errorf("it says %q", out)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 runs", ">fast<", ">slow<", ">learning-rate 0.02<", ">learning-rate 0.001<"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page does not hold %q", want)
		}
	}
	one := filepath.Join(dir, "one.html")
	must(t, "report", fast, "--out", one)
	if a, err := os.ReadFile(one); err != nil {
		t.Error(err)
	} else if b, err := os.ReadFile(filepath.Join(fast, "report.html")); err != nil || string(a) != string(b) {
		t.Errorf("the page of one run elsewhere is another than in its folder, %v", err)
	}

	// TensorBoard finds the file of a run that was asked for it, and that of a run which is so now.
	figures := func(dir string) int {
		files, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if b, err := os.ReadFile(f); err != nil || !strings.Contains(string(b), "train/loss") {
				t.Errorf("%s has no losses, %v", f, err)
			}
		}
		return len(files)
	}
	if a, b := figures(fast), figures(slow); a != 1 || b != 0 {
		t.Errorf("%d and %d files for TensorBoard, want 1 and 0", a, b)
	}
	must(t, "report", slow, "--tensorboard")
	if n := figures(slow); n != 1 {
		t.Errorf("%d files for TensorBoard, want 1", n)
	}
}
