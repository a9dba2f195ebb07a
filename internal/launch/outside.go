package launch

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kintsugi-ml/kintsugi/internal/shm"
)

// Outside is memory that outlives processes, but not the run: one file for each server. The files
// have no name in any folder, so nothing is left of them when the launcher and its servers have
// ended, however that happens. They are not in /dev/shm, because in a container it usually has only
// 64 MiB.
type Outside struct {
	files []*shm.File
	dir   string
}

// NewOutside makes the files for the given number of servers. They are in dir if they cannot be in
// memory.
func NewOutside(servers int, dir string) (*Outside, error) {
	o := &Outside{dir: dir}
	for range servers {
		f, err := shm.Unnamed(dir)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("files for state outside the servers: %w", err), o.Remove())
		}
		o.files = append(o.files, f)
	}
	return o, nil
}

// Path is the path at which a process opens the file, if the file is the first of Spec.Files. The
// process must not use the inherited descriptor itself: a lock on it would belong to all lives and
// to the launcher.
const Path = "/proc/self/fd/3"

// File returns the file of a server. It belongs to o: do not close it.
func (o *Outside) File(server int) *os.File { return o.files[server].Descriptor() }

// Forget gives the next life of a server an empty file, as if its host had failed. A process that
// has the old file open keeps it until the process ends.
func (o *Outside) Forget(server int) error {
	fresh, err := shm.Unnamed(o.dir)
	if err != nil {
		return err
	}
	from, to := int(fresh.Descriptor().Fd()), int(o.File(server).Fd())
	syscall.ForkLock.RLock() // keep a concurrent fork from inheriting it
	if err = unix.Dup2(from, to); err == nil {
		syscall.CloseOnExec(to)
	}
	syscall.ForkLock.RUnlock()
	return errors.Join(err, fresh.Close())
}

// Remove closes the files.
func (o *Outside) Remove() error {
	var errs []error
	for _, f := range o.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
