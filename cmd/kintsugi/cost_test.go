package main

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/cost"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// The cost of a run is in its summary and on its page, and can be reported again with other prices.
func TestTheCostOfARunIsTold(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := newDir(t)
	out := must(t, quadratic(200, "--out", dir, "--recovery", "checkpoint", "--price", "server=1,worker=2/0.5", "--fault", "kill server/1 at step 120")...)
	if !strings.Contains(out, "cost: ") {
		t.Errorf("the end of the run says nothing of its cost:\n%s", out)
	}
	s := readRun(t, dir).Summary
	b := s.Cost
	want := b.WallSeconds * (2*1 + 2*2) / 3600
	if math.Abs(b.OnDemand.Total-want) > 1e-9*want || b.Spot.Total >= b.OnDemand.Total || b.NodeSeconds.Coordinator != b.WallSeconds {
		t.Errorf("%+v: on demand %v; want %v", b, b.OnDemand.Total, want)
	}
	if b.CPUSeconds == nil || b.CPUSeconds.Worker <= 0 || s.PeakBytes < 1<<20 || b.WorkerBusy == nil || *b.WorkerBusy <= 0 || *b.WorkerBusy > 1 {
		t.Errorf("processors %+v, busy %v, %d bytes", b.CPUSeconds, b.WorkerBusy, s.PeakBytes)
	}
	if b.Failure.OutageNodeSeconds <= 0 || s.UsefulGradients+2*s.ReworkSteps != s.CountedGradients {
		t.Errorf("failures %+v, %d gradients counted, %d of them useful, %d steps taken back", b.Failure, s.CountedGradients, s.UsefulGradients, s.ReworkSteps)
	}
	var again []cost.Bill
	if err := json.Unmarshal([]byte(must(t, "cost", dir, "--price", "server=10,worker=20", "--format", "json")), &again); err != nil {
		t.Fatal(err)
	}
	if got := again[0].OnDemand.Total; math.Abs(got-10*want) > 1e-8*want {
		t.Errorf("ten times the price is %v; want %v", got, 10*want)
	}
	if text := must(t, "cost", dir, dir); strings.Count(text, "failure tax") != 2 || !strings.Contains(text, "on spot") {
		t.Errorf("as text:\n%s", text)
	}
}

// Experiments leave folders beside those of runs. `kintsugi cost runs/*`, as a page suggests, must
// work all the same.
func TestTheCostOfManyFoldersIsThatOfTheRunsAmongThem(t *testing.T) {
	t.Parallel()
	run, other := newDir(t), t.TempDir()
	r, err := record.Create(run, nil, record.Header{Servers: 1, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Finish(time.Now(), "all steps are done"); err != nil {
		t.Fatal(err)
	}
	if got := kin(t, "cost", other, run); got.status != exitDone || strings.Count(got.stdout, "failure tax") != 1 || !strings.Contains(got.stderr, other) {
		t.Errorf("status %d:\n%s%s", got.status, got.stdout, got.stderr)
	}
	for _, args := range [][]string{{other}, {other, t.TempDir()}, {run, filepath.Join(run, "misspelt")}} {
		if got := kin(t, append([]string{"cost"}, args...)...); got.status != exitUsage || got.stdout != "" {
			t.Errorf("%q: status %d; want %d\n%s", args, got.status, exitUsage, got.stdout)
		}
	}
}

// The example of docs/cost.md, a run in virtual time, costs what the page says.
func TestTheCostOfASimulatedRunIsThatOfThePage(t *testing.T) {
	for consistency, want := range map[string]string{
		"bsp": "cost: 3.11 on demand, 1.14 on spot; 1000 useful gradients 1.95 and 0.713",
		"dbw": "cost: 0.998 on demand, 0.366 on spot; 1000 useful gradients 2.49 and 0.913",
	} {
		out := must(t, "simulate", "--workers", "16", "--consistency", consistency, "--target", "0.02", "--price", "server=0.2/0.07,worker=3/1.1")
		if !strings.Contains(out, want) {
			t.Errorf("%s:\n%s\nwant %q", consistency, out, want)
		}
	}
}
