// Package sim runs clusters under virtual time, thousands of them per second, to break them at any
// moment and look at every part. Begin reading at Run. It uses the pure cores (conductor, shard,
// agg, roster) unchanged. Around them, the shells are state machines on one heap of events. A seed
// determines the run and all its faults; the same seed gives the same run to the last event.
//
// # Faults
//
// Streams keep their order, as connections do, and may break at any point: messages on the way are
// then lost, each end notices at its own time, and the next stream may exist before that. Links are
// delayed and blocked, one way or both. Processes die and come back without their state, or stop
// and then continue as if nothing had happened. A server may get a second life while the first is
// still alive, and a conductor may be superseded without knowing it. The registry (etcd in a real
// run) is unavailable, or carries out a call but loses the answer; leases lapse. The store is slow,
// full or failing. Workers send pushes and tickets twice.
//
// # Promises
//
// An oracle computes every released version from the counted sets alone, on whole vectors. A chunk
// is a hash, so any gradient that is left out, counted twice, or weighted or ordered differently
// changes all later versions. The promises are the constants in check.go; each is checked at every
// event that could break it. A failure is a *Violation: the promise, what happened, and the command
// that repeats the run.
//
// Workers with encoded gradients (Config.Codec) run the real error feedback and the real book of
// fates on integers. The residual of each worker is compared, bit by bit, with what was left out of
// the gradients that were counted.
//
// Workers may push a gradient while they compute it (Config.Flows), and give it up when heads have
// parts of it.
//
// Limitation: the simulated shells imitate the shells of the product and share no code with them.
// Package live and the tests of the shells cover those.
package sim
