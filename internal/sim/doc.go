// Package sim runs clusters inside one process, so that a test can look at every part of them and break
// any of them at a chosen moment.
//
// Live runs the real shells of package server and worker over real gRPC on loopback, with checkpoints in
// memory and views made by the test: everything but the processes.
//
// Run runs a cluster under virtual time, thousands of them in a second: the pure cores (conductor, shard,
// agg, roster) as they are, and around them the shells as state machines on one heap of events. A seed says
// what the run is and what goes wrong in it; the same seed gives the same run to the last event.
//
// # What goes wrong
//
// Streams keep their order, as connections do, and break anywhere: what is on the way is lost, each end
// notices in its own time, and the next stream may be up before. Links delay and block, one way or both.
// Processes die and come back with nothing, or stand still and go on as if nothing had been. A server may get
// a second life while the first lives; a conductor may be superseded without knowing. The registry (in a run:
// etcd) is away, or does what it is asked and loses the answer; leases lapse. The store is slow, full or
// failing. Workers send pushes and tickets twice.
//
// # What must hold
//
// An oracle computes every released version from the counted sets alone, on whole vectors; a chunk is a
// hash, so that whatever is left out, doubled, weighed or ordered otherwise shows in all that follows. The
// promises are the constants in check.go, each checked at every event that could break it. A failure is a
// *Violation: the promise, what happened, and the command that shows it again.
//
// Workers whose gradients are encoded (Config.Codec) run the real error feedback and the real book
// of fates on whole numbers: what each keeps back is compared, bit by bit, with what was left out
// of the gradients that were counted.
//
// Limitation: workers whose gradients are not encoded have one push in flight. The shells are
// written after those of the product, not shared with them; Live and the tests of the shells see to
// those.
package sim
