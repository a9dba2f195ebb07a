// Package shard decides what a replica of one shard may do: which pushes it holds, which commits it
// applies, and which version may be read.
//
// It is a pure core: it sees ids and steps, never bytes. The shell in package server lands the bytes,
// runs the kernel and talks to the streams; it reports here and carries out Ready in field order.
//
// Invariants, each guarding against a sequence of events that breaks the simpler rule:
//   - a commit is applied only under the fence the replica has promised: a superseded conductor can
//     change nothing;
//   - applied is released or released+1: shards of a run never differ by more than one step;
//   - a step is applied once for each deciding fence, however often its commit arrives; the answer is
//     kept for a repetition;
//   - the pushes a commit names are held until the step is released, whoever has left meanwhile;
//   - what is answered is true of every replica behind in the chain (package chain);
//   - a replica that may lack released steps becomes no head;
//   - a commit that was foreseen counts for nothing until the commit itself has come and says the same;
//   - a push that is not countable is refused and freed, so that a dead worker's bytes never count and a
//     broken one cannot fill the memory.
package shard
