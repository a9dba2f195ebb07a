// Package shard decides what a replica of one shard may do: which pushes it holds, which commits it
// applies, and which version may be read. Begin with Replica and Ready: events go in through
// Replica's methods, and decisions come out of Ready.
//
// It is a pure core: it sees ids and steps, never bytes. The shell in package server receives the
// bytes, runs the kernel and serves the streams. It reports to this package, and carries out what
// Ready returns in the order of its fields.
//
// Invariants, each of which guards against a sequence of events that breaks the simpler rule:
//   - a commit is applied only under the fence that the replica has promised: a superseded
//     conductor can change nothing;
//   - the applied step is the released one or the one after it: shards of a run never differ by
//     more than one step;
//   - a step is applied once for each fence under which it was decided, however often its commit
//     arrives; the answer is kept for a repetition;
//   - the pushes that a commit names are held until the step is released, even if their worker has
//     left;
//   - an answer is true of every replica behind in the chain (package chain). If the replicas
//     behind have copies, a version that is due is stable only when the replica after has it. So
//     the death of a head costs fewer released steps than lie between two copies;
//   - a replica that may lack released steps becomes no head;
//   - a version is offered before it is released only if the present conductor has decided its
//     step, which nobody can then decide anew without a Take that ends the offer;
//   - a commit that was foreseen counts for nothing until the commit itself has come and is the
//     same;
//   - a push that is not countable is refused and freed. So a dead worker's bytes never count, and
//     a faulty worker cannot fill the memory.
package shard
