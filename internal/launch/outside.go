package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// memoryFolder is where files are memory: they outlive processes and not the machine.
const memoryFolder = "/dev/shm"

// Outside is a folder for what outlives processes and not the run: in memory where the system has such a place, else in the folder of the
// run. The launcher makes it and removes it. It is not for servers to do: a folder that a server has removed is gone with what its next
// life came back for.
type Outside struct {
	dir  string
	lock *os.File // held as long as the launcher lives, so that what a killed one has left behind can be told
}

const outsidePrefix = "kintsugi-"

// NewOutside makes the folder. It is below fallback where memory cannot be had. What launchers of the same user that were killed have left
// in memory is removed.
func NewOutside(fallback string) (*Outside, error) {
	prefix := outsidePrefix + strconv.Itoa(os.Getuid()) + "-"
	removeLeft(prefix)
	dir, err := os.MkdirTemp(memoryFolder, prefix)
	if err != nil {
		dir = filepath.Join(fallback, "outside")
		if err = errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
			return nil, fmt.Errorf("folder for state outside the servers: %w", err)
		}
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("folder for state outside the servers: %w", err), os.RemoveAll(dir))
	}
	return &Outside{dir: dir, lock: lock}, nil
}

// lockFolder takes the lock of a folder; it ends with the process.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return f, nil
}

// removeLeft removes folders whose launcher is gone. One that was made this moment and is not locked yet has no lock file either, and stays.
func removeLeft(prefix string) {
	left, _ := filepath.Glob(filepath.Join(memoryFolder, prefix+"*", "lock"))
	for _, path := range left {
		if f, err := lockFolder(filepath.Dir(path)); err == nil {
			_ = os.RemoveAll(filepath.Dir(path)) // what cannot be removed is left for the next
			_ = f.Close()
		}
	}
}

// File returns the file of a server.
func (o *Outside) File(server int) string {
	return filepath.Join(o.dir, fmt.Sprintf("server-%d", server))
}

// Forget removes the file of a server, as if its host had gone. A process that has it open keeps it until it ends.
func (o *Outside) Forget(server int) error {
	if err := os.Remove(o.File(server)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Remove removes the folder and everything in it. No server may be running.
func (o *Outside) Remove() error { return errors.Join(os.RemoveAll(o.dir), o.lock.Close()) }
