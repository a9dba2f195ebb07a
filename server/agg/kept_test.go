package agg

import (
	"math"
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

// With KeepDecay no kept gradient counts as longer than ordinary ones, of which the last ten or so
// say what is usual.
func TestWhatIsUsualFollowsOrdinaryGradients(t *testing.T) {
	cfg := Config{Quota: 1, Late: Apply, Staleness: kintsugi.Infinite, Lead: kintsugi.Infinite, Scale: Sum, Continue: true, Keep: kintsugi.KeepDecay}
	r := NewRound(cfg, 1)
	step := kintsugi.Step(1)
	weight := func(squaredNorm float64, kept uint32) float32 {
		t.Helper()
		r.Offer(kintsugi.Ticket{Push: kintsugi.PushID{Line: 1, Incarnation: 1, Version: step}, Examples: 4, SquaredNorm: squaredNorm, Kept: kept})
		d, ok := r.Decide(1)
		if !ok {
			t.Fatal("a gradient makes no step")
		}
		step++
		r.Release(step)
		return d.Choices[0].Weight
	}
	for i, c := range []struct {
		squaredNorm float64
		kept        uint32
		want        float32
	}{
		{1e6, 5, 1},   // nothing is known
		{16, 0, 1},    // the first says it all
		{64, 5, 0.5},  // √(16/64)
		{1e9, 5, 0},   // and kept gradients say nothing
		{16, 5, 1},    // as long as usual
		{216, 0, 1},   // 16 + 0.1·200 = 36 are usual now
		{144, 5, 0.5}, // √(36/144)
	} {
		if got := weight(c.squaredNorm, c.kept); math.Abs(float64(got-c.want)) > 2e-4 {
			t.Errorf("gradient %d, squared norm %v: weight %v, want %v", i, c.squaredNorm, got, c.want)
		}
	}
}
