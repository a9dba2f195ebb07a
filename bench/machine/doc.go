// Package machine measures what one machine does, in one process: kernels, codecs, gradients,
// checkpoints, and the exchange between workers and servers. Each operation stands beside what the
// memory, the disk or the sockets of the same machine can do in the same rounds. Each file answers
// one question, which stands at its beginning.
package machine
