// Package server is the shell of a parameter server: it lands gradients, runs the fused kernel, publishes
// versions, and, on the server that holds the head of shard 0, carries out what the conductor decides.
//
// The decisions are made in the pure cores below it: agg (which gradients make a step), conductor (commit,
// release, checkpoint, membership), shard (what a replica holds, applies and publishes) and chain (what it owes its
// neighbours).
//
// # A step
//
//  1. push: encoded chunks to the heads. The head checks CRC, size and finiteness before it answers.
//  2. received: the head holds the verified bytes. When all heads have said so, the worker sends its
//     ticket to the conductor, and repeats it to each new one until the push is released or refused.
//  3. commit: the conductor names the counted pushes, their weights, the scale and the optimizer's
//     scalars. Shards compute none of them.
//  4. apply: the kernel reads the counted pushes and the released version and writes another one.
//     What is readable is never touched. Where a step counts one fresh gradient of every member,
//     shards foresee its commit (package shard), and chunks are made as they land of all counted
//     pushes. The commit confirms that, or it is thrown away. Nothing of it is seen before.
//  5. stable: the shard tells the conductor, with the by-products.
//  6. released: every shard is stable. Only now may the version be read, published and saved, only now
//     are the bytes of its pushes freed, and only now is the next step decided.
//
// # What survives
//
// With several replicas of each shard the head sends the scaled sum of a step down its chain, and
// every replica applies it with the same kernel: they are equal to the bit. A step is stable when
// the tail has applied it. When a server dies, the next view goes on with the others, on the same
// line, at the step where they stand: nobody loads anything, the new conductor finds out what was
// decided, and a step whose gradients died with their head is decided anew. A server that comes
// back follows the tails, and is sent a snapshot and what happens after it while steps go on.
//
// With Config.Outside a shard lies outside its process as well. The next life of a killed server
// finds it, and the line goes on in a view that continues it; what the heads held of gradients may
// be gone, so that a step that not every shard has applied is decided anew.
//
// Else, with one replica, a shard lives in its process: a killed server's shard is gone, and the coordinator
// starts a new line on which every shard restores the newest checkpoint; or, in a view that keeps the lines before,
// only that one, while the others begin the line with what they have. A broken connection loses
// nothing: pushes, tickets, commits and releases are sent again and count once.
//
// # Who owns what
//
// Each replica and the conductor is one goroutine that owns its state; others hand it closures
// through its inbox and never block it. Bytes of a push belong to its stream's goroutine until they
// have landed, then to the replica; chunks that have landed are read before that by a step that is
// foreseen, and not written any more. A version belongs to its readers as long as they pin it: a
// step that needs a buffer while one is still being read takes another, so that no reader can stop
// training. That bounds memory by two versions and one more for each read stream.
package server
