// Package object keeps checkpoints in an object store, as package vfs keeps them on a disk. Begin
// with FS, which makes a vfs.FS of a Store; Open and OpenMemory return stores.
//
// An object store has no files that grow: an object appears whole, at once and durably, or not at
// all. A file system can do more, but a checkpoint needs no more, since its files are written once
// and never changed. In FS, a file that was created appears under its name when it is synced. A
// manifest is published with one request, where a disk needs a temporary file, a sync and a link.
//
// # What a store must do
//
// Create must refuse a name that exists. If several clients create one name at the same time,
// exactly one may succeed. This keeps two writers apart. S3 and Azure call it a conditional write
// (If-None-Match: *), Google a precondition (ifGenerationMatch=0). A store that ignores the condition
// would let one writer silently replace what another has published, as Google's S3 interface does.
// FS.Probe finds that out before a run begins. The next List and Read must see what was created, as
// all of these stores guarantee since 2020.
//
// # Answers that do not arrive
//
// A request may be carried out and its answer lost. Reading or removing twice does no harm.
// Creating twice is refused the second time. So after a request with an unknown outcome, FS
// compares: an object with the same bytes is the one that it wanted to create. Requests that fail
// are tried again for some seconds, with a pause that doubles each time. Then the error is ErrAway,
// the save has failed, and training goes on.
//
// # Limits
//
// An object has at most 10,000 parts of PartBytes, so a segment has at most 156 GiB; larger shards
// need more servers. Parts of an upload that was never completed cost storage: docs/checkpoints.md
// says how a bucket gets rid of them.
package object
