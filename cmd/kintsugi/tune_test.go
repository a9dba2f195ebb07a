package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/bench"
)

// The largest curvature of this quadratic is 1, so rates below 2 are stable.
func TestTuneFindsARateThatTrainTakes(t *testing.T) {
	notUnderRace(t)
	dir := filepath.Join(t.TempDir(), "lr")
	out := must(t, "tune", "lr", "--model", "qp:dimension=200,condition=30,noise=0.01", "--blas", "gonum", "--workers", "2", "--high", "1000", "--out", dir, "--format", "json")
	var rows []bench.RatesRow
	if err := json.Unmarshal([]byte(out), &rows); err != nil || len(rows) != 1 {
		t.Fatalf("%v in\n%s", err, out)
	}
	r := rows[0]
	if !(r.Chosen < 2) || r.Chosen < 0.02 || r.BlowUp < 1 || r.Workers != 2 || len(r.Curve) < 100 {
		t.Errorf("chosen %v, blow-up %v, %d workers, %d points", r.Chosen, r.BlowUp, r.Workers, len(r.Curve))
	}
	text := must(t, "tune", "lr", "--model", "qp:dimension=200,condition=30,noise=0.01", "--blas", "gonum", "--workers", "2", "--high", "1000", "--out", dir)
	if !strings.Contains(text, "\nchosen: ") || !strings.Contains(text, "dbw:knee=2") {
		t.Errorf("it prints\n%s", text)
	}
}
