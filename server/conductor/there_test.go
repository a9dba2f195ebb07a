package conductor_test

import (
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// alive are the workers whose processes are alive.
type alive = map[kintsugi.Slot]kintsugi.Incarnation

// The first step waits for a worker that is alive, as long as the grace says, and not for one that
// is dead. If nobody knows, it waits for all.
func TestTheFirstStepWaitsForThoseWhoLive(t *testing.T) {
	const grace = 5 * time.Second
	now := time.Unix(0, 0)
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
		x, err := conductor.New(conductor.Config{Line: 1, View: c.view, Fence: 5, Shards: 1, Slots: 2, Steps: 100, StartGrace: grace}, now)
		if err != nil {
			t.Fatal(err)
		}
		x.ShardConnected(0)
		x.HandleReplica(now, kintsugi.Taken{Fence: 5})
		if err := x.HandleHello(now, hello(0, 1)); err != nil {
			t.Fatal(err)
		}
		known(x, now, 1, 1)
		ticket := gradientOf(0, 0)
		ticket.Views[0] = c.view
		x.HandleTicket(now, ticket)
		if c.there != nil {
			x.There(now, c.there)
		}
		x.Tick(now.Add(c.after))
		if decided := sent[kintsugi.Commit](x); (len(decided) == 1) != c.want {
			t.Errorf("%s: decided is %+v, want a step: %v", name, decided, c.want)
		}
	}
}

// A step waits for a worker whose connection broke, as long as the grace says, and not for one whose
// process is dead, whichever of the two is heard first.
func TestNoStepWaitsForTheConnectionOfTheDead(t *testing.T) {
	const grace = time.Second
	now := time.Unix(0, 0)
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
		x := inRun(t, now, conductor.Config{Shards: 1, Slots: 2, Steps: 100, LeaveGrace: grace}, kintsugi.Taken{})
		if err := x.HandleHello(now, hello(1, 3)); err != nil {
			t.Fatal(err)
		}
		known(x, now, 1, 3)
		for _, a := range c.before {
			x.There(now, a)
		}
		x.HandleTicket(now, gradientOf(0, 0))
		if decided := sent[kintsugi.Commit](x); len(decided) > 0 {
			t.Fatalf("%s: a step does not wait for a connected worker: %+v", name, decided)
		}
		x.WorkerGone(now, 1, 3)
		for _, a := range c.after {
			x.There(now, a)
		}
		x.Tick(now.Add(c.late))
		if decided := sent[kintsugi.Commit](x); (len(decided) == 1) != c.want {
			t.Errorf("%s: decided is %+v, want a step: %v", name, decided, c.want)
		}
	}
}
