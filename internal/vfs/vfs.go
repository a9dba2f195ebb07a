package vfs

import "io"

// File is an open file. It is safe for concurrent ReadAt; everything else has one owner.
type File interface {
	// Write appends. After an error some of the bytes may have been written.
	io.Writer

	// ReadAt reads at a byte offset, with the contract of io.ReaderAt.
	io.ReaderAt

	// Sync makes everything written durable. After an error the file's unsynced data is undefined and
	// stays so: calling Sync again proves nothing, so abandon the file.
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
	// Create creates an empty file for appending. It returns an error that is fs.ErrExist if the name
	// exists: no file is ever truncated.
	Create(name string) (File, error)

	// OpenAppend opens an existing file for appending.
	OpenAppend(name string) (File, error)

	// Open opens an existing file for reading; Write returns an error.
	Open(name string) (File, error)

	// Link gives the file a second name. It returns an error that is fs.ErrExist if the new name
	// exists: of several who link to one name, exactly one succeeds.
	Link(oldName, newName string) error

	// Rename moves a file, replacing what had the new name, atomically.
	Rename(oldName, newName string) error

	// Remove removes a name. The file itself goes with its last name.
	Remove(name string) error

	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)

	// MkdirAll creates a directory and its missing parents, durably. It is no error if dir exists.
	MkdirAll(dir string) error

	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error

	// Stat describes a file or a directory.
	Stat(name string) (Info, error)
}

// Publisher is a file system on which a whole file appears under its name at once and durably, without a temporary
// file, a sync and a link. Publish returns an error that is fs.ErrExist if the name exists. After any other error the
// file may exist or not.
type Publisher interface {
	Publish(name string, content []byte) error
}
