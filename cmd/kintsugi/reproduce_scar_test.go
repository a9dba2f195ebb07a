package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/kintsugi-ml/kintsugi/bench/partial"
)

// The command writes both files, and prints the rows that are in them.
func TestReproduceScar(t *testing.T) {
	notUnderRace(t)
	dir := newDir(t)
	out := must(t, "reproduce", "scar", "--workloads", "qp", "--strategies", "full,partial,priority:1/8", "--lost", "1/2,0.75", "--periods", "8",
		"--trials", "3", "--seeds", "1", "--format", "json", "--out", dir)
	var rows []partial.Row
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 6 || rows[0].Lost != 0.5 || rows[3].Lost != 0.75 || rows[1].Strategy != "partial" || rows[1].Trials != 3 || !(rows[2].Rework < rows[0].Rework) {
		t.Errorf("%+v", rows)
	}
	var table struct {
		Rows  []partial.Row
		Bound partial.Bound
	}
	text, err := os.ReadFile(filepath.Join(dir, "table.json"))
	if err == nil {
		err = json.Unmarshal(text, &table)
	}
	if err != nil || len(table.Rows) != 6 || table.Rows[2] != rows[2] || table.Bound.Perturbations != 10000 {
		t.Errorf("table.json: %v, %d rows", err, len(table.Rows))
	}
	if _, err := os.Stat(filepath.Join(dir, "report.html")); err != nil {
		t.Error(err)
	}
}

func TestReproduceScarRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--workloads", "gan"}, {"--strategies", "best"}, {"--lost", "4/3"}, {"--lost", "half"}, {"--lost", "1/0"}, {"--trials", "0"},
		{"--periods", "0"}, {"--format", "xml"}, {"--workloads", "mlr", "--data", "none-such"},
	} {
		if r := kin(t, append([]string{"reproduce", "scar", "--quick"}, args...)...); r.status != exitUsage {
			t.Errorf("%q ends with status %d: %s", args, r.status, r.stderr)
		}
	}
}
