package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/bench/quota"
)

// The command writes both files, and prints the rows that are in them.
func TestReproduceDBW(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := newDir(t)
	out := must(t, "reproduce", "dbw", "--data", "digits", "--workers", "4", "--batches", "8", "--quotas", "1,2,4", "--seeds", "1", "--steps", "20", "--format", "json", "--out", dir)
	var rows []quota.Row
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2*4*6 || rows[0].Controller != "dbw" || rows[0].Data != "digits" || rows[0].Workers != 4 || !rows[0].Ratio.Known() {
		t.Errorf("%d rows, the first is %+v", len(rows), rows[0])
	}
	var table quota.Result
	text, err := os.ReadFile(filepath.Join(dir, "table.json"))
	if err == nil {
		err = json.Unmarshal(text, &table)
	}
	if err != nil || len(table.Rows()) != len(rows) || table.Rows()[5] != rows[5] || len(table.Claims) == 0 {
		t.Errorf("table.json: %v, %d rows", err, len(table.Rows()))
	}
	if page, err := os.ReadFile(filepath.Join(dir, "report.html")); err != nil || !strings.Contains(string(page), "--workers 4") {
		t.Errorf("report.html does not say what was run: %v", err)
	}
}

func TestReproduceDBWRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--data", "none-such"}, {"--data", "text"}, {"--seeds", "0"}, {"--steps", "1"}, {"--batches", "0"}, {"--workers", "5"}, {"--quotas", "0,16"},
		{"--quotas", "1,2"}, {"--busy", "idle"}, {"--format", "xml"},
	} {
		if r := kin(t, append([]string{"reproduce", "dbw", "--quick"}, args...)...); r.status != exitUsage {
			t.Errorf("%q ends with status %d: %s", args, r.status, r.stderr)
		}
	}
}
