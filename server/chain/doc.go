// Package chain decides what a replica owes its neighbours in the chain of its shard.
//
// It is a pure core. The head of a chain obeys the conductor; every other replica obeys the one
// before it in the same way, and answers it in the same way. What a replica obeys it hands down,
// with the summed gradient in place of the gradients; what it answers it keeps until the one after
// it has answered the same. So an answer that leaves the head is true of the whole chain: the tail
// has promised the fence, the tail has applied the step. A head that was removed from its chain
// gets no more answers from behind, and gives none.
//
// A replica that comes into a chain has nothing yet. The one before it sends it a snapshot and
// everything since, and goes on as if it were not there, until it has caught up: from then on its
// answers are needed, and it is told so. Only when it has been told is it whole. One that is not
// must never become a head: steps may have been released that it has not seen.
//
// Both sides forget what they know of each other when their connection breaks or the view changes. Whoever
// connects says where it stands, and is sent what it lacks (package shard).
package chain
