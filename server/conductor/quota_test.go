package conductor

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/dbw"
)

// Workers report how their gradients lie along the last displacement. That replaces what shards
// measure on messages, for workers that have had both versions, with the share that each had in the
// previous step.
func TestGradientsSpeakForMessagesThatAreNotThey(t *testing.T) {
	s := &steering{origin: time.Unix(0, 0), clipped: agg.Config{}.Clipped}
	step := func(n kintsugi.Step, tickets ...kintsugi.Ticket) dbw.Outcome {
		o := &open{commit: kintsugi.Commit{Step: n, Scale: 0.25}, stable: []*kintsugi.Stable{{Products: []kintsugi.Products{{DotDisplacement: 100, SquaredDisplacement: 4}, {DotDisplacement: 11, SquaredDisplacement: 5}}}}}
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
	if out := step(1, ticket(0, 0, 3, kintsugi.Along{}), ticket(1, 0, 1, kintsugi.Along{})); out.Dot != 111 || out.SquaredDisplacement != 9 || out.Gradients[0].Along {
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
	// After a step that was not seen, the shares of the previous step are not known.
	if out := step(4, ticket(0, 3, 1, both)); out.Dot != 111 || out.Gradients[0].Along {
		t.Errorf("after a hole: %+v", out)
	}
	if out := step(5, ticket(1, 4, 1, both)); out.Gradients[0].Earlier != 0 || !out.Gradients[0].Along { // its gradient was late in the previous step
		t.Errorf("of a worker that was not counted before: %+v", out.Gradients[0])
	}
	if out := step(6, ticket(0, 4, 1, both)); out.Dot != 111 { // it is of another displacement
		t.Errorf("a late gradient: %+v", out)
	}
}

// A controller that is told of clipped gradients learns the same as from gradients that are that
// short by themselves: their shares add up to 1, and what is measured of them, or along them,
// shrinks as they do.
func TestAControllerIsToldOfClippedGradientsAsOfShorterOnes(t *testing.T) {
	along := kintsugi.Along{Known: true, Dot: 5, Earlier: true, Before: -2, Own: 3}
	outcome := func(cfg agg.Config, part float64) dbw.Outcome { // part is the length of gradients relative to those of the other run
		s := &steering{origin: time.Unix(0, 0), clipped: cfg.Clipped}
		var out dbw.Outcome
		for n := kintsugi.Step(1); n <= 2; n++ {
			o := &open{commit: kintsugi.Commit{Step: n, Scale: 0.125}}
			for slot, norm := range []float64{4, 1} {
				a, examples := along, 4.0
				if slot == 0 {
					a.Dot, a.Before, a.Own, norm = part*a.Dot, part*a.Before, part*part*a.Own, part*norm
				}
				x := kintsugi.Ticket{Push: kintsugi.PushID{Slot: kintsugi.Slot(slot), Version: n - 1}, Examples: 4, SquaredNorm: norm * norm, Loss: 1, Along: a}
				o.tickets = append(o.tickets, x)
				o.commit.Counted = append(o.commit.Counted, kintsugi.Weighted{Push: x.Push, Weight: float32(examples * cfg.Clipped(x.SquaredNorm))})
			}
			out = s.outcome(time.Unix(1, 0), o)
		}
		return out
	}
	got, want := outcome(agg.Config{ClipNorm: 2}, 1), outcome(agg.Config{}, 0.5)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("clipped: %+v\nshorter: %+v", got, want)
	}
	if total := got.Gradients[0].Share + got.Gradients[1].Share; total != 1 {
		t.Errorf("the shares add up to %v", total)
	}
}

// A worker that makes up tickets cannot take memory or stop the conductor. A controller hears only
// of versions that exist, and before its first question of one gradient of each worker.
func TestTicketsThatAreMadeUpDoNotReachAController(t *testing.T) {
	now := time.Unix(0, 0)
	c, err := New(Config{Line: 2, View: 2, Fence: 5, Shards: 1, Slots: 2, Steps: 100, StartGrace: time.Minute, Consistency: agg.Config{Controller: "dbw", Lead: kintsugi.Infinite}}, now)
	if err != nil {
		t.Fatal(err)
	}
	c.ShardConnected(0)
	c.HandleReplica(now, kintsugi.Taken{Fence: 5, Applied: 7, Released: 7})
	if err := c.HandleHello(now, kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Line: 2, Incarnation: 1}); err != nil {
		t.Fatal(err)
	}
	c.HandleReplica(now, kintsugi.MembersKnown{Fence: 5, Change: 1})
	says := func(version kintsugi.Step) {
		c.HandleTicket(now, kintsugi.Ticket{Push: kintsugi.PushID{Line: 2, Incarnation: 1, Version: version}, Views: []kintsugi.ViewNumber{2}, Examples: 8})
	}
	for v := range kintsugi.Step(1000) {
		says(v)
	}
	if e := c.steering.early; len(e) != 1 || e[0].Version != 7 {
		t.Errorf("the controller is to be told of %d gradients, the first is %+v", len(e), e[0])
	}
	if c.Tick(now.Add(time.Hour)); !c.steering.asked {
		t.Fatal("the controller was not asked")
	}
	says(8)
	says(math.MaxUint64)
}

// fixed is a controller that makes one choice, whatever happens.
type fixed struct {
	dbw.Controller
	choice dbw.Choice
}

func (f fixed) Choose(dbw.Release) dbw.Choice { return f.choice }
func (fixed) Arrived(dbw.Arrival)             {}
func (fixed) Committed(float64)               {}

// When a controller's patience is over, the step is made with the gradients that are there, if there
// is one.
func TestAStepIsMadeWithWhatIsThereWhenPatienceIsOver(t *testing.T) {
	const patience = 2 * time.Second
	for name, c := range map[string]struct {
		patience float64
		tickets  int
		after    time.Duration
		want     string // why the step is made; "" if none is
	}{
		"before":                 {2, 2, patience - 1, ""},
		"then":                   {2, 2, patience, "2 of a quota of 3: the others have not come in 2s, expected were 1.5 s"},
		"nobody has come":        {2, 0, time.Hour, ""},
		"one has come":           {2, 1, patience, "1 of a quota of 3: the others have not come in 2s, expected were 1.5 s"},
		"all that it waits for":  {2, 3, 0, "three"},
		"and it is over as well": {2, 3, time.Hour, "three"},
		"without a bound":        {0, 2, time.Hour, ""},
	} {
		now := time.Unix(0, 0)
		x, err := New(Config{Line: 2, View: 2, Fence: 5, Shards: 1, Slots: 4, Steps: 100, Consistency: agg.Config{Controller: "dbw", Lead: kintsugi.Infinite}}, now)
		if err != nil {
			t.Fatal(err)
		}
		x.steering.controller = fixed{choice: dbw.Choice{Quota: 3, Rate: 1, Reason: "three", Patience: c.patience, Expected: 1.5}}
		x.ShardConnected(0)
		x.HandleReplica(now, kintsugi.Taken{Fence: 5})
		for slot := range kintsugi.Slot(4) {
			if err := x.HandleHello(now, kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Line: 2, Slot: slot, Incarnation: 1}); err != nil {
				t.Fatal(err)
			}
		}
		x.HandleReplica(now, kintsugi.MembersKnown{Fence: 5, Change: 4})
		for slot := range kintsugi.Slot(c.tickets) {
			x.HandleTicket(now, kintsugi.Ticket{Push: kintsugi.PushID{Line: 2, Slot: slot, Incarnation: 1}, Views: []kintsugi.ViewNumber{2}, Examples: 8})
		}
		x.Tick(now.Add(c.after))
		got := ""
		if x.open != nil {
			got = x.open.reason
		}
		if got != c.want {
			t.Errorf("%s: a step is made because %q, want %q", name, got, c.want)
		}
		if got := x.Choice(); got.Quota != 3 || got.Reason != "three" {
			t.Errorf("%s: chosen was %+v", name, got)
		}
	}
	x, err := New(Config{Line: 1, View: 1, Fence: 5, Shards: 1, Slots: 1, Steps: 1}, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if got := x.Choice(); got != (dbw.Choice{}) {
		t.Errorf("without a controller, chosen was %+v", got)
	}
}

// A displacement counts as measured if the commit has asked for both of its by-products.
func TestADisplacementIsMeasuredWhereBothByProductsWere(t *testing.T) {
	for want, measured := range map[kintsugi.Want]bool{
		0: false, kintsugi.WantSaved: false, kintsugi.WantDotDisplacement: false, kintsugi.WantSquaredDisplacement: false,
		kintsugi.WantDotDisplacement | kintsugi.WantSquaredDisplacement:                      true,
		kintsugi.WantDotDisplacement | kintsugi.WantSquaredDisplacement | kintsugi.WantSaved: true,
	} {
		s := &steering{origin: time.Unix(0, 0), clipped: agg.Config{}.Clipped}
		if out := s.outcome(time.Unix(1, 0), &open{commit: kintsugi.Commit{Want: want}}); out.Measured != measured {
			t.Errorf("asked for %b: measured is %v, want %v", want, out.Measured, measured)
		}
	}
}
