package ckpt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// makeFolders creates the folders of a checkpoint.
func makeFolders(fsys vfs.FS, dir string) error {
	for _, folder := range []string{segmentDir, shardDir, runDir, tmpDir} {
		if err := fsys.MkdirAll(path.Join(dir, folder)); err != nil {
			return err
		}
	}
	return nil
}

// publish makes content appear under folder/name, durably and at once, or not at all. If the name
// exists with the same bytes, nothing is left to do. If it exists with other bytes, the error is
// ErrPublished.
//
// A rename would be atomic too, but it would replace what another writer has published. A link
// fails instead.
func publish(fsys vfs.FS, dir, folder, name string, content []byte) error {
	target := path.Join(dir, folder, name)
	err := appear(fsys, target, path.Join(dir, tmpDir, folder+"-"+name), content)
	if errors.Is(err, fs.ErrExist) {
		was, err := readAll(fsys, dir, path.Join(folder, name), maxManifest)
		if err != nil {
			return err
		}
		if !bytes.Equal(was, content) {
			return fmt.Errorf("%s: %w", target, ErrPublished)
		}
	} else if err != nil {
		return err
	}
	// Until here the name may be lost in a crash, even if another process has made it.
	return fsys.SyncDir(path.Join(dir, folder))
}

// appear makes content appear under the name target, or returns fs.ErrExist. Names of temporary
// files begin with tmp.
func appear(fsys vfs.FS, target, tmp string, content []byte) error {
	if p, ok := fsys.(vfs.Publisher); ok {
		return p.Publish(target, content)
	}
	tmp, err := writeTemporary(fsys, tmp, content)
	if err != nil {
		return err
	}
	// If a crash or an error here leaves a file in tmp, Compact removes it.
	defer fsys.Remove(tmp)
	return fsys.Link(tmp, target)
}

// writeTemporary writes a synced file under a name that begins with prefix and returns the name.
func writeTemporary(fsys vfs.FS, prefix string, content []byte) (string, error) {
	f, name, err := createFirst(fsys, func(i uint32) string { return fmt.Sprintf("%s.%d", prefix, i) })
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = fsys.Remove(name) // the first error counts
		return "", err
	}
	return name, nil
}

// createFirst creates the first file of name(0), name(1), … that does not exist.
func createFirst(fsys vfs.FS, name func(uint32) string) (vfs.File, string, error) {
	const tries = 10000 // more than a process will ever be restarted at one step
	for i := range uint32(tries) {
		f, err := fsys.Create(name(i))
		if !errors.Is(err, fs.ErrExist) {
			return f, name(i), err
		}
	}
	return nil, "", fmt.Errorf("%s and %d more exist: remove what crashed saves left", name(0), tries-1)
}

// listFolder returns the names in a folder, sorted. A folder that does not exist is empty.
func listFolder(fsys vfs.FS, dir, folder string) ([]string, error) {
	names, err := fsys.List(path.Join(dir, folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}
