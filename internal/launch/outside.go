package launch

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kintsugi-ml/kintsugi/internal/shm"
)

// Outside is memory for what outlives processes and not the run: a file for each server, which has
// no name in any folder, so that nothing is left of it when the launcher and its servers are gone,
// however they end. It is not of /dev/shm, of which a container has 64 MiB unless it is told
// otherwise.
type Outside struct {
	files []*shm.File
	dir   string
}

// NewOutside makes the files of so many servers. They lie in dir where memory cannot be had.
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

// Path is where a process that has one of the files among the Files of its Spec, as the first,
// opens it. The descriptor itself will not do: its lock would be that of all lives, and of the
// launcher.
const Path = "/proc/self/fd/3"

// File returns the file of a server, which is o's to close.
func (o *Outside) File(server int) *os.File { return o.files[server].Descriptor() }

// Forget gives the next life of a server an empty file, as if its host had gone. A process that has
// the other one open keeps it until it ends.
func (o *Outside) Forget(server int) error {
	fresh, err := shm.Unnamed(o.dir)
	if err != nil {
		return err
	}
	from, to := int(fresh.Descriptor().Fd()), int(o.File(server).Fd())
	syscall.ForkLock.RLock() // no child may be born with what is not its own
	if err = unix.Dup2(from, to); err == nil {
		syscall.CloseOnExec(to)
	}
	syscall.ForkLock.RUnlock()
	return errors.Join(err, fresh.Close())
}

// Remove gives the files up.
func (o *Outside) Remove() error {
	var errs []error
	for _, f := range o.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
