// Package launch runs a cluster of real processes on one machine and does to them what faults say.
//
// Training on a laptop is the same thing as training on a cluster: a coordinator, servers and workers
// that are processes of the one binary. The launcher starts them, writes down what they print, starts
// those again that die, kills, stops and slows those that a fault names, and leaves none behind, not
// even when it is itself killed.
//
// Ideas, one per file:
//
//	fault     what --fault says, and how it is read
//	schedule  which actions are due at a step or a time (pure)
//	restart   whether and when a dead process is started again (pure)
//	cluster   the processes; one goroutine owns them all
//	inject    carries out a schedule on a cluster
//	slow      tells a worker to compute slower
//	meter     what a progress line says, from the events of a run (pure)
//	progress  draws the line on a terminal, logs it elsewhere
//
// What a run did is recorded by the package record and drawn by the package report.
package launch
