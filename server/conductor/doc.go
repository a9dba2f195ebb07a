// Package conductor is the one decision-maker of a run: it counts tickets, commits steps, releases
// versions, asks for checkpoints and admits workers. Begin with Conductor: events go in through its
// methods, and decisions come out of Ready.
//
// It is a pure core. Each event comes with the time at which it happened. The caller must carry out
// what Ready returns in the order of its fields. The package has no socket, clock or tensor, so the
// same code runs in virtual time.
//
// # A step
//
//	ticket   every head holds a worker's gradient
//	commit   the tickets in agg.Round make a step: every shard is told which pushes it counts
//	stable   a shard has applied the step on its whole chain: its head says so, or the head says that it
//	         waits for the replica after it, and that one says so
//	released every shard is stable: the version may be read, and only now is the next step decided
//
// Commit t+1 is sent only when all shards are stable at t, so shards never differ by more than one
// step. Therefore a conductor that takes over can find out where the run stands by asking the
// shards alone.
//
// # Taking over
//
// A new conductor takes every shard with a fence larger than any before, and learns from each the
// released and applied steps and the records of the last two commits. It sends again what some
// shard lacks before it decides anything. It relies on the answers of the shards, and on no memory
// of its own.
//
// If the line goes on in another view, the head of a shard may have died with the gradients of the
// open step. A step that some shard does not know of cannot be released anywhere. It is decided
// anew, and the shards that have applied it go back to the released version, which they still hold.
//
// # Membership
//
// A worker becomes a member when every shard has promised to void the pushes of its slot's earlier
// lives. The promise travels on the same ordered stream as commits. So a shard never voids a push
// that a commit names, and a push of an earlier life never counts once a later life is admitted.
//
// A worker whose stream broke says hello again and starts from the newest version. Its earlier
// pushes are void, on the shards too, unless their tickets are open.
package conductor
