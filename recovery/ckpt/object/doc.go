// Package object keeps checkpoints in an object store, as package vfs keeps them on a disk.
//
// An object store has no files that grow: an object appears whole, at once and durably, or not at
// all. That is less than a file system gives, and all that a checkpoint needs, for its files are
// written once and never changed. So FS makes a vfs.FS of a Store: a file that was created appears
// under its name when it is synced, and a manifest is published with one request, where a disk
// takes a temporary file, a sync and a link.
//
// # What a store must do
//
// Create must refuse a name that exists, and of several who create one name at the same time
// exactly one may succeed. That is what keeps two writers apart. S3 calls it a conditional write
// (If-None-Match: *); AWS, Google's S3 interface, R2, Ceph, MinIO and versitygw have it. A store
// that ignores the condition would let one writer replace what another has published, and say
// nothing: FS.Probe finds that out before a run begins. What was created must be seen by the next
// List and Read, as is the rule for all of these since 2020.
//
// # Answers that do not arrive
//
// A request may be carried out and its answer lost. Reading or removing twice does no harm.
// Creating twice is refused the second time, so after a request whose outcome is unknown FS
// compares: an object with the same bytes is the one that it wanted to create. Requests that fail
// are tried again for some seconds, each after twice the time; then the error is ErrAway, the save
// has failed, and training goes on.
//
// # Limits
//
// An object has at most 10,000 parts of PartBytes, so a segment at most 156 GiB: use more servers.
// Parts of an upload that was never completed are not seen by anyone and cost their storage: have
// the bucket abort incomplete uploads after a day.
package object
