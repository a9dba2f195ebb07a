package agg_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// ticket returns a valid ticket of 8 examples.
func ticket(slot kintsugi.Slot, version kintsugi.Step, sequence uint32) kintsugi.Ticket {
	return kintsugi.Ticket{
		Push:     kintsugi.PushID{Line: 1, Slot: slot, Incarnation: 1, Version: version, Sequence: sequence},
		Examples: 8, SquaredNorm: 1,
	}
}

func pushes(d agg.Decision) []kintsugi.PushID {
	var p []kintsugi.PushID
	for _, c := range d.Choices {
		p = append(p, c.Ticket.Push)
	}
	return p
}

func TestOldestIsTheStalenessBoundAndDropAllowsNone(t *testing.T) {
	for _, c := range []struct {
		cfg        agg.Config
		step, want kintsugi.Step
	}{
		{agg.Config{}, 7, 7},
		{agg.Config{Staleness: 3}, 7, 7}, // Drop ignores the bound
		{agg.Config{Late: agg.Apply}, 7, 7},
		{agg.Config{Late: agg.Apply, Staleness: 3}, 7, 4},
		{agg.Config{Late: agg.Apply, Staleness: 7}, 7, 0},
		{agg.Config{Late: agg.Apply, Staleness: 9}, 7, 0},
		{agg.Config{Late: agg.Apply, Staleness: kintsugi.Infinite}, math.MaxUint32 + 5, 0},
	} {
		if got := c.cfg.Oldest(c.step); got != c.want {
			t.Errorf("%+v after step %d: oldest is %d, want %d", c.cfg, c.step, got, c.want)
		}
	}
}

// The sum of a step is Σ weight·gradient, times the scale. In a mean over examples, each gradient
// is a mean over its own examples and weighs their number.
func TestWeightsAndScale(t *testing.T) {
	apply := agg.Config{Quota: 2, Late: agg.Apply, Staleness: kintsugi.Infinite}
	with := func(c agg.Config, change func(*agg.Config)) agg.Config { change(&c); return c }
	for _, c := range []struct {
		name    string
		cfg     agg.Config
		weights []float32 // of a gradient of 30 examples on version 5 and one of 10 on version 3, both counted in step 6
		scale   float32
	}{
		{"mean", apply, []float32{30, 10}, 1.0 / 40},
		{"sum", with(apply, func(c *agg.Config) { c.Scale = agg.Sum }), []float32{1, 1}, 1},
		{"mean, discounted", with(apply, func(c *agg.Config) { c.Discount = true }), []float32{30, float32(10.0 / 3)}, 1.0 / 40},
		{"sum, discounted", with(apply, func(c *agg.Config) { c.Discount, c.Scale = true, agg.Sum }), []float32{1, float32(1.0 / 3)}, 1},
	} {
		r := agg.NewRound(c.cfg, 5)
		fresh, late := ticket(0, 5, 0), ticket(1, 3, 0)
		fresh.Examples, late.Examples = 30, 10
		r.Offer(fresh)
		r.Offer(late)
		d, ok := r.Decide(2)
		if !ok || len(d.Choices) != 2 {
			t.Fatalf("%s: decided %v: %+v", c.name, ok, d)
		}
		for i, want := range append(c.weights, c.scale) {
			got := d.Scale
			if i < len(d.Choices) {
				got = d.Choices[i].Weight
			}
			if math.Float32bits(got) != math.Float32bits(want) {
				t.Errorf("%s: number %d is %v, want %v", c.name, i, got, want)
			}
		}
	}
}

func TestAStepWaitsForItsQuota(t *testing.T) {
	for _, c := range []struct {
		name    string
		cfg     agg.Config
		members int
		offer   []kintsugi.Ticket
		want    []kintsugi.PushID // nil: no step
	}{
		{"all members, one missing", agg.Config{}, 2, []kintsugi.Ticket{ticket(0, 0, 0)}, nil},
		{"all members", agg.Config{}, 2, []kintsugi.Ticket{ticket(1, 0, 0), ticket(0, 0, 0)}, []kintsugi.PushID{ticket(0, 0, 0).Push, ticket(1, 0, 0).Push}},
		{"the first two of three", agg.Config{Quota: 2}, 3, []kintsugi.Ticket{ticket(2, 0, 0), ticket(1, 0, 0), ticket(0, 0, 0)},
			[]kintsugi.PushID{ticket(1, 0, 0).Push, ticket(2, 0, 0).Push}},
		{"two of one worker do not make two", agg.Config{Quota: 2}, 2, []kintsugi.Ticket{ticket(0, 0, 0), ticket(0, 0, 1)}, nil},
		{"unless they may", agg.Config{Quota: 2, PerWorker: 2}, 2, []kintsugi.Ticket{ticket(0, 0, 0), ticket(0, 0, 1)},
			[]kintsugi.PushID{ticket(0, 0, 0).Push, ticket(0, 0, 1).Push}},
		{"nobody is there", agg.Config{}, 0, nil, nil},
	} {
		r := agg.NewRound(c.cfg, 0)
		for _, o := range c.offer {
			if v, reason := r.Offer(o); v != agg.Open {
				t.Fatalf("%s: %v got verdict %d: %s", c.name, o.Push, v, reason)
			}
		}
		d, ok := r.Decide(c.members)
		if ok != (c.want != nil) || !slices.Equal(pushes(d), c.want) {
			t.Errorf("%s: got %v, want %v", c.name, pushes(d), c.want)
		}
		if _, again := r.Decide(c.members); ok && again {
			t.Errorf("%s: a second step is decided while the first is open", c.name)
		}
	}
}

func TestEachTicketGetsItsVerdict(t *testing.T) {
	nonsense := func(change func(*kintsugi.Ticket)) kintsugi.Ticket {
		x := ticket(0, 4, 9)
		change(&x)
		return x
	}
	other := ticket(0, 4, 0)
	other.Push.Incarnation = 2
	// Step 4 has counted slot 0 on version 3. The open step 5 counts slot 1, and slot 2 has an open
	// ticket.
	r := agg.NewRound(agg.Config{Quota: 1, Late: agg.Apply, Staleness: 2}, 3)
	r.Offer(ticket(0, 3, 0))
	r.Decide(1)
	r.Release(4)
	r.Offer(ticket(1, 4, 0))
	r.Decide(1)
	r.Offer(ticket(2, 4, 0))
	for _, c := range []struct {
		name   string
		ticket kintsugi.Ticket
		want   agg.Verdict
		says   string
	}{
		{"counted by a released step", ticket(0, 3, 0), agg.Counted, ""},
		{"before one that was counted", ticket(0, 2, 0), agg.Counted, ""},
		{"counted by the open step", ticket(1, 4, 0), agg.Duplicate, ""},
		{"open already", ticket(2, 4, 0), agg.Duplicate, ""},
		{"the next one of the same worker", ticket(2, 4, 1), agg.Open, ""},
		{"as old as may be", ticket(3, 2, 0), agg.Open, ""},
		{"too old", ticket(4, 1, 0), agg.Refuse, "late: computed on version 1, the oldest that still counts is 2"},
		{"of the future", ticket(4, 5, 0), agg.Refuse, "not released; the newest is 4"},
		{"another life of a worker that was counted", other, agg.Open, ""},
		{"no examples", nonsense(func(x *kintsugi.Ticket) { x.Examples = 0 }), agg.Refuse, "0 examples"},
		{"a norm that is NaN", nonsense(func(x *kintsugi.Ticket) { x.SquaredNorm = math.NaN() }), agg.Refuse, "NaN"},
		{"an infinite norm", nonsense(func(x *kintsugi.Ticket) { x.SquaredNorm = math.Inf(1) }), agg.Refuse, "+Inf"},
		{"a negative norm", nonsense(func(x *kintsugi.Ticket) { x.SquaredNorm = -1 }), agg.Refuse, "-1"},
	} {
		got, reason := r.Offer(c.ticket)
		if got != c.want || !strings.Contains(reason, c.says) || (reason == "") != (c.says == "") {
			t.Errorf("%s: verdict %d, %q; want %d, %q", c.name, got, reason, c.want, c.says)
		}
	}
}

func TestATakenOverStepCountsItsPushes(t *testing.T) {
	r := agg.NewRound(agg.Config{Quota: 1, Late: agg.Apply, Staleness: kintsugi.Infinite}, 7)
	r.Remember([]kintsugi.PushID{ticket(0, 6, 0).Push}) // by a conductor that took over; counted in step 7
	r.Adopt([]kintsugi.Weighted{{Push: ticket(1, 5, 0).Push, Weight: 8}})
	for _, c := range []struct {
		ticket kintsugi.Ticket
		want   agg.Verdict
	}{{ticket(0, 6, 0), agg.Counted}, {ticket(1, 5, 0), agg.Duplicate}, {ticket(0, 7, 0), agg.Open}} {
		if got, _ := r.Offer(c.ticket); got != c.want {
			t.Errorf("%v: verdict %d, want %d", c.ticket.Push, got, c.want)
		}
	}
	if _, ok := r.Decide(2); ok {
		t.Error("a step is decided while the one that was taken over is open")
	}
	r.Release(8)
	if got, _ := r.Offer(ticket(1, 5, 0)); got != agg.Counted {
		t.Errorf("after its release the push has verdict %d, want %d", got, agg.Counted)
	}
	r.Adopt(nil)
	if _, ok := r.Decide(1); ok {
		t.Error("a step is decided while one that counts nothing is open")
	}
}

func TestAWorkerThatBeginsAnewKeepsItsOpenTicketsAndNothingOlder(t *testing.T) {
	cfg := agg.Config{Quota: 9, Late: agg.Apply, Staleness: kintsugi.Infinite, PerWorker: 9}
	r := agg.NewRound(cfg, 7)
	if got := r.Oldest(0, 7); got != 0 {
		t.Errorf("at first the oldest version is %d, want 0", got)
	}
	r.Offer(ticket(0, 5, 0))
	r.Begin(0)
	r.Begin(1)
	for slot, want := range []kintsugi.Step{5, 7, 0} {
		if got := r.Oldest(kintsugi.Slot(slot), 7); got != want {
			t.Errorf("worker/%d: the oldest version is %d, want %d", slot, got, want)
		}
	}
	if got, _ := r.Offer(ticket(0, 5, 0)); got != agg.Duplicate {
		t.Errorf("its open ticket has verdict %d, want %d", got, agg.Duplicate)
	}
	if got, _ := r.Offer(ticket(1, 6, 0)); got != agg.Refuse {
		t.Errorf("a ticket of before has verdict %d, want %d", got, agg.Refuse)
	}
}

func TestAWorkerThatLeavesTakesItsOpenTicketsWithIt(t *testing.T) {
	r := agg.NewRound(agg.Config{Quota: 2}, 0)
	r.Offer(ticket(0, 0, 0))
	later := ticket(0, 0, 0)
	later.Push.Incarnation = 2
	r.Leave(0, 2)
	if v, _ := r.Offer(later); v != agg.Open {
		t.Errorf("the next life's ticket has verdict %d, want %d", v, agg.Open)
	}
	r.Leave(0, 2)
	r.Offer(ticket(1, 0, 0))
	d, ok := r.Decide(2)
	if want := []kintsugi.PushID{later.Push, ticket(1, 0, 0).Push}; !ok || !slices.Equal(pushes(d), want) {
		t.Errorf("the step counts %v, want %v", pushes(d), want)
	}
}
