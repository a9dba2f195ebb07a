package shard_test

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// A replica by itself: a push arrives, a commit counts it, and once the step is released, its
// version may be read.
func Example() {
	r := shard.New(0, 1, 1, 1, 0)
	r.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 7})
	push := kintsugi.PushID{Line: 1, Slot: 0, Incarnation: 1, Version: 0}
	_, reason := r.Begin(push)
	fmt.Println("before anyone is a member:", reason)

	member := []kintsugi.Countable{{Slot: 0, Incarnation: 1, Oldest: 0}}
	r.Handle(kintsugi.Members{Line: 1, Fence: 7, Change: 1, Countable: member})
	verdict, _ := r.Begin(push)
	fmt.Println("a member's push is accepted:", verdict == shard.Accept)
	r.Complete(push)
	verdict, _ = r.Begin(push)
	fmt.Println("it is held when it comes again:", verdict == shard.Have)

	commit := kintsugi.Commit{
		Line: 1, Fence: 7, Decided: 7, Step: 1, Scale: 1, Countable: member,
		Counted: []kintsugi.Weighted{{Push: push, Weight: 1}},
	}
	older := commit
	older.Fence = 6
	fmt.Println("a commit of a smaller fence counts:", r.Handle(older))
	r.Handle(commit)
	fmt.Println("apply step", r.Ready().Apply.Step)
	r.Applied(7, make([]kintsugi.Products, 1), 0, 0, 0)
	fmt.Println("applied, and version", r.Released(), "is the one to read")
	r.Handle(kintsugi.Released{Line: 1, Fence: 7, Step: 1})
	fmt.Println("publish version", *r.Ready().Publish)
	// Output:
	// before anyone is a member: worker/0 is not a member
	// a member's push is accepted: true
	// it is held when it comes again: true
	// a commit of a smaller fence counts: false
	// apply step 1
	// applied, and version 0 is the one to read
	// publish version 1
}
