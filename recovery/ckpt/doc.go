// Package ckpt keeps the running checkpoint: a log of chunks with manifests, never a file that is overwritten.
//
// A training run must be able to go on after any crash, at any instruction, on any number of shards. So
// a checkpoint is made of files that are written once and never changed:
//
//	DIR/segment/…    chunks: one file for each save of each shard
//	DIR/shard/…      shard manifests: where the newest saved value of each chunk of one shard lies
//	DIR/manifest/…   run manifests: the shard manifests that together are the whole model at one step
//	DIR/line/…       claims: which run a line belongs to
//	DIR/tmp/…        manifests on their way to being published
//
// DIR is a folder of a file system, or a prefix in an object store (package object).
//
// A server saves its shard with a Writer; the conductor, told of all of them, makes the full checkpoint
// exist with PublishRun. Each file is synced before another one names it, and a manifest appears under its
// name in one atomic operation that fails if the name exists.
//
// # Invariants
//
//   - Everything a published manifest names is durable, and stays until newer checkpoints are: Compact
//     removes manifests before what they name.
//   - A crash leaves the old checkpoint or the new one (Newest), whole.
//   - Every byte of every file is covered by a CRC32C or has one allowed value. Values whose checksum
//     does not match are never handed out; Verify finds a wrong byte anywhere and names its file.
//   - Every file of a line is of one run (Take). Of several runs that are given one directory one
//     saves there, and none reads what another has saved since it began.
//   - Chunks are found by number, so a checkpoint taken with two shards restores on three.
//
// # Full and partial
//
// A full restore (Restore) reads run manifests only: one step, all chunks. A save of a few chunks (SCAR,
// "Fault Tolerance in Iterative-Convergent Machine Learning", Qiao et al. 2019, section 4) publishes a
// shard manifest that names the newest value of each chunk, of whatever step; RestoreRunning gives those
// back after the loss of a shard. The optimizer's step count is kept with each chunk, for it differs
// between chunks after a partial restore.
//
// # Sizes
//
// Save and Restore hold three or four buffers of a megabyte or two, whatever the size of the shard:
// one is written or read while the other is encoded or verified. Disk use is bounded: Compact keeps
// the newest n full checkpoints (2 unless told otherwise) and the newest values of each shard, and
// what it removes is whole segments.
//
// The package decides nothing, and what it starts has ended when a call returns. docs/formats.md describes every byte.
package ckpt
