package job

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/kintsugi-ml/kintsugi/python"
)

// modulePath tells Python where modules are, besides the folder of the script and its own.
const modulePath = "PYTHONPATH"

// offerModule lets the programs of this process import kintsugi, whose text is in this binary: a copy
// beside a program, or a folder that PYTHONPATH names already, comes first. Where no file can be
// written, a program must have its own.
var offerModule = sync.OnceFunc(func() {
	folders := filepath.SplitList(os.Getenv(modulePath))
	for _, base := range moduleBases() {
		folder, err := writeModule(base)
		if err != nil {
			continue
		}
		if !slices.Contains(folders, folder) {
			_ = os.Setenv(modulePath, strings.Join(append(folders, folder), string(filepath.ListSeparator))) // fails only for names that are none
		}
		return
	}
})

// moduleBases returns folders that may hold the module, the best one first.
func moduleBases() (bases []string) {
	if cache, err := os.UserCacheDir(); err == nil {
		bases = append(bases, filepath.Join(cache, "kintsugi"))
	}
	return append(bases, filepath.Join(os.TempDir(), fmt.Sprintf("kintsugi-%d", os.Getuid())))
}

// writeModule writes the module below base, unless it is there, and returns its folder. Each text has a
// folder of its own, so binaries of several releases do not disturb each other.
func writeModule(base string) (folder string, err error) {
	if err := os.MkdirAll(base, 0o700); err != nil {
		return "", err
	}
	if err := onlyMine(base); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(python.Module))
	folder = filepath.Join(base, fmt.Sprintf("python-%x", sum[:6]))
	path := filepath.Join(folder, "kintsugi.py")
	if have, err := os.ReadFile(path); err == nil && string(have) == python.Module {
		return folder, nil
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(folder, "kintsugi-")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(python.Module)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path) // at once: other processes may be about to import it
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return folder, nil
}

// onlyMine returns an error if others may write to a folder: they could have programs run their text.
func onlyMine(folder string) error {
	info, err := os.Lstat(folder)
	if err != nil {
		return err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(s.Uid) != os.Getuid() || info.Mode()&0o022 != 0 {
		return fmt.Errorf("%w: %s belongs to others too", fs.ErrPermission, folder)
	}
	return nil
}
