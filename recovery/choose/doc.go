// Package choose decides how a run should survive failures, by the cost. Begin with Choose.
//
// Each way to survive has a cost all the time and a cost at each failure. The cost all the time is
// seconds in each step: a replica is sent each step, the state outside the process is written, the
// running checkpoint is saved. The cost at a failure is the seconds until steps go on, and the
// seconds in which steps are made again. Both are shares of the time of the run:
//
//	tax + Σ over kinds of failure (seconds lost at one / seconds between two)
//
// While seconds are lost, everything that was rented is paid for. So the cost of a way per hour is
// that share times the price of all machines, plus the price of the bytes that replicas are sent.
// The cheapest way is chosen.
//
// The core is pure: measurements and prices are arguments. Numbers that are not known have a
// default, and the reason says so. A rate of failures is not taken for zero only because nothing
// has failed yet: see [Rate].
package choose
