package job

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// Place is a store of checkpoints: a folder on a disk or in an object store.
type Place struct {
	FS   vfs.FS
	Dir  string
	Name string // as users write it
}

// OpenPlace opens the store that --store names; it sends nothing yet. An object store can be used
// until ctx ends. tls secures connections to the memory of another process; object stores have
// their own authentication.
func OpenPlace(ctx context.Context, store string, tls *mtls.Credentials) (Place, error) {
	if !IsURL(store) {
		return Place{FS: vfs.OS{}, Dir: store, Name: store}, nil
	}
	if strings.HasPrefix(store, object.MemoryScheme) {
		u, err := memoryPlace(store)
		if err != nil {
			return Place{}, err
		}
		memory := object.OpenMemory(u.Host, nil)
		if tls != nil {
			memory = object.OpenMemory(u.Host, tls.DialContext(mtls.Whom{Role: mtls.Memory, Index: mtls.Any}))
		}
		return Place{FS: object.NewFS(ctx, memory, object.DefaultRetries()), Dir: strings.Trim(u.Path, "/"), Name: store}, nil
	}
	where, err := object.ParsePlace(store, os.Getenv)
	if err != nil {
		return Place{}, fmt.Errorf("--store: %w", err)
	}
	bucket, err := object.Open(ctx, where, os.Getenv)
	if err != nil {
		return Place{}, fmt.Errorf("--store: %w", err)
	}
	return Place{FS: object.NewFS(ctx, bucket, where.Retries()), Dir: where.Prefix, Name: store}, nil
}

// Forgets reports whether the place is the memory of a process, which is lost with the process.
func (p Place) Forgets() bool { return strings.HasPrefix(p.Name, object.MemoryScheme) }

// IsURL reports whether a store is no folder. That includes unknown schemes: a user who writes
// "ftp://…" does not mean a folder of that name.
func IsURL(store string) bool { return strings.Contains(store, "://") }

// memoryPlace parses memory://host:port/prefix.
func memoryPlace(store string) (*url.URL, error) {
	u, err := url.Parse(store)
	if err != nil || u.Port() == "" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: --store %q: the memory of another process is memory://host:port/prefix, where kintsugi memory listens", kintsugi.ErrUsage, store)
	}
	return u, nil
}

// Below returns the place with the given name in a store.
func Below(store, name string) (string, error) {
	if !IsURL(store) {
		return filepath.Join(store, name), nil
	}
	if strings.HasPrefix(store, object.MemoryScheme) {
		u, err := memoryPlace(store)
		if err != nil {
			return "", err
		}
		return u.JoinPath(name).String(), nil
	}
	if _, err := object.ParsePlace(store, os.Getenv); err != nil {
		return "", fmt.Errorf("--store: %w", err)
	}
	u, err := url.Parse(store)
	if err != nil {
		return "", err // ParsePlace has parsed it already
	}
	return u.JoinPath(name).String(), nil
}

// Probe checks whether an object store can be used at all.
func (p Place) Probe() error {
	fsys, ok := p.FS.(*object.FS)
	if !ok {
		return nil
	}
	if err := fsys.Probe(p.Dir); err != nil {
		return fmt.Errorf("--store %s: %w", p.Name, err)
	}
	return nil
}

// Begins checks whether a new run can save: such a run claims its place before its first step, and
// would wait until the store is usable. A run that has begun goes on without its folder, as with a
// full disk, so roles do not check.
func (p Place) Begins() error {
	if _, ok := p.FS.(vfs.OS); !ok {
		return p.Probe()
	}
	if err := probe(p.FS, p.Dir); err != nil {
		return fmt.Errorf("%w: --store: checkpoints cannot be written: %w; name a folder that can be, or make room in it", kintsugi.ErrUsage, err)
	}
	return nil
}

// probe tries in a folder what a checkpoint needs, and leaves nothing there.
func probe(fsys vfs.FS, dir string) error {
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	first := filepath.Join(dir, fmt.Sprintf("probe-%d-%d", os.Getpid(), time.Now().UnixNano()))
	named := first + "-named"
	f, err := fsys.Create(first)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte("kintsugi\n"))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = errors.Join(fsys.Link(first, named), fsys.SyncDir(dir))
	}
	for _, name := range []string{first, named} {
		if gone := fsys.Remove(name); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}
