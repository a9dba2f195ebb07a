package program

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Variable is the environment variable that tells a program which descriptors to talk on. See the
// package documentation.
const Variable = "KINTSUGI_ASKS"

// child is the process of a program and this side's end of its socket.
type child struct {
	cmd  *exec.Cmd
	conn net.Conn
	tail *tail

	lines  chan []byte   // lines from the program; closed when no more will come
	broken error         // why reading ended, unless the program closed its end; set before lines is closed
	died   chan struct{} // closed when the process has ended
	ended  error         // how the process ended; set before died is closed
	forced bool          // close killed the process; set by close
}

// longest is the limit on a line from the program, in bytes: a description of a hundred thousand
// tensors fits.
const longest = 16 << 20

// start starts a program and passes it its end of the socket, and the memory.
func start(cfg Config, memory *os.File) (*child, error) {
	mine, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	conn, err := net.FileConn(mine) // FileConn duplicates mine
	if err := errors.Join(err, mine.Close()); err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(cfg.Command[0], cfg.Command[1:]...), conn: conn, tail: &tail{to: cfg.Output}, lines: make(chan []byte), died: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = c.tail, c.tail
	c.cmd.ExtraFiles = []*os.File{theirs, memory} // descriptors 3 and 4
	c.cmd.Env = append(os.Environ(), Variable+"=1 3 4")
	c.cmd.SysProcAttr = alone()
	c.cmd.WaitDelay = leaveWithin // grandchildren may keep the output open
	started := make(chan error)
	go c.live(started)
	if err := <-started; err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go c.read()
	return c, nil
}

// live starts the process and waits for its end, on a locked thread: Linux kills the process when
// the thread that has started it ends, and the caller's thread might end.
func (c *child) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	endGroup(c.cmd.Process.Pid)
	c.ended = c.cmd.Wait()
	close(c.died)
}

// socketpair returns the two ends of a stream socket.
func socketpair() (mine, theirs *os.File, err error) {
	syscall.ForkLock.RLock() // keep a concurrent fork from inheriting both ends
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "kintsugi"), os.NewFile(uintptr(fds[1]), "program"), nil
}

// read passes on lines until the conversation is over.
func (c *child) read() {
	defer close(c.lines)
	s := bufio.NewScanner(c.conn)
	s.Buffer(nil, longest)
	for s.Scan() {
		select {
		case c.lines <- append([]byte(nil), s.Bytes()...):
		case <-c.died: // nobody needs the last line any more
			return
		}
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		c.broken = fmt.Errorf("it sent a line of more than %d bytes", longest)
	} // otherwise the end of the process says more than the error of the socket
}

// gone returns an error that says how a program has broken off the conversation. broken is the
// error of the conversation, unless the process ended. gone makes sure that the process has ended.
func (c *child) gone(broken error) error {
	closed := c.close(leaveWithin)
	how := "it ended"
	switch {
	case broken != nil:
		how = broken.Error()
	case c.forced: // it was killed, so its exit status says nothing
		how = fmt.Sprintf("it broke off the conversation, and was ended %v later", leaveWithin)
	case killed(c.ended):
		how = "it was killed (signal: killed), as the system does when memory is short"
	case c.ended != nil:
		how = fmt.Sprintf("it ended (%v)", c.ended)
	case closed != nil:
		how = closed.Error()
	}
	if last := c.tail.last(); last != "" {
		return fmt.Errorf("%s; the last that it wrote is %q", how, last)
	}
	return errors.New(how + ", and wrote nothing")
}

// hangs ends a program that does not answer, and returns an error that says so. On SIGQUIT, programs
// in Python that use kintsugi.py, in Go and in Java write where each thread stands, and leaveWithin is time enough
// for that. Processes that the program has started get it too: it may wait for one of them.
func (c *child) hangs(waited fmt.Stringer) error {
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGQUIT) // if it has ended just now, nothing is lost
	_ = c.close(leaveWithin)                              // how it ends says nothing
	if at := c.tail.stands(); at != "" {
		return fmt.Errorf("it hangs, at %s: %v; --hang-after sets another time", at, waited)
	}
	return fmt.Errorf("it hangs: %v; --hang-after sets another time", waited)
}

// killed reports whether a process has ended by a SIGKILL. A shell that has run it says so by its
// exit status.
func killed(ended error) bool {
	exit, ok := errors.AsType[*exec.ExitError](ended)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && (status.Signaled() && status.Signal() == syscall.SIGKILL || status.ExitStatus() == 128+int(syscall.SIGKILL))
}

// left reports whether the process has ended by itself and without an error.
func (c *child) left() bool {
	select {
	case <-c.died:
		return c.ended == nil && !c.forced
	default:
		return false
	}
}

// close ends the conversation, and kills the process if it does not end by itself in time. It may
// be called again.
func (c *child) close(within time.Duration) error {
	err := c.conn.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-c.died:
	case <-late.C:
		c.forced = true
		kill(c.cmd.Process.Pid)
		late.Reset(within)
		select {
		case <-c.died:
		case <-late.C: // it hangs in the kernel, as in a driver or a file system whose server is gone; the worker can begin anew without it
		}
	}
	return err
}

// tail passes on the output of a program and keeps the end of it.
type tail struct {
	to  io.Writer
	mu  sync.Mutex
	end []byte
}

// tailBytes is enough for a long line, and for where each of some threads stands.
const tailBytes = 16 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, b...)
	if n := len(t.end) - tailBytes; n > 0 {
		t.end = append(t.end[:0], t.end[n:]...)
	}
	if t.to != nil {
		_, _ = t.to.Write(b) // the tail is kept even if this fails
	}
	return len(b), nil
}

// last returns the last line of the output: of a traceback, the line that says what happened.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(t.end))
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// stands returns where a program stood when it last wrote the stack of each thread, as Python does: the
// innermost call of the main thread, whose stack comes last. "": it has written no such thing.
func (t *tail) stands() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	const heading = "(most recent call first):\n"
	text := string(t.end)
	at := strings.LastIndex(text, heading)
	if at < 0 {
		return ""
	}
	call, _, _ := strings.Cut(text[at+len(heading):], "\n")
	return strings.TrimSpace(call)
}
