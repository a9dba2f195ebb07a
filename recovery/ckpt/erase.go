package ckpt

import (
	"errors"
	"io/fs"
	"path"

	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// Erase removes all files of a place, of every run, also those of saves that were never completed.
// It is for what was saved only to measure or to try something: nothing may still write there. Of
// folders, only the empty ones stay. It removes what it can, and returns what it could not.
func Erase(fsys vfs.FS, dir string) error {
	var failed error
	for _, folder := range append(Folders(), tmpDir, lineDir) {
		names, err := fsys.List(path.Join(dir, folder))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		failed = errors.Join(failed, err)
		for _, name := range names {
			failed = errors.Join(failed, fsys.Remove(path.Join(dir, folder, name)))
		}
	}
	return failed
}
