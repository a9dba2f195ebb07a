// Package cost says what a run takes: node-seconds, how much of them did useful work, what
// protecting it took while nothing failed, what failures took, and all that in money.
//
// It is pure: a Usage, which package record adds up from the events of a run, and Prices go in; a
// Bill comes out. A node is the machine of one place of the run: of the coordinator, of a server,
// of a worker. Where several places share a machine the bill is that of a run in which they do not.
//
// The two taxes are kept apart, because they are traded for one another:
//
//	steady   what protecting the run takes while nothing fails: steps that wait for the checkpoint, and the
//	         share of the servers that holds copies. It grows with the length of the run.
//	failure  what failures take: all nodes from a loss to the next step, steps that are done again, and those by
//	         which a partial recovery falls behind. It grows with the number of failures.
package cost
