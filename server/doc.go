// Package server is the parameter server itself: it receives gradients, applies steps, publishes
// versions and, on the server that heads shard 0, runs the conductor. Begin with Server.Run and
// Config, then replica (one shard on this server) and conducting (the conductor's streams).
//
// This package is a shell: it has the sockets, clocks, locks and tensors, and carries out what pure
// cores decide. The cores are agg (which gradients make a step), conductor (commits, releases,
// checkpoints, members), shard (what a replica holds, applies and publishes), chain (what the
// replicas of a shard send one another) and reach (which servers are out of reach).
//
// # A step
//
//  1. push: a worker sends encoded chunks to the heads. A head checks CRC, size and finiteness
//     before it answers.
//  2. received: the head holds the verified bytes. When all heads have said so, the worker sends
//     its ticket to the conductor. It repeats the ticket to each new conductor until the push is
//     released or refused.
//  3. commit: the conductor names the counted pushes, their weights, the scale and the optimizer's
//     scalars. Shards compute none of them.
//  4. apply: the kernel reads the counted pushes and the released version, and writes another
//     version. It never touches a version that can be read. Where a step counts one fresh gradient
//     of every member, shards foresee the commit (package shard): they make each chunk as soon as
//     it has landed from all counted pushes. The commit confirms the result, or the result is
//     thrown away. Nobody sees it before that.
//  5. stable: the shard tells the conductor, and sends the by-products of the step. The replica after
//     the head, if there is one, tells the conductor too.
//  6. released: every shard is stable. Only then may the version be read, published and saved; only
//     then is the memory of its pushes freed; and only then is the next step decided. A worker
//     that waits for this word may be sent the version when it is applied (offer, in versions).
//
// # What survives a failure
//
// With several replicas of each shard, the head sends the scaled sum of a step down its chain, and
// every replica applies it with the same kernel, so replicas are equal to the bit. A step is stable
// when the tail has applied it. When a server dies, the next view goes on with the other servers,
// on the same line, at the step where they stand. No server loads anything. The new conductor asks
// the shards what was decided, and decides anew a step whose gradients died with their head. A
// server that comes back follows the tails: it receives a snapshot and then the updates after it,
// while steps go on.
//
// With Config.Outside, a shard also lies outside its process. The next life of a killed server
// finds it there, and the line goes on in a view that continues it. The gradients that the heads
// held may be gone, so a step that not every shard has applied is decided anew.
//
// Otherwise, with one replica, a shard lives in its process, and is lost when its server is killed.
// The coordinator then starts a new line, on which every shard restores the newest checkpoint. In a
// view that keeps the earlier lines, only the lost shard is restored, and the others begin the new
// line with what they have. A broken connection loses nothing: pushes, tickets, commits and
// releases are sent again, and each counts once.
//
// # Who owns what
//
// Each replica, and the conductor, has a loop that owns its state. Other goroutines hand the loop
// closures, and never block it. The bytes of a push belong to the goroutine of its stream until the
// push has landed, and then to the replica. A step that is foreseen reads single chunks before
// that, as soon as they have landed; nobody writes those any more. A version belongs to its readers
// as long as they pin it. A step never waits for a reader: if a buffer is still being read, the
// step takes another one. So memory is bounded by two versions, and one more for each stream that
// reads. With memory outside the process, the optimizer's state of versions lies there, in banks that
// saves pin: see Outside.
package server
