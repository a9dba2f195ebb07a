// Package ckpt saves and restores checkpoints: a log of chunks with manifests, in which no file is
// ever overwritten. Begin with Writer.Save and PublishRun, which save, and with Restore and
// RestoreRunning, which restore.
//
// A training run must be able to go on after a crash at any instruction, and on any number of
// shards. So a checkpoint consists of files that are written once and never changed:
//
//	DIR/segment/…    chunks: one file for each save of each shard
//	DIR/shard/…      shard manifests: where the newest saved value of each chunk of one shard lies
//	DIR/manifest/…   run manifests: the shard manifests that together are the whole model at one step
//	DIR/line/…       claims: which run a line belongs to
//	DIR/tmp/…        manifests on their way to being published
//
// DIR is a folder of a file system, or a prefix in an object store (package object).
//
// A server saves its shard with a Writer. When the conductor has heard from all servers, it makes
// the full checkpoint exist with PublishRun. Each file is synced before another file names it. A
// manifest appears under its name in one atomic operation, which fails if the name exists.
//
// # Invariants
//
//   - Everything that a published manifest names is durable. It stays until newer checkpoints have
//     replaced it: Compact removes manifests before the files that they name.
//   - After a crash, the newest checkpoint (Newest) is the old one or the new one, whole.
//   - Every byte of every file is covered by a CRC32C or has one allowed value. Values with a wrong
//     checksum are never returned. Verify finds a wrong byte anywhere and names its file.
//   - Every file of a line belongs to one run (Take). If several runs are given one directory, only
//     one of them can save there, and none reads what another has saved since it began.
//   - Chunks are found by number, so a checkpoint of two shards restores on three.
//
// # Full and partial
//
// A full restore (Restore) reads run manifests only: all chunks of one step. A save of a few chunks
// (SCAR, "Fault Tolerance in Iterative-Convergent Machine Learning", Qiao et al. 2019, section 4)
// publishes a shard manifest that names the newest value of each chunk, each of its own step.
// RestoreRunning returns those values after the loss of a shard. The optimizer's step count is kept
// with each chunk, because it differs between chunks after a partial restore.
//
// # Sizes
//
// Save and Restore hold three or four buffers of a megabyte or two, whatever the size of the shard:
// one is written or read while another is encoded or verified. From an object store, Restore and
// Verify hold eleven of 4 MiB, as eight requests are under way. Disk use is bounded. Compact keeps
// the newest n full checkpoints (2 by default) and the newest values of each shard, and removes
// whole segments.
//
// The package makes no decisions, and its calls leave no goroutines behind. docs/formats.md
// describes every byte.
package ckpt
