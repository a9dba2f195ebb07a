package agg_test

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// Two of three workers make a step; the third is late.
func Example() {
	round := agg.NewRound(agg.Config{Quota: 2}, 0)
	for _, slot := range []kintsugi.Slot{2, 0, 1} {
		round.Offer(kintsugi.Ticket{Push: kintsugi.PushID{Line: 1, Slot: slot, Incarnation: 1}, Examples: 32})
	}
	step, _ := round.Decide(3)
	for _, c := range step.Choices {
		fmt.Println(c.Ticket.Push, "weighs", c.Weight)
	}
	fmt.Println("scale", step.Scale, "for a", step.Reason)
	for _, r := range round.Release(1) {
		fmt.Println(r.Push, "is refused:", r.Reason)
	}
	// Output:
	// worker/0 version 0 weighs 32
	// worker/2 version 0 weighs 32
	// scale 0.015625 for a fixed quota 2
	// worker/1 version 0 is refused: late: computed on version 0, the oldest that still counts is 1
}
