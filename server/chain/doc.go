// Package chain decides what a replica and its neighbours in the chain of a shard must tell each
// other, and when the replica may answer. Begin with Link, which is a replica's knowledge of the
// replica after it.
//
// It is a pure core. The head of a chain obeys the conductor. Every other replica obeys the replica
// before it in the same way, and answers that one. A replica passes down what it obeys, with the
// summed gradient in place of the gradients. It keeps back its own answer until the replica after
// it has given the same answer. So an answer of the head is true of the whole chain: the tail has
// promised the fence, or the tail has applied the step. A head that was removed from its chain gets
// no more answers from behind, and so gives none.
//
// A replica that comes into a chain has nothing yet. The replica before it sends a snapshot and
// everything after it, and does not wait for its answers until it has caught up, or comes no closer
// (Link.Follows). Once it has caught up its answers are needed, and it is told so. Only then is it
// whole. A replica that is not whole must never become a head, since steps may have been released
// that it has not seen.
//
// Both sides forget what they know of each other when their connection breaks or the view changes.
// The replica that connects says where it stands, and is sent what it lacks (package shard).
package chain
