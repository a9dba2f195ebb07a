package conductor

import (
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/dbw"
)

// What workers tell of their gradients along the last displacement takes the place of what shards say of messages, for those
// workers that have had both versions, and with the share that each had in the step before.
func TestGradientsSpeakForMessagesThatAreNotThey(t *testing.T) {
	s := &steering{origin: time.Unix(0, 0)}
	step := func(n kintsugi.Step, tickets ...kintsugi.Ticket) dbw.Outcome {
		o := &open{commit: kintsugi.Commit{Step: n, Scale: 0.25}, stable: []*kintsugi.Stable{{Products: []kintsugi.Products{{DotDisplacement: 100}, {DotDisplacement: 11}}}}}
		for _, x := range tickets {
			o.tickets = append(o.tickets, x)
			o.commit.Counted = append(o.commit.Counted, kintsugi.Weighted{Push: x.Push, Weight: float32(x.Examples)})
		}
		return s.outcome(time.Unix(1, 0), o)
	}
	ticket := func(slot kintsugi.Slot, version kintsugi.Step, examples uint32, a kintsugi.Along) kintsugi.Ticket {
		return kintsugi.Ticket{Push: kintsugi.PushID{Slot: slot, Version: version}, Examples: examples, Along: a}
	}
	both := kintsugi.Along{Known: true, Dot: 5, Earlier: true, Before: -2, Own: 3}
	if out := step(1, ticket(0, 0, 3, kintsugi.Along{}), ticket(1, 0, 1, kintsugi.Along{})); out.Dot != 111 || out.Gradients[0].Along {
		t.Errorf("nobody tells anything: %+v", out)
	}
	out := step(2, ticket(0, 1, 1, both), ticket(1, 1, 1, kintsugi.Along{}), ticket(2, 1, 2, kintsugi.Along{Known: true, Dot: 8}))
	if out.Dot != 7 { // (1·5 + 2·8) / 3
		t.Errorf("the mean of those that tell is %v, want 7", out.Dot)
	}
	if g := out.Gradients[0]; !g.Along || g.Before != -2 || g.Own != 3 || g.Earlier != 0.75 || g.Share != 0.25 {
		t.Errorf("of the first: %+v", g)
	}
	if out.Gradients[1].Along || out.Gradients[2].Along {
		t.Errorf("of the others: %+v", out.Gradients)
	}
	// After a step that was not seen the shares of the one before are not known.
	if out := step(4, ticket(0, 3, 1, both)); out.Dot != 111 || out.Gradients[0].Along {
		t.Errorf("after a hole: %+v", out)
	}
	if out := step(5, ticket(1, 4, 1, both)); out.Gradients[0].Earlier != 0 || !out.Gradients[0].Along { // it was late in the step before
		t.Errorf("of a worker that was not counted before: %+v", out.Gradients[0])
	}
	if out := step(6, ticket(0, 4, 1, both)); out.Dot != 111 { // of another displacement
		t.Errorf("a late gradient: %+v", out)
	}
}
