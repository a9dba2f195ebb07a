// Package vfs is the file system through which checkpoints are written and read. Begin with [FS].
//
// Code that must survive a power failure cannot be tested on a real disk: the page cache hides
// every missing fsync. So all durable state goes through FS, a small interface that a test can
// crash. It has three implementations:
//
//   - OS is the disk.
//   - Mem is a disk in memory that separates synced from unsynced data. Crash throws away an
//     arbitrary part of the unsynced data: the end of a file, sectors in it, names in a directory.
//   - Injector wraps another FS and makes chosen operations fail, or write only a part.
//
// The interface has no way to overwrite data: Create refuses a name that exists, writes append, Link
// refuses a name that exists. Only Rename and Remove take something away.
//
// # Durability
//
// The data of a file is durable after File.Sync. A name (created, linked, renamed or removed) is
// durable after SyncDir of its directory. A crash loses a file whose name is not durable, even if
// its data was synced. Only MkdirAll is durable as soon as it returns.
//
// Names are slash-separated paths. Errors are of type *fs.PathError or *os.LinkError and can be tested
// with errors.Is for fs.ErrNotExist, fs.ErrExist and the errors of package syscall.
package vfs
