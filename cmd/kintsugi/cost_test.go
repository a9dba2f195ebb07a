package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// The bill of a run is in its summary, on its page, and is told again with other prices.
func TestTheCostOfARunIsTold(t *testing.T) {
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
	var again []pricedRun
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
