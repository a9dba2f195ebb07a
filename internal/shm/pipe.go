package shm

import (
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Pipes are two ways for bytes between two processes of one host: what one writes to Out the other
// reads from In. Neither has a name in any file system, and the kernel ends both when one of the
// processes is gone: then In is read to its end, and Out is refused.
type Pipes struct {
	In, Out *os.File // safe for a Close while they are used elsewhere, which ends that
	raw     syscall.RawConn
}

// pipeAtOnce is how many bytes a pipe takes as a whole or not at all.
const pipeAtOnce = 4096

func newPipes(in, out int) (*Pipes, error) {
	p := &Pipes{In: os.NewFile(uintptr(in), "pipe"), Out: os.NewFile(uintptr(out), "pipe")}
	var err error
	if p.raw, err = p.Out.SyscallConn(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// TryWrite writes at most pipeAtOnce bytes to Out if that can be done without waiting, and reports
// whether it has: all of them or none.
func (p *Pipes) TryWrite(b []byte) bool {
	if len(b) > pipeAtOnce {
		return false
	}
	n := 0
	err := p.raw.Write(func(fd uintptr) bool {
		n, _ = syscall.Write(int(fd), b)
		return true // whether or not it was taken
	})
	return err == nil && n == len(b)
}

// Close ends both ways.
func (p *Pipes) Close() {
	_ = p.In.Close()
	_ = p.Out.Close()
}

// pipeEnd is how another process finds one end of a pipe.
type pipeEnd struct {
	fd   int
	node uint64 // of the pipe; no other one on this host has it while this one exists
}

// CreatePipes returns new pipes and their name. Another process of the same user on the same host
// may open them by it, once, before closeName is called, which must be called in any case: until
// then their other ends are here, too.
func CreatePipes() (p *Pipes, name string, closeName func(), err error) {
	p, pid, in, out, closeName, err := createPipes()
	if err != nil {
		return nil, "", nil, fmt.Errorf("%w: %w", ErrNoSegment, err)
	}
	return p, fmt.Sprintf("%x.%d.%d.%d.%d.%d", Boot(), pid, in.fd, in.node, out.fd, out.node), closeName, nil
}

// OpenPipes opens the other ends of the pipes of a name that another process has told. The name is
// not trusted: what it leads to must be exactly the pipes that it promises, of this user and since
// the same start of the machine. Errors are ErrNoSegment.
func OpenPipes(name string) (*Pipes, error) {
	wrong := fmt.Errorf("%w: %q is no name of pipes", ErrNoSegment, name)
	parts := strings.Split(name, ".")
	if len(parts) != 6 {
		return nil, wrong
	}
	boot, err := hex.DecodeString(parts[0])
	here := Boot()
	if err != nil || len(boot) != len(here) {
		return nil, wrong
	}
	var n [5]uint64
	for i := range n {
		if n[i], err = strconv.ParseUint(parts[i+1], 10, 62); err != nil {
			return nil, wrong
		}
	}
	if [16]byte(boot) != here {
		return nil, fmt.Errorf("%w: the pipes are those of another machine, or of this one before it was started again", ErrNoSegment)
	}
	p, err := openPipes(int(n[0]), pipeEnd{int(n[1]), n[2]}, pipeEnd{int(n[3]), n[4]})
	if err != nil {
		return nil, fmt.Errorf("%w: pipes of process %d: %w", ErrNoSegment, n[0], err)
	}
	return p, nil
}
