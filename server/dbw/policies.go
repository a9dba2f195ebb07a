package dbw

import (
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi/internal/fade"
)

// static waits for the same number in every step.
type static int

func (s static) Name() string      { return fmt.Sprintf("static:%d", int(s)) }
func (s static) Arrived(Arrival)   {}
func (s static) Committed(float64) {}
func (s static) Released(Outcome)  {}
func (s static) Choose(r Release) Choice {
	return Choice{Quota: min(int(s), r.Members), Rate: 1, Reason: fmt.Sprintf("fixed quota %d", int(s))}
}

// adasync waits for k₀·√(F₀/F) gradients: the more, the smaller the loss F has become (AdaSync's
// rule for k-sync).
type adasync struct {
	first int
	start float64 // F₀; 0: not known
	loss  fade.Mean
}

func (a *adasync) Name() string      { return fmt.Sprintf("adasync:%d", a.first) }
func (a *adasync) Arrived(Arrival)   {}
func (a *adasync) Committed(float64) {}

func (a *adasync) Released(o Outcome) {
	loss := o.loss()
	if len(o.Gradients) == 0 || !finite(loss) {
		return
	}
	if a.start == 0 {
		a.start, a.loss = loss, fade.NewMean(paperMemory)
	}
	a.loss.Add(loss)
}

func (a *adasync) Choose(r Release) Choice {
	now := a.loss.Value()
	if a.start <= 0 {
		return Choice{Quota: min(a.first, r.Members), Rate: 1, Reason: fmt.Sprintf("the first quota, %d: no loss above zero was known to begin with", a.first)}
	}
	k := int(math.Round(min(float64(r.Members), float64(a.first)*math.Sqrt(a.start/max(now, 0))))) // of a loss of 0 nothing is left
	k = max(1, k)
	return Choice{Quota: k, Rate: 1, Reason: fmt.Sprintf("%d of %d: the loss has gone from %.3g to %.3g", k, r.Members, a.start, now)}
}

// blind is B-DBW: it looks at times alone, and takes the quota with the most gradients per second.
type blind struct{ timing }

func newBlind(interrupt bool) *blind {
	b := &blind{newTiming(paperMemory, interrupt)}
	b.durations.own = true
	return b
}

func (b *blind) Name() string       { return "bdbw" }
func (b *blind) Released(o Outcome) { b.timing.Released(o) }

func (b *blind) Choose(r Release) Choice {
	b.begin(r)
	if !b.durations.known() {
		return b.chosen(r, r.Members, "all members: no times are known yet")
	}
	k := b.best(r.Members, func(k int) float64 { return float64(k) / b.expect(k) })
	return b.chosen(r, k, fmt.Sprintf("%d of %d: %.3g gradients per second", k, r.Members, float64(k)/b.expect(k)))
}

// timing is the common part of the controllers that look at times.
type timing struct {
	durations *durations
	last      int     // quota of the step before; 0: none
	quota     int     // of the present step
	began     float64 // of the present step
	commit    float64
	apply     fade.Mean // seconds from a commit to the release
	changed   bool      // a change was detected, and there has been no look at slow workers since
}

func newTiming(memory float64, interrupt bool) timing {
	return timing{durations: newDurations(memory, interrupt), apply: fade.NewMean(memory)}
}

// begin takes a release, before the choice.
func (t *timing) begin(r Release) {
	h := t.quota
	if h == 0 {
		h = r.Members // all begin together
	}
	t.last, t.began = min(h, r.Members), r.At
	t.durations.release(r.Version, r.At, t.last, r.Members)
}

// Arrived implements Controller.
func (t *timing) Arrived(a Arrival) { t.durations.arrive(a.Slot, a.Version, a.At) }

// Committed implements Controller.
func (t *timing) Committed(at float64) {
	t.commit = at
	if t.quota > 0 {
		t.changed = t.durations.committed(t.quota, at) || t.changed
	}
}

// Released implements Controller.
func (t *timing) Released(o Outcome) {
	if t.quota > 0 && t.commit >= t.began {
		t.apply.Add(o.At - t.commit)
	}
}

// expect returns the seconds that a step with quota k is expected to take from its release to the
// next one.
func (t *timing) expect(k int) float64 {
	return max(1e-9, t.durations.at(t.last, k)+t.apply.Value())
}

// best returns the quota with the largest value; of equal values, the larger quota.
func (t *timing) best(members int, value func(k int) float64) int {
	k, most := members, value(members)
	for i := members - 1; i >= 1; i-- {
		if v := value(i); v > most {
			k, most = i, v
		}
	}
	return k
}

// chosen returns the choice of quota k.
func (t *timing) chosen(r Release, k int, reason string) Choice {
	t.quota = max(1, min(k, r.Members))
	c := Choice{Quota: t.quota, Rate: 1, Reason: reason}
	if t.durations.known() {
		c.Expected = t.expect(t.quota)
	}
	return c
}
