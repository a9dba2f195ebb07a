package vfs

import "io"

// File is an open file. ReadAt is safe for concurrent use; everything else has one user at a time.
type File interface {
	// Write appends. After an error some of the bytes may have been written.
	io.Writer

	// ReadAt reads at a byte offset, with the contract of io.ReaderAt.
	io.ReaderAt

	// Sync makes everything that was written durable. After an error the unsynced data of the file
	// is undefined and stays so: a later Sync proves nothing, so abandon the file.
	Sync() error

	Close() error
}

// Info describes a file or a directory.
type Info struct {
	Size      int64 // bytes; 0 for a directory
	Directory bool
}

// FS is a file system. Implementations are safe for concurrent use.
type FS interface {
	// Create creates an empty file for appending. If the name exists it returns an fs.ErrExist: no
	// file is ever truncated.
	Create(name string) (File, error)

	// OpenAppend opens an existing file for appending.
	OpenAppend(name string) (File, error)

	// Open opens an existing file for reading. Its Write returns an error.
	Open(name string) (File, error)

	// Link gives a file another name. If the new name exists it returns an fs.ErrExist: of several
	// who link to one name, exactly one succeeds. Whether the file keeps its old name depends on
	// the file system.
	Link(oldName, newName string) error

	// Rename moves a file atomically and replaces the file that had the new name, if any.
	Rename(oldName, newName string) error

	// Remove removes a name. The file is freed with its last name.
	Remove(name string) error

	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)

	// MkdirAll creates a directory and its missing parents, durably. An existing directory is no
	// error.
	MkdirAll(dir string) error

	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error

	// Stat describes a file or a directory.
	Stat(name string) (Info, error)
}

// Distant is a file system whose operations wait for answers of another machine: several at once take
// hardly longer than one.
type Distant interface {
	// AtOnce returns how many reads are worth having on their way at once, and how long each should
	// be at least where much is to be read.
	AtOnce() (reads, bytes int)
}

// Sized is a file that knows its length, where asking for it would take another answer.
type Sized interface {
	Size() int64 // bytes
}

// Publisher is a file system that can make a whole file appear under its name at once and durably,
// without a temporary file, a sync and a link. If the name exists, Publish returns an fs.ErrExist.
// After any other error the file may or may not exist.
type Publisher interface {
	Publish(name string, content []byte) error
}
