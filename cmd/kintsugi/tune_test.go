package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/bench/rates"
)

// The largest curvature of this quadratic is 1, so rates below 2 are stable.
func TestTuneFindsARateThatTrainTakes(t *testing.T) {
	notUnderRace(t)
	dir := filepath.Join(t.TempDir(), "lr")
	out := must(t, "tune", "lr", "--model", "qp:dimension=200,condition=30,noise=0.01", "--blas", "gonum", "--workers", "2", "--high", "1000", "--out", dir, "--format", "json")
	var rows []rates.Row
	if err := json.Unmarshal([]byte(out), &rows); err != nil || len(rows) != 1 {
		t.Fatalf("%v in\n%s", err, out)
	}
	r := rows[0]
	if !(r.Chosen < 2) || r.Chosen < 0.02 || r.BlowUp < 1 || r.Workers != 2 || len(r.Curve) < 100 {
		t.Errorf("chosen %v, blow-up %v, %d workers, %d points", r.Chosen, r.BlowUp, r.Workers, len(r.Curve))
	}
	// The settings of a run may have local steps, and a pass takes none.
	local := must(t, "tune", "lr", "--model", "qp:dimension=200,condition=30,noise=0.01", "--blas", "gonum", "--workers", "2", "--high", "1000", "--out", dir, "--local-steps", "8", "--outer", "nesterov", "--format", "json")
	var alone []rates.Row
	if err := json.Unmarshal([]byte(local), &alone); err != nil || len(alone) != 1 || alone[0].Chosen != r.Chosen || !slices.Equal(alone[0].Curve, r.Curve) {
		t.Errorf("with the settings of a run with local steps: chosen %v, want %v (%v)", alone, r.Chosen, err)
	}
	// Rates of tensors and clipping belong to a pass, and to the command that it recommends.
	text := must(t, "tune", "lr", "--model", "qp:dimension=200,condition=30,noise=0.01", "--blas", "gonum", "--workers", "2", "--high", "1000", "--out", dir, "--rate", "*=100", "--clip-norm", "1e9", "--format", "json")
	var rated []rates.Row
	if err := json.Unmarshal([]byte(text), &rated); err != nil || len(rated) != 1 || !(rated[0].Chosen < r.Chosen/10) {
		t.Errorf("chosen %v at a hundred times the rate, %v at one (%v)", rated, r.Chosen, err)
	}
	text = must(t, "tune", "lr", "--model", "qp:dimension=200,condition=30,noise=0.01", "--blas", "gonum", "--workers", "2", "--high", "1000", "--out", dir, "--rate", "*=0.5", "--clip-norm", "1e9")
	if !strings.Contains(text, "\nchosen: ") || !strings.Contains(text, "dbw:knee=2 --model qp:dimension=200,condition=30,noise=0.01 --workers 2 --rate '*=0.5' --clip-norm 1e+09\n") {
		t.Errorf("it prints\n%s", text)
	}
}
