// Package cost computes the cost of a run: node-seconds, how many of them did useful work, what
// protection cost while nothing failed, what failures cost, and all this in money. Begin reading at
// BillOf.
//
// The package is pure: it computes a Bill from a Usage, which package record adds up from the
// events of a run, and Prices. A node is the machine of one place of the run: of the coordinator, a
// server or a worker. If several places share a machine, the bill is that of a run in which they do
// not.
//
// There are two taxes. They are kept separate, because one can be traded for the other:
//
//	steady   the cost of protecting the run while nothing fails: steps that wait for the checkpoint, and the
//	         share of the servers that holds copies. It grows with the length of the run.
//	failure  the cost of failures: all nodes from a failure to the next step, repeated steps, and the steps by
//	         which a partial recovery falls behind. It grows with the number of failures.
package cost
