package vfs

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
)

// ErrCrashed is returned by every operation after the machine has crashed.
var ErrCrashed = errors.New("the machine has crashed")

// Mem is a file system in memory that can crash. Directories are durable once created; "." and "/"
// always exist. It is safe for concurrent use.
type Mem struct {
	mu      sync.Mutex
	crashed bool              // Invariant: set once; afterwards every operation fails
	dirs    map[string]bool   // by clean path
	names   map[string]*inode // as a program sees them
	durable map[string]*inode // as they are on the disk
	pending []change          // Invariant: durable, with all pending changes applied in order, equals names
}

// inode is a file. Data is only ever appended, so the durable part is a prefix.
type inode struct {
	data   []byte
	synced int // Invariant: data[:synced] is durable
}

// change is one operation on names that is not durable yet. It removes a name, adds a name, or does
// both at once for a rename. A crash keeps or loses it as a whole.
type change struct {
	remove string // empty: nothing
	add    string // empty: nothing
	file   *inode // the file under the added name
}

func (c change) touches(dir string) bool {
	return c.remove != "" && path.Dir(c.remove) == dir || c.add != "" && path.Dir(c.add) == dir
}

func (c change) apply(names map[string]*inode) {
	if c.remove != "" {
		delete(names, c.remove)
	}
	if c.add != "" {
		names[c.add] = c.file
	}
}

// NewMem returns an empty file system.
func NewMem() *Mem {
	return &Mem{
		dirs:    map[string]bool{".": true, "/": true},
		names:   map[string]*inode{},
		durable: map[string]*inode{},
	}
}

var _ FS = (*Mem)(nil)

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// change applies c to the names that programs see, and records it for a crash. The caller holds mu.
func (m *Mem) change(c change) {
	c.apply(m.names)
	m.pending = append(m.pending, c)
}

// free returns the error why name cannot be created; nil: it can. The caller holds mu.
func (m *Mem) free(name string) error {
	switch {
	case m.crashed:
		return ErrCrashed
	case m.names[name] != nil || m.dirs[name]:
		return fs.ErrExist
	case !m.dirs[path.Dir(name)]:
		return fs.ErrNotExist
	}
	return nil
}

// find returns the file with that name. The caller holds mu.
func (m *Mem) find(name string) (*inode, error) {
	switch {
	case m.crashed:
		return nil, ErrCrashed
	case m.names[name] == nil:
		return nil, fs.ErrNotExist
	}
	return m.names[name], nil
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = path.Clean(name)
	if err := m.free(name); err != nil {
		return nil, pathError("create", name, err)
	}
	file := &inode{}
	m.change(change{add: name, file: file})
	return &memFile{m: m, name: name, inode: file, writable: true}, nil
}

// OpenAppend implements FS.
func (m *Mem) OpenAppend(name string) (File, error) { return m.open(name, true) }

// Open implements FS.
func (m *Mem) Open(name string) (File, error) { return m.open(name, false) }

func (m *Mem) open(name string, writable bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = path.Clean(name)
	file, err := m.find(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return &memFile{m: m, name: name, inode: file, writable: writable}, nil
}

// Link implements FS.
func (m *Mem) Link(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	oldName, newName = path.Clean(oldName), path.Clean(newName)
	file, err := m.find(oldName)
	if err != nil {
		return pathError("link", oldName, err)
	}
	if err := m.free(newName); err != nil {
		return pathError("link", newName, err)
	}
	m.change(change{add: newName, file: file})
	return nil
}

// Rename implements FS.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	oldName, newName = path.Clean(oldName), path.Clean(newName)
	file, err := m.find(oldName)
	if err != nil {
		return pathError("rename", oldName, err)
	}
	if err := m.free(newName); err != nil && m.names[newName] == nil {
		return pathError("rename", newName, err)
	}
	if oldName != newName {
		m.change(change{remove: oldName, add: newName, file: file})
	}
	return nil
}

// Remove implements FS. Directories cannot be removed.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = path.Clean(name)
	if _, err := m.find(name); err != nil {
		return pathError("remove", name, err)
	}
	m.change(change{remove: name})
	return nil
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir = path.Clean(dir)
	if err := m.isDir(dir); err != nil {
		return nil, pathError("list", dir, err)
	}
	var names []string
	for name := range m.names {
		if path.Dir(name) == dir {
			names = append(names, path.Base(name))
		}
	}
	for name := range m.dirs {
		if path.Dir(name) == dir && name != dir {
			names = append(names, path.Base(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

func (m *Mem) isDir(dir string) error {
	switch {
	case m.crashed:
		return ErrCrashed
	case !m.dirs[dir]:
		return fs.ErrNotExist
	}
	return nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crashed {
		return pathError("mkdir", dir, ErrCrashed)
	}
	for dir = path.Clean(dir); !m.dirs[dir]; dir = path.Dir(dir) {
		if m.names[dir] != nil {
			return pathError("mkdir", dir, errors.New("exists and is not a directory"))
		}
		m.dirs[dir] = true
	}
	return nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir = path.Clean(dir)
	if err := m.isDir(dir); err != nil {
		return pathError("sync", dir, err)
	}
	rest := m.pending[:0]
	for _, c := range m.pending {
		if c.touches(dir) {
			c.apply(m.durable)
		} else {
			rest = append(rest, c)
		}
	}
	m.pending = rest
	return nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = path.Clean(name)
	if !m.crashed && m.dirs[name] {
		return Info{Directory: true}, nil
	}
	file, err := m.find(name)
	if err != nil {
		return Info{}, pathError("stat", name, err)
	}
	return Info{Size: int64(len(file.data))}, nil
}

// Edit replaces the bytes of a file by the result of f, durably, as a failing disk or a foreign
// program would. It is for tests of damage. f gets a copy of the bytes.
func (m *Mem) Edit(name string, f func([]byte) []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	file, err := m.find(path.Clean(name))
	if err != nil {
		return pathError("edit", name, err)
	}
	file.data = f(slices.Clone(file.data))
	file.synced = len(file.data)
	return nil
}

// Walk returns the names of all files under dir, sorted.
func (m *Mem) Walk(dir string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range m.names {
		if dir == "." || strings.HasPrefix(name, path.Clean(dir)+"/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

type memFile struct {
	m        *Mem
	name     string
	inode    *inode
	writable bool
	closed   bool
}

// check returns the error why an operation cannot go on; nil: it can. The caller holds m.mu.
func (f *memFile) check(op string) error {
	switch {
	case f.m.crashed:
		return pathError(op, f.name, ErrCrashed)
	case f.closed:
		return pathError(op, f.name, fs.ErrClosed)
	}
	return nil
}

func (f *memFile) Write(p []byte) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("write"); err != nil {
		return 0, err
	}
	if !f.writable {
		return 0, pathError("write", f.name, fs.ErrPermission)
	}
	f.inode.data = append(f.inode.data, p...)
	return len(p), nil
}

func (f *memFile) ReadAt(p []byte, offset int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("read"); err != nil {
		return 0, err
	}
	if offset < 0 {
		return 0, pathError("read", f.name, fs.ErrInvalid)
	}
	if offset >= int64(len(f.inode.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.inode.data[offset:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("sync"); err != nil {
		return err
	}
	f.inode.synced = len(f.inode.data)
	return nil
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("close"); err != nil {
		return err
	}
	f.closed = true
	return nil
}
