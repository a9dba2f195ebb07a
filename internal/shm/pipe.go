package shm

import (
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Pipes are two byte streams between two processes of one host: what one process writes to Out, the
// other reads from In. They have no name in any file system. If one of the processes ends, the
// kernel closes its ends: the other process can read In to its end, and writes to Out fail.
type Pipes struct {
	In, Out *os.File // a Close is safe while they are in use elsewhere, and ends that use
	raw     syscall.RawConn
}

// pipeAtOnce is the largest number of bytes that a pipe takes as a whole or not at all.
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

// TryWrite writes b to Out if that is possible without waiting, and reports whether it has. It
// writes all of b or nothing. It never writes more than pipeAtOnce bytes.
func (p *Pipes) TryWrite(b []byte) bool {
	if len(b) > pipeAtOnce {
		return false
	}
	n := 0
	err := p.raw.Write(func(fd uintptr) bool {
		n, _ = syscall.Write(int(fd), b)
		return true // do not wait, whether or not the pipe took it
	})
	return err == nil && n == len(b)
}

// Close closes both directions.
func (p *Pipes) Close() {
	_ = p.In.Close()
	_ = p.Out.Close()
}

// pipeEnd says how another process finds one end of a pipe.
type pipeEnd struct {
	fd   int
	node uint64 // inode of the pipe, unique on this host while the pipe exists
}

// CreatePipes returns new pipes and their name. Another process of the same user on the same host
// may open the pipes by this name, once, until closeName is called. The caller must call closeName
// in any case, because until then this process holds the other ends too. Errors are ErrNoSegment.
func CreatePipes() (p *Pipes, name string, closeName func(), err error) {
	p, pid, in, out, closeName, err := createPipes()
	if err != nil {
		return nil, "", nil, fmt.Errorf("%w: %w", ErrNoSegment, err)
	}
	return p, fmt.Sprintf("%x.%d.%d.%d.%d.%d", Boot(), pid, in.fd, in.node, out.fd, out.node), closeName, nil
}

// OpenPipes opens the other ends of the pipes whose name another process has sent. It does not
// trust the name: the name must lead to exactly the pipes that it describes, of this user and of
// the same boot of the machine. Errors are ErrNoSegment.
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
