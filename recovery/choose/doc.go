// Package choose decides how a run should survive failures, by what it costs.
//
// Each way to survive costs something all the time and something at each failure. What it costs all
// the time are seconds of each step: a replica is sent each step, memory outside the process is
// written, the running checkpoint is saved. What it costs at a failure are seconds until steps go
// on, and seconds for steps that are done again. Both are shares of the time of the run:
//
//	tax + Σ over kinds of failure (seconds lost at one / seconds between two)
//
// and while seconds are lost everything that was rented is paid for. So the share times the price
// of all machines, and the price of the bytes that replicas are sent, is what a way costs in an
// hour; the least is chosen.
//
// The core is pure: what was measured and what things cost are arguments. Numbers that nobody knows
// have a default, which is said in the reason. Rates are not taken for zero because nothing has
// failed yet: see [Rate].
package choose
