package agg

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// A worker that offers what it has kept may go back to its version, and other workers may not. What
// was counted is never counted again.
func TestAWorkerMayOfferWhatItHasKept(t *testing.T) {
	cfg := Config{Quota: 1, Late: Apply, Staleness: kintsugi.Infinite, PerWorker: 9, Lead: kintsugi.Infinite, Continue: true}
	r := NewRound(cfg, 7)
	counted := kintsugi.PushID{Line: 1, Slot: 0, Incarnation: 1, Version: 6, Sequence: 1}
	r.Remember([]kintsugi.PushID{counted})
	r.BeginFrom(0, 6)
	r.Begin(1)
	offer := func(slot kintsugi.Slot, version kintsugi.Step, sequence, kept uint32) Verdict {
		v, _ := r.Offer(kintsugi.Ticket{
			Push: kintsugi.PushID{Line: 1, Slot: slot, Incarnation: 1, Version: version, Sequence: sequence}, Examples: 4, SquaredNorm: 1, Kept: kept,
		})
		return v
	}
	for _, c := range []struct {
		slot     kintsugi.Slot
		version  kintsugi.Step
		sequence uint32
		want     Verdict
	}{{0, 6, 1, Counted}, {0, 6, 2, Open}, {0, 5, 9, Counted}, {1, 6, 2, Refuse}, {1, 7, 0, Open}} {
		if got := offer(c.slot, c.version, c.sequence, 5); got != c.want {
			t.Errorf("worker/%d version %d sequence %d: verdict %d, want %d", c.slot, c.version, c.sequence, got, c.want)
		}
	}
	d, ok := r.Decide(2)
	if !ok || len(d.Choices) != 1 || d.Choices[0].Weight != 4*0.5 { // staleness 1
		t.Errorf("%+v, %v", d, ok)
	}
}
