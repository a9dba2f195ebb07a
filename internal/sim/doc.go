// Package sim runs clusters inside one process, so that a test can look at every part of them and kill
// any of them at a chosen moment.
//
// Live runs the real shells of package server and worker over real gRPC on loopback, with checkpoints in
// memory and views made by the test: everything but the processes.
package sim
