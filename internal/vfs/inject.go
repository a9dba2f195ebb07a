package vfs

import (
	"fmt"
	"sync"
)

// Kind is a kind of operation.
type Kind string

// The operations, as an Injector counts and names them.
const (
	OpCreate     Kind = "create"
	OpOpenAppend Kind = "open for append"
	OpOpen       Kind = "open"
	OpRead       Kind = "read"
	OpWrite      Kind = "write"
	OpSync       Kind = "sync"
	OpClose      Kind = "close"
	OpLink       Kind = "link"
	OpRename     Kind = "rename"
	OpRemove     Kind = "remove"
	OpList       Kind = "list"
	OpMkdirAll   Kind = "mkdir"
	OpSyncDir    Kind = "sync directory"
	OpStat       Kind = "stat"
)

// Op is one operation that is about to happen.
type Op struct {
	N     int // number of the operation in its Injector, from 0
	Kind  Kind
	Name  string // for Link and Rename, the old name
	Bytes int    // for a read or a write
}

// String returns the operation in words, such as "operation 12: write run/segment/0001, 4096 bytes".
func (o Op) String() string {
	s := fmt.Sprintf("operation %d: %s %s", o.N, o.Kind, o.Name)
	if o.Kind == OpRead || o.Kind == OpWrite {
		s += fmt.Sprintf(", %d bytes", o.Bytes)
	}
	return s
}

// Fault says what happens instead of an operation.
type Fault struct {
	Err     error // what the operation returns, such as syscall.ENOSPC; nil: the operation is carried out
	Written int   // for a write: the number of bytes that reach the file before it fails
}

// Injector passes operations on to another FS, except those that a function chooses to fail. It
// calls the function for one operation at a time. It is safe for concurrent use.
type Injector struct {
	fs     FS
	choose func(Op) Fault

	mu sync.Mutex
	n  int // operations so far; guarded by mu
}

var _ FS = (*Injector)(nil)

// NewInjector returns a file system that asks choose before each operation on fsys.
func NewInjector(fsys FS, choose func(Op) Fault) *Injector {
	return &Injector{fs: fsys, choose: choose}
}

// CrashAfter returns a function for NewInjector that lets n operations happen and makes all later
// ones return ErrCrashed. Mem.Crash then says what is on the disk.
func CrashAfter(n int) func(Op) Fault {
	return func(op Op) Fault {
		if op.N < n {
			return Fault{}
		}
		return Fault{Err: ErrCrashed}
	}
}

// FailAt returns a function for NewInjector that makes operation n fail with err and lets all
// others happen. If operation n is a write, half its bytes are written.
func FailAt(n int, err error) func(Op) Fault {
	return func(op Op) Fault {
		if op.N != n {
			return Fault{}
		}
		return Fault{Err: err, Written: op.Bytes / 2}
	}
}

// Operations returns the number of operations that were requested.
func (i *Injector) Operations() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.n
}

func (i *Injector) next(kind Kind, name string, bytes int) Fault {
	i.mu.Lock()
	defer i.mu.Unlock()
	f := i.choose(Op{N: i.n, Kind: kind, Name: name, Bytes: bytes})
	i.n++
	if f.Err != nil {
		f.Err = pathError(string(kind), name, f.Err)
	}
	return f
}

func (i *Injector) opened(kind Kind, name string, open func(string) (File, error)) (File, error) {
	if f := i.next(kind, name, 0); f.Err != nil {
		return nil, f.Err
	}
	file, err := open(name)
	if err != nil {
		return nil, err
	}
	return &injectedFile{i: i, name: name, file: file}, nil
}

// Create implements FS.
func (i *Injector) Create(name string) (File, error) { return i.opened(OpCreate, name, i.fs.Create) }

// OpenAppend implements FS.
func (i *Injector) OpenAppend(name string) (File, error) {
	return i.opened(OpOpenAppend, name, i.fs.OpenAppend)
}

// Open implements FS.
func (i *Injector) Open(name string) (File, error) { return i.opened(OpOpen, name, i.fs.Open) }

// Link implements FS.
func (i *Injector) Link(oldName, newName string) error {
	if f := i.next(OpLink, oldName, 0); f.Err != nil {
		return f.Err
	}
	return i.fs.Link(oldName, newName)
}

// Rename implements FS.
func (i *Injector) Rename(oldName, newName string) error {
	if f := i.next(OpRename, oldName, 0); f.Err != nil {
		return f.Err
	}
	return i.fs.Rename(oldName, newName)
}

// Remove implements FS.
func (i *Injector) Remove(name string) error {
	if f := i.next(OpRemove, name, 0); f.Err != nil {
		return f.Err
	}
	return i.fs.Remove(name)
}

// List implements FS.
func (i *Injector) List(dir string) ([]string, error) {
	if f := i.next(OpList, dir, 0); f.Err != nil {
		return nil, f.Err
	}
	return i.fs.List(dir)
}

// MkdirAll implements FS.
func (i *Injector) MkdirAll(dir string) error {
	if f := i.next(OpMkdirAll, dir, 0); f.Err != nil {
		return f.Err
	}
	return i.fs.MkdirAll(dir)
}

// SyncDir implements FS.
func (i *Injector) SyncDir(dir string) error {
	if f := i.next(OpSyncDir, dir, 0); f.Err != nil {
		return f.Err
	}
	return i.fs.SyncDir(dir)
}

// Stat implements FS.
func (i *Injector) Stat(name string) (Info, error) {
	if f := i.next(OpStat, name, 0); f.Err != nil {
		return Info{}, f.Err
	}
	return i.fs.Stat(name)
}

type injectedFile struct {
	i    *Injector
	name string
	file File
}

func (f *injectedFile) Write(p []byte) (int, error) {
	if fault := f.i.next(OpWrite, f.name, len(p)); fault.Err != nil {
		// An error of this write does not matter: the write fails in any case.
		n, _ := f.file.Write(p[:min(fault.Written, len(p))])
		return n, fault.Err
	}
	return f.file.Write(p)
}

func (f *injectedFile) ReadAt(p []byte, offset int64) (int, error) {
	if fault := f.i.next(OpRead, f.name, len(p)); fault.Err != nil {
		return 0, fault.Err
	}
	return f.file.ReadAt(p, offset)
}

func (f *injectedFile) Sync() error {
	if fault := f.i.next(OpSync, f.name, 0); fault.Err != nil {
		return fault.Err
	}
	return f.file.Sync()
}

// Close closes the underlying file in any case, so that an injected failure of Close does not leak
// a descriptor.
func (f *injectedFile) Close() error {
	fault := f.i.next(OpClose, f.name, 0)
	if err := f.file.Close(); fault.Err == nil {
		return err
	}
	return fault.Err
}
