// Package roster decides which view of the servers counts: who holds which shard, and from which step a line starts.
//
// It is a pure core: the shell (recovery.Coordinator) tells it who is present, which view counts and which
// checkpoint is newest, and puts the views that it decides on. Time and everything else from outside are
// arguments; each decision comes with its reason in words.
//
// # The rules
//
// The first view is made when all servers have registered. It stands as long as everybody it names is
// present in the same life. A server that is away holds the view up: with one replica nobody else has its
// shard. When it is back as another incarnation, what it held is gone, and a full restore starts a new line:
// on one line every step is committed once, and going back would commit some of them again.
//
// A decision depends on what is, not on how it came about: the view that counts, the lives that are present,
// and the revisions at which the one was put and the others filled their places. So a coordinator that
// starts late, or takes over from one that died, decides as the other would have.
//
// Invariants of the views of a run, in the order in which they are put:
//
//   - Number, Line and Fence grow strictly.
//   - A view names, for each server, a life that was present when it was decided.
//   - Shard i has its head on server i and its successors on the servers after it, around the ring; the
//     conductor is the head of shard 0.
package roster
