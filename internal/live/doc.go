// Package live runs a cluster of the real shells of packages server and worker in one process, over
// gRPC on loopback. Checkpoints are in memory, and the test makes the views. Everything is real
// except the processes. Its tests compare what a cluster comes to, through every kind of failure,
// with a loop that does the same: to the last bit where the contract promises that.
package live
