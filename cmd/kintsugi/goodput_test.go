package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/bench/goodput"
)

// Servers of a real run die at drawn times, and the table says how much of the useful steps of an
// undisturbed run remain.
func TestGoodputOfARunWhoseServersDie(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	notUnderRace(t)
	dir := t.TempDir()
	out, picture := filepath.Join(dir, "out"), filepath.Join(dir, "picture.svg")
	printed := must(t, "bench", "goodput", "--model", "qp:dimension=4000,condition=30,noise=0.1", "--recoveries", "chain", "--mtbf", "400ms", "--rounds", "1", "--warm-up", "2s",
		"--for", "1s", "--down", "200ms", "--tail", "1s", "--gradient-time", "5ms", "--servers", "2", "--workers", "2", "--seed", "3", "--out", out, "--picture", picture, "--format", "json",
		"--", "--blas", "gonum")
	var rows []goodput.Row
	if err := json.Unmarshal([]byte(printed), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 || rows[0].Goodput != 1 || rows[0].Kills != 0 || rows[0].Lost != 0 {
		t.Fatalf("got %+v", rows)
	}
	r := rows[1] // on a busy machine both replicas may be away at once, and then all steps are taken back
	if r.Recovery != "chain" || r.Loss != "either" || r.Kills < 1 || r.Kills > len(r.Trials[0].Faults) || !r.Goodput.Known() || !(r.Next > 0) || r.Unplanned != 0 {
		t.Errorf("got %+v", r)
	}
	for _, file := range []string{picture, filepath.Join(out, "goodput.svg"), filepath.Join(out, "table.json"), filepath.Join(out, "report.html")} {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "chain") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// Settings that no run can have are refused before minutes of measuring.
func TestGoodputRefusesWhatNoRunCanHave(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	for _, args := range [][]string{
		{"--recoveries", "chain:9"}, {"--recoveries", "wishes"}, {"--recoveries", "checkpoint:0"}, {"--loss", "mind"}, {"--mtbf", "often"}, {"--mtbf", "1ms"}, {"--rounds", "0"},
		{"--for", "0s"}, {"--format", "xml"}, {"--picture", "no/such/folder/x.svg"}, {"--", "--codec", "int9"},
	} {
		if r := kin(t, append([]string{"bench", "goodput"}, args...)...); r.status != exitUsage || r.stdout != "" {
			t.Errorf("%q ended with status %d: %s", args, r.status, r.stderr)
		}
	}
}
