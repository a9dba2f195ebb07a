// Package conductor is the one decision-maker of a run: it counts tickets, commits steps, releases
// versions, asks for checkpoints and admits workers.
//
// It is a pure core. Events go in through its methods, together with the time; what it owes the world
// comes out of Ready and must be carried out in field order. It owns no socket, clock or tensor, so that
// the same code runs under virtual time.
//
// # A step
//
//	ticket   a worker's gradient is held by every head
//	commit   the tickets in agg.Round make a step: every shard is told which pushes it counts
//	stable   a shard has applied it on its whole chain
//	released every shard is stable: the version may be read, and only now is the next step decided
//
// Commit t+1 is sent only when all shards are stable at t, so shards never differ by more than one step.
// That is what lets a take-over find out where the run stands by asking the shards alone.
//
// # Taking over
//
// A new conductor takes every shard with a fence larger than any before and learns the released and
// applied steps and the commit records of the last two. It re-sends what some shard lacks before it
// decides anything. What the shards answer counts; a conductor has no memory of its own to trust.
//
// Where the line goes on in another view, the head of a shard may have died with the gradients of
// the open step. If a shard does not know of that step it was stable nowhere as a whole: it is
// decided anew, and the shards that have applied it go back to the released version, which they
// hold.
//
// # Membership
//
// A worker is a member when every shard has promised to void the pushes of its slot's earlier lives.
// The promise travels on the same ordered stream as commits: a shard never voids a push that a commit
// names, and a push of an earlier life never counts once a later one is admitted.
//
// A worker whose stream broke says hello again and starts from the newest version: what it pushed before
// and has no open ticket for is void, on the shards as well.
package conductor
