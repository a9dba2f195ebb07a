package object

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Mem is a Store in memory. A Keeper serves one, and tests inspect one. The zero value is empty and
// ready for use. It is safe for concurrent use.
type Mem struct {
	mu      sync.Mutex
	objects map[string][]byte // contents are never changed, only replaced; guarded by mu
}

var _ Store = (*Mem)(nil)

// Objects returns all objects by name. The caller must not change their contents.
func (m *Mem) Objects() map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.objects)
}

// Put replaces an object, as a failing disk would.
func (m *Mem) Put(name string, content []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects == nil {
		m.objects = map[string][]byte{}
	}
	m.objects[name] = slices.Clone(content)
}

// Create implements Store.
func (m *Mem) Create(_ context.Context, name string, content []byte) error {
	return m.add(name, slices.Clone(content))
}

// add is Create with content that the caller does not use any more.
func (m *Mem) add(name string, content []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.objects[name]; ok {
		return fs.ErrExist
	}
	if m.objects == nil {
		m.objects = map[string][]byte{}
	}
	m.objects[name] = content
	return nil
}

// bytes returns the total length of all objects; a copy counts once for each of its names.
func (m *Mem) bytes() (n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.objects {
		n += int64(len(b))
	}
	return n
}

func (m *Mem) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.objects)
}

// Upload implements Store.
func (m *Mem) Upload(_ context.Context, name string) (Upload, error) {
	return &memUpload{m: m, name: name, parts: map[int][]byte{}}, nil
}

type memUpload struct {
	m    *Mem
	name string

	mu    sync.Mutex
	parts map[int][]byte // guarded by mu
}

func (u *memUpload) Part(_ context.Context, number int, content []byte) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts[number] = slices.Clone(content)
	return nil
}

func (u *memUpload) Complete(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all bytes.Buffer
	for i := 1; i <= len(u.parts); i++ {
		all.Write(u.parts[i])
	}
	return u.m.Create(ctx, u.name, all.Bytes())
}

func (u *memUpload) Abort(context.Context) error { return nil }

func (m *Mem) get(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.objects[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return b, nil
}

// Read implements Store.
func (m *Mem) Read(_ context.Context, name string, p []byte, offset int64) error {
	b, err := m.get(name)
	if err != nil {
		return err
	}
	if _, err := bytes.NewReader(b).ReadAt(p, offset); err != nil && err != io.EOF {
		return err
	}
	if offset+int64(len(p)) > int64(len(b)) {
		return fmt.Errorf("%w: %d bytes at %d of an object of %d", fs.ErrInvalid, len(p), offset, len(b))
	}
	return nil
}

// Begin implements Store.
func (m *Mem) Begin(_ context.Context, name string, p []byte) (int64, error) {
	b, err := m.get(name)
	copy(p, b)
	return int64(len(b)), err
}

// Stat implements Store.
func (m *Mem) Stat(_ context.Context, name string) (int64, error) {
	b, err := m.get(name)
	return int64(len(b)), err
}

// List implements Store.
func (m *Mem) List(_ context.Context, prefix string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := map[string]bool{}
	for name := range m.objects {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			first, _, _ := strings.Cut(rest, "/")
			next[first] = true
		}
	}
	return slices.Collect(maps.Keys(next)), nil
}

// Copy implements Store.
func (m *Mem) Copy(_ context.Context, from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.objects[from]
	if !ok {
		return fs.ErrNotExist
	}
	m.objects[to] = b // both share one content
	return nil
}

// Remove implements Store.
func (m *Mem) Remove(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
	return nil
}
