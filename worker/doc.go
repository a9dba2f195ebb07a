// Package worker is the shell of a worker: batch, gradient, push, ticket, pull, and again.
//
// A worker decides nothing about the run. It computes the gradient that its push id names on the version
// it holds, sends the bytes to the head of every shard, and, when all heads have them, a ticket to the
// conductor. It goes on when the conductor says what became of the push.
//
// # What survives
//
// A gradient is a pure function of the parameters and its push id. So a worker that loses a connection
// connects again, reads the newest version and sends whatever is asked for; repeated pushes and tickets
// count once. A worker that dies loses its uncounted gradient and nothing else.
package worker
