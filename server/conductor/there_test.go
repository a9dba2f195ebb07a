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
		there []kintsugi.Slot // nil: not known
		after time.Duration
		want  bool // whether a step is decided
	}{
		"nobody knows":                            {nil, 0, false},
		"nobody knows, and the grace is over":     {nil, grace, true},
		"the other one lives":                     {[]kintsugi.Slot{0, 1}, 0, false},
		"the other one lives, and is late":        {[]kintsugi.Slot{0, 1}, grace, true},
		"the other one is dead":                   {[]kintsugi.Slot{0}, 0, true},
		"nobody is there who could be waited for": {[]kintsugi.Slot{}, 0, true},
	} {
		now := time.Unix(0, 0)
		x, err := conductor.New(conductor.Config{
			Line: 2, View: 2, Fence: 5, Shards: 1, Slots: 2, Steps: 100, StartGrace: grace, Consistency: agg.Config{Lead: kintsugi.Infinite},
		}, now)
		if err != nil {
			t.Fatal(err)
		}
		x.ShardConnected(0)
		x.HandleReplica(now, kintsugi.Taken{Fence: 5})
		if err := x.HandleHello(now, kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Line: 2, Incarnation: 1}); err != nil {
			t.Fatal(err)
		}
		x.HandleReplica(now, kintsugi.MembersKnown{Fence: 5, Change: 1})
		x.HandleTicket(now, kintsugi.Ticket{Push: kintsugi.PushID{Line: 2, Incarnation: 1}, Views: []kintsugi.ViewNumber{2}, Examples: 8})
		if c.there != nil {
			x.There(now, c.there)
		}
		x.Tick(now.Add(c.after))
		decided := false
		for _, m := range x.Ready().ToShards {
			_, is := m.Message.(kintsugi.Commit)
			decided = decided || is
		}
		if decided != c.want {
			t.Errorf("%s: a step is decided: %v, want %v", name, decided, c.want)
		}
	}
}
