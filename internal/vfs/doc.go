// Package vfs is the file system as a checkpoint sees it, made so that a test can crash it.
//
// Code that must survive a power failure cannot be tested on a real disk: the page cache hides every
// missing fsync. So all durable state goes through FS, a small interface with three implementations:
//
//   - OS is the disk.
//   - Mem is a disk in memory that keeps apart what is synced and what is not. Crash throws away an
//     arbitrary part of the latter: the end of a file, sectors in it, names in a directory.
//   - Injector wraps another FS and fails, or cuts off, chosen operations.
//
// The interface has no way to overwrite data: Create refuses a name that exists, writes append, Link
// refuses a name that exists. Only Rename and Remove take something away.
//
// # Durability
//
// Data of a file is durable after File.Sync. A name (created, linked, renamed, removed) is durable after
// SyncDir of its directory. A file whose name is not durable is lost in a crash, even if its data was
// synced. MkdirAll alone is durable when it returns.
//
// Names are slash-separated paths. Errors are of type *fs.PathError or *os.LinkError and can be tested
// with errors.Is for fs.ErrNotExist, fs.ErrExist and the errors of package syscall.
package vfs
