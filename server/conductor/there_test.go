package conductor_test

import (
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// The first step waits for a worker that is alive, as long as the grace says, and not for one that
// is dead. If nobody knows, it waits for all.
func TestTheFirstStepWaitsForThoseWhoLive(t *testing.T) {
	const grace = 5 * time.Second
	for name, c := range map[string]struct {
		view  kintsugi.ViewNumber
		there alive // nil: not known
		after time.Duration
		want  bool // whether a step is decided
	}{
		"nobody knows":                            {2, nil, 0, false},
		"nobody knows, and the grace is over":     {2, nil, grace, true},
		"the other one lives":                     {2, alive{0: 1, 1: 1}, 0, false},
		"the other one lives, and is late":        {2, alive{0: 1, 1: 1}, grace, true},
		"the other one is dead":                   {2, alive{0: 1}, 0, true},
		"nobody is there who could be waited for": {2, alive{}, 0, true},
		"the other one has not come yet":          {1, alive{0: 1}, 0, false},
	} {
		x := conducting(t, conductor.Config{View: c.view, StartGrace: grace})
		x.hello(0, 1)
		x.push(0, 1, 0)
		if c.there != nil {
			x.There(x.now, c.there)
		}
		x.Tick(x.now.Add(c.after))
		if decided := x.decided(); decided != c.want {
			t.Errorf("%s: a step is decided: %v, want %v", name, decided, c.want)
		}
	}
}

// A step waits for a worker whose connection broke, as long as the grace says, and not for one whose
// process is dead, whichever of the two is heard first.
func TestNoStepWaitsForTheConnectionOfTheDead(t *testing.T) {
	const grace = time.Second
	for name, c := range map[string]struct {
		before, after []alive // the news before the connection breaks, and after it
		late          time.Duration
		want          bool // whether a step is decided
	}{
		"nobody knows":                               {nil, nil, 0, false},
		"nobody knows, and the grace is over":        {nil, nil, grace, true},
		"it lives":                                   {[]alive{{0: 1, 1: 3}}, []alive{{0: 1, 1: 3}}, 0, false},
		"it lives, and does not come back":           {[]alive{{0: 1, 1: 3}}, nil, grace, true},
		"its death is heard after":                   {[]alive{{0: 1, 1: 3}}, []alive{{0: 1}}, 0, true},
		"its death is heard before":                  {[]alive{{0: 1, 1: 3}, {0: 1}}, nil, 0, true},
		"another life has its place":                 {[]alive{{0: 1, 1: 3}}, []alive{{0: 1, 1: 4}}, 0, true},
		"the news is from before it came":            {nil, []alive{{0: 1}}, 0, false},
		"the news is of an earlier life":             {nil, []alive{{0: 1, 1: 2}}, 0, false},
		"the news is of the death of an earlier one": {[]alive{{0: 1, 1: 2}}, []alive{{0: 1}}, 0, false},
	} {
		x := conducting(t, conductor.Config{View: 2, LeaveGrace: grace})
		x.hello(0, 1)
		x.hello(1, 3)
		for _, a := range c.before {
			x.There(x.now, a)
		}
		x.push(0, 1, 0)
		if x.decided() {
			t.Fatalf("%s: a step does not wait for a connected worker", name)
		}
		x.WorkerGone(x.now, 1, 3)
		for _, a := range c.after {
			x.There(x.now, a)
		}
		x.Tick(x.now.Add(c.late))
		if decided := x.decided(); decided != c.want {
			t.Errorf("%s: a step is decided: %v, want %v", name, decided, c.want)
		}
	}
}

type alive = map[kintsugi.Slot]kintsugi.Incarnation

// conducted is the conductor of a run of two workers with one shard, which answers at once.
type conducted struct {
	*conductor.Conductor
	t       *testing.T
	now     time.Time
	changes uint64
	view    kintsugi.ViewNumber
}

func conducting(t *testing.T, cfg conductor.Config) *conducted {
	t.Helper()
	cfg.Line, cfg.Fence, cfg.Shards, cfg.Slots, cfg.Steps, cfg.Consistency = 2, 5, 1, 2, 100, agg.Config{Lead: kintsugi.Infinite}
	now := time.Unix(0, 0)
	x, err := conductor.New(cfg, now)
	if err != nil {
		t.Fatal(err)
	}
	x.ShardConnected(0)
	x.HandleReplica(now, kintsugi.Taken{Fence: 5})
	return &conducted{Conductor: x, t: t, now: now, view: cfg.View}
}

func (x *conducted) hello(slot kintsugi.Slot, inc kintsugi.Incarnation) {
	x.t.Helper()
	if err := x.HandleHello(x.now, kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Line: 2, Slot: slot, Incarnation: inc}); err != nil {
		x.t.Fatal(err)
	}
	x.changes++
	x.HandleReplica(x.now, kintsugi.MembersKnown{Fence: 5, Change: x.changes})
}

func (x *conducted) push(slot kintsugi.Slot, inc kintsugi.Incarnation, sequence uint32) {
	x.HandleTicket(x.now, kintsugi.Ticket{
		Push: kintsugi.PushID{Line: 2, Slot: slot, Incarnation: inc, Sequence: sequence}, Views: []kintsugi.ViewNumber{x.view}, Examples: 8,
	})
}

// decided reports whether a step has been decided since the last call.
func (x *conducted) decided() bool {
	for _, m := range x.Ready().ToShards {
		if _, is := m.Message.(kintsugi.Commit); is {
			return true
		}
	}
	return false
}
