// Package worker is the worker process: it reads parameters, computes a gradient, pushes it, and
// begins again. Run does all of this; begin reading there, then at worker.session and worker.turn,
// which is one iteration of the loop.
//
// A worker decides nothing about the run. On the version of the parameters that it holds, it
// computes the gradient that the push id names. It sends the bytes to the head of every shard. When
// all heads have received them, it sends a ticket to the conductor. It goes on when the conductor
// has said what became of the push.
//
// # Pace
//
// Config.Pace says how a worker keeps in step with the others. A push is open while the worker does
// not know its fate. The worker begins another gradient when it has fewer open pushes than its
// credit. If it has already pushed a gradient on its version, the next gradient has the next
// sequence number, and so another batch. There are three ways to behave when newer parameters are
// released while the worker computes:
//
//   - interrupt: as soon as the gradient can no longer be counted, its context ends, and the worker
//     reads the newest version. A model that cannot stop inside a batch finishes it in vain.
//   - wait: the worker fetches newer versions into a second buffer while it computes. When the
//     gradient is finished, it goes on with the newest of them at once.
//   - pull: the worker asks for newer parameters when the gradient is finished.
//
// In all three, a gradient that is known to be too old is thrown away and never pushed. The
// conductor gets a ticket without views for it, so that the effort is counted as late. To begin a
// gradient, a worker needs no permission beyond the answers that it waits for anyway: to its hello,
// or to its push. A conductor that wants to hold a worker back does not answer.
//
// With Pace.Prefetch, a worker needs the version after its own in any case. It asks for that version
// when it sends its ticket, may get it before it is released, and uses it when the conductor has said
// that it is.
//
// # Overlap of computing and sending
//
// Config.Layers connects Gradient with the network. Frames of a large gradient are sent as their
// values become final. Gradient begins when the first frames of a version have come from every
// shard, all of the same version; later frames arrive while it computes. The bytes sent and the
// parameters used are the same as without Config.Layers. If a gradient is given up, heads may have
// some of its frames. They free these frames when they can no longer be counted. If the frames lie
// in shared memory, the worker completes the push first: the answer to it says that the head no
// longer reads that memory.
//
// # Codecs
//
// With a codec, the gradient is encoded frame by frame, together with the residual of earlier
// gradients (package compress). Each frame is sent while the next is encoded. The worker adopts the
// new residual when the conductor says that the push was counted, and takes the old one back when
// the push was refused. Until then it keeps the encoded bytes, because they are no longer a
// function of the push id alone. A worker that connects again on the same line repeats its open
// tickets, waits for the answers as it would have done, and sends again what some head may not
// have. On a line that keeps the one before, the residual stays; on any other line the worker begins
// without one.
//
// # Outages
//
// With Pace.Continue, a worker whose session breaks goes on computing on the parameters that it
// has, until the next session has read a version. It keeps these gradients (package kept), and
// offers them before its next gradient. A gradient whose ticket was sent is never offered again.
// With kintsugi.KeepLocal, the worker trains on by itself meanwhile. If the next line keeps the one
// before, the worker pushes the result on that line.
//
// # Failures
//
// A gradient is a pure function of the parameters and its push id. So a worker that loses a
// connection connects again, reads the newest version and sends whatever is asked for; repeated
// pushes and tickets count once. A worker that dies loses its uncounted gradients and nothing else.
// After a partial restore, Config.Reconcile tells an algorithm that can repair lost chunks which
// ones they are.
package worker
