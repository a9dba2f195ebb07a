// Package worker is the shell of a worker: batch, gradient, push, ticket, pull, and again.
//
// A worker decides nothing about the run. It computes the gradient that its push id names on the version
// it holds, sends the bytes to the head of every shard, and, when all heads have them, a ticket to the
// conductor. It goes on when the conductor says what became of the push.
//
// # Pace
//
// How a worker keeps in step with the others is its Pace. It begins another gradient when it has credit: fewer
// pushes than that whose fate it does not know. On a version that it has pushed a gradient on already, the
// next one has the next sequence number, and so another batch. What it may do when newer parameters appear
// while it computes:
//
//   - interrupt: as soon as the gradient can no longer be counted its context ends, and the worker reads the
//     newest version. A model that cannot stop inside a batch finishes it for nothing.
//   - wait: newer versions are fetched into a second buffer beside the gradient, and when that is finished
//     the worker goes on with the newest at once.
//   - pull: when the gradient is finished, the worker asks.
//
// A gradient that is known to be too old is thrown away, never pushed, in all three; the conductor gets a ticket
// without views, so that the effort is counted as late. A worker needs no permission to begin but what it
// waits for anyway: an answer to its hello, or to its push. A conductor that wants to hold it back is silent.
//
// # What is done at once
//
// Config.Layers connects Gradient with the wire: frames of a large gradient go out as their values
// become final, and Gradient begins when the first frames of a version have come from every shard,
// all of that version, while later ones land beside it. What is sent and what is computed on is the
// same as without. A gradient that is given up has frames at heads that free them when they can be
// counted no more; where the frames lie in memory the push is brought to its end first, since its
// answer says that nobody reads there.
//
// # Codecs
//
// With a codec the gradient is encoded frame by frame, each sent while the next is encoded, with
// what earlier ones left out (package compress). The worker adopts the new residual when the
// conductor says that the push was counted, and takes the old one back when it was refused. Until
// then it keeps the bytes, which are not a function of the id any more. A worker that connects
// again on the same line repeats the tickets that are out, waits for the answers as it would have,
// and sends again what some head may not have; on another line it begins without a residual.
//
// # Outages
//
// With Pace.Continue a worker whose session breaks computes on, on the parameters that it has,
// until the next session has read a version. What it computes it keeps (package kept), and offers
// before its next gradient. A gradient whose ticket was sent is never offered again. With
// kintsugi.KeepLocal what it has learnt goes on on a line that keeps the one before, as a push of
// that line.
//
// # What survives
//
// A gradient is a pure function of the parameters and its push id. So a worker that loses a connection
// connects again, reads the newest version and sends whatever is asked for; repeated pushes and tickets
// count once. A worker that dies loses its uncounted gradient and nothing else. Where only a lost shard came back, an
// algorithm that can make its chunks good is told which they are: Config.Reconcile.
package worker
