package conductor_test

import (
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// A worker that is too far ahead is not told what became of its push. One that goes on
// nevertheless, with tickets that are refused, is made to start over before the answers that are
// held back fill the memory.
func TestAWorkerThatDoesNotWaitIsMadeToStartOver(t *testing.T) {
	now := time.Unix(0, 0)
	x, err := conductor.New(conductor.Config{
		Line: 1, View: 1, Fence: 5, Shards: 1, Slots: 2, Steps: 100,
		Consistency: agg.Config{Quota: 2, Late: agg.Apply, Staleness: kintsugi.Infinite, Lead: 0},
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	x.ShardConnected(0)
	x.HandleReplica(now, kintsugi.Taken{Fence: 5})
	for slot := range kintsugi.Slot(2) {
		if err := x.HandleHello(now, kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Line: 1, Slot: slot, Incarnation: 1}); err != nil {
			t.Fatal(err)
		}
	}
	x.HandleReplica(now, kintsugi.MembersKnown{Fence: 5, Change: 2})
	x.Ready()
	over := 0
	for i := range uint32(1000) { // tickets without examples are invalid
		x.HandleTicket(now, kintsugi.Ticket{Push: kintsugi.PushID{Line: 1, Incarnation: 1, Sequence: i}, Views: []kintsugi.ViewNumber{1}})
		for _, o := range x.Ready().StartOver {
			if over++; o.Slot != 0 || o.Incarnation != 1 {
				t.Fatalf("who starts over is %+v", o)
			}
		}
	}
	if most := (agg.Config{}).Held(); over != 1000-most {
		t.Errorf("of 1000 tickets %d are answered by the end of the stream: what waits is not bounded", over)
	}
}
