// Package launch runs a cluster of real processes on one machine, and injects faults into it. Begin
// reading at Cluster.
//
// Training on a laptop works like training on a cluster: a coordinator, servers and workers, each a
// process of the same binary. The launcher starts these processes, logs what they print, restarts
// those that die, and kills, stops or slows the processes that a fault names. It leaves no process
// behind, even if it is killed itself.
//
// Files, one for each idea:
//
//	fault     the faults of --fault
//	parse     how they are parsed
//	schedule  which actions are due at a step or a time (pure)
//	restart   whether and when a dead process is started again (pure)
//	cluster   the processes; one goroutine owns them all
//	inject    carries out a schedule on a cluster
//	slow      makes a worker compute slower
//	meter     computes the progress line from the events of a run (pure)
//	progress  draws the line on a terminal, logs it elsewhere
//
// Package record records what a run did, and package report draws it.
package launch
