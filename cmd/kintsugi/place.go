package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// place is a store of checkpoints: a folder on a disk or in an object store.
type place struct {
	fs   vfs.FS
	dir  string
	name string // as users write it
}

// openPlace opens the store that --store names; it sends nothing yet. An object store can be used
// until ctx ends. tls secures connections to the memory of another process; object stores have
// their own authentication.
func openPlace(ctx context.Context, store string, tls *mtls.Credentials) (place, error) {
	if !isURL(store) {
		return place{fs: vfs.OS{}, dir: store, name: store}, nil
	}
	if strings.HasPrefix(store, object.MemoryScheme) {
		u, err := memoryPlace(store)
		if err != nil {
			return place{}, err
		}
		memory := object.OpenMemory(u.Host, nil)
		if tls != nil {
			memory = object.OpenMemory(u.Host, tls.DialContext(mtls.Whom{Role: mtls.Memory, Index: mtls.Any}))
		}
		return place{fs: object.NewFS(ctx, memory, object.DefaultRetries()), dir: strings.Trim(u.Path, "/"), name: store}, nil
	}
	where, err := object.ParsePlace(store, endpoint())
	if err != nil {
		return place{}, fmt.Errorf("--store: %w", err)
	}
	s3, err := object.OpenS3(where)
	if err != nil {
		return place{}, fmt.Errorf("--store: %w", err)
	}
	return place{fs: object.NewFS(ctx, s3, where.Retries()), dir: where.Prefix, name: store}, nil
}

// forgets reports whether the place is the memory of a process, which is lost with the process.
func (p place) forgets() bool { return strings.HasPrefix(p.name, object.MemoryScheme) }

// isURL reports whether a store is no folder. That includes unknown schemes: a user who writes
// "gs://…" does not mean a folder of that name.
func isURL(store string) bool { return strings.Contains(store, "://") }

// memoryPlace parses memory://host:port/prefix.
func memoryPlace(store string) (*url.URL, error) {
	u, err := url.Parse(store)
	if err != nil || u.Port() == "" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: --store %q: the memory of another process is memory://host:port/prefix, where kintsugi memory listens", kintsugi.ErrUsage, store)
	}
	return u, nil
}

// endpoint returns the address of the object store for places that name none.
func endpoint() string { return cmp.Or(os.Getenv("AWS_ENDPOINT_URL"), object.AWS) }

// below returns the place with the given name in a store.
func below(store, name string) (string, error) {
	if !isURL(store) {
		return filepath.Join(store, name), nil
	}
	if strings.HasPrefix(store, object.MemoryScheme) {
		u, err := memoryPlace(store)
		if err != nil {
			return "", err
		}
		return u.JoinPath(name).String(), nil
	}
	if _, err := object.ParsePlace(store, endpoint()); err != nil {
		return "", fmt.Errorf("--store: %w", err)
	}
	u, err := url.Parse(store)
	if err != nil {
		return "", err // ParsePlace has parsed it already
	}
	return u.JoinPath(name).String(), nil
}

// probe checks whether an object store can be used at all.
func (p place) probe() error {
	fsys, ok := p.fs.(*object.FS)
	if !ok {
		return nil
	}
	if err := fsys.Probe(p.dir); err != nil {
		return fmt.Errorf("--store %s: %w", p.name, err)
	}
	return nil
}

// begins checks whether a new run can save: such a run claims its place before its first step, and
// would wait until the store is usable. A run that has begun goes on without its folder, as with a
// full disk, so roles do not check.
func (p place) begins() error {
	if _, ok := p.fs.(vfs.OS); !ok {
		return p.probe()
	}
	err := p.fs.MkdirAll(p.dir)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(p.dir, "probe-*"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("%w: --store: checkpoints cannot be written: %w; name a folder that can be, or make room in it", kintsugi.ErrUsage, err)
	}
	return nil
}
