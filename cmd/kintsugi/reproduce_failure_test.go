package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/bench/failure"
)

// Real processes are killed with SIGKILL. Results that exist are not made again. Where the first
// restore is meant to find no checkpoint, it finds none.
func TestReproduceFailure(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	if testing.Short() {
		t.Skip("some runs of real processes; leave -short out")
	}
	dir := newDir(t)
	args := []string{"reproduce", "failure", "--quick", "--presets", "stateless/async,checkpoint:shipped", "--models", "mlr", "--kills", "2", "--updates", "60",
		"--kill-at", "25,45", "--save-every", "10", "--outage", "1s", "--gradient-time", "10ms", "--format", "json", "--out", dir}
	var rows []failure.Row
	if err := json.Unmarshal([]byte(must(t, args...)), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 {
		t.Fatalf("%+v", rows)
	}
	shipped, stateless := rows[0], rows[1]
	if shipped.Preset != "checkpoint:shipped" {
		shipped, stateless = stateless, shipped
	}
	if shipped.Redone < 25 || stateless.Redone != 0 || stateless.Pending[0] < 1 || !(stateless.Gap[0] >= 0.9) || !stateless.Final.Known() {
		t.Errorf("shipped has redone %v steps, stateless %v; %v gradients in outages of %v s, %v at the end",
			shipped.Redone, stateless.Redone, stateless.Pending, stateless.Gap, stateless.Final)
	}
	cell := filepath.Join(dir, "cells", "mlr_stateless-async_w1_k2_s1.json")
	before, err := os.Stat(cell)
	if err != nil {
		t.Fatal(err)
	}
	again := must(t, args...)
	after, err := os.Stat(cell)
	if err != nil || !after.ModTime().Equal(before.ModTime()) || !strings.Contains(again, `"seeds": 1`) {
		t.Errorf("the second call has made the runs again: %v", err)
	}
}
