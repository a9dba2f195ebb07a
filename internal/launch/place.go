package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// place holds the processes of one part, one after the other. It belongs to the goroutine of
// Cluster.run.
type place struct {
	spec     Spec
	restarts Restarts
	born     time.Time // creation of the place, from which times for restarts count
	log      *os.File  // opened for append, so that the lines of the launcher and the process do not overwrite one another
	logPath  string

	cmd         *exec.Cmd // nil between two lives
	incarnation int
	since       time.Time
	logStart    int64  // offset in log at which the current life begins
	floor, seen uint64 // of the current life: see peak

	due      time.Time // when the next life starts; zero: never, or a life is running
	held     bool      // a fault keeps the place empty
	over     bool      // no further life: finished, or given up
	paused   bool
	killedAt time.Time // when a fault killed this life; zero: no fault did
	noticed  time.Time // when this life was given notice; zero: not yet
}

// lifeEnd reports to the owner that the process of a place has ended.
type lifeEnd struct {
	place *place
	exit  Exit
}

func newPlace(spec Spec, cfg Config) (*place, error) {
	path := filepath.Join(cfg.Logs, spec.Part.logName()+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o666)
	if err != nil {
		return nil, fmt.Errorf("open its log: %w", err)
	}
	return &place{spec: spec, restarts: Restarts{Policy: cfg.Restart}, born: time.Now(), log: log, logPath: path}, nil
}

func (p *place) running() bool { return p.cmd != nil }

// start begins the next life. Call it on a thread that outlives the process.
func (p *place) start(binary string) error {
	if end, err := p.log.Seek(0, 2); err == nil {
		p.logStart = end
	}
	p.writeLog("incarnation %d: kintsugi %s", p.incarnation+1, strings.Join(p.spec.Args, " "))
	cmd := exec.Command(binary, p.spec.Args...)
	cmd.Args[0] = "kintsugi"
	cmd.Env = append(os.Environ(), p.spec.Env...)
	cmd.ExtraFiles = p.spec.Files
	cmd.Stdout, cmd.Stderr = p.log, p.log // the file itself, so that no goroutine of ours has to copy
	cmd.SysProcAttr = Group(syscall.SIGKILL)
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd = cmd
	p.floor, p.seen = highWater(os.Getpid()), 0
	p.incarnation++
	p.since = time.Now()
	p.restarts.Started(p.since.Sub(p.born))
	return nil
}

// reclaimed reports whether the time that the process had after its notice is over.
func (p *place) reclaimed(warning time.Duration, now time.Time) bool {
	return p.running() && !p.noticed.IsZero() && !now.Before(p.noticed.Add(warning))
}

// end notes the end of a life, and kills the rest of its process group.
func (p *place) end(exit Exit) {
	_ = p.signal(syscall.SIGKILL) // usually the group is empty, which is an error
	p.writeLog("incarnation %d ended after %s: %s", p.incarnation, time.Since(p.since).Round(time.Millisecond), exit)
}

// look notes the memory that the process has had so far.
func (p *place) look() { p.seen = max(p.seen, highWater(p.cmd.Process.Pid)) }

// peak returns the peak memory of a process that has ended, in bytes; 0: not known. most is what
// the kernel says. Linux counts the peak of the launcher too, which shares its memory with a new
// process until that begins its program. So what the kernel says is only right if it is more than
// the launcher had when it started the process (floor). Otherwise seen counts, which is what the
// process had when it was last looked at.
func peak(most, floor, seen uint64) uint64 {
	if most > floor {
		return most
	}
	return seen
}

// signal sends sig to the process group.
func (p *place) signal(sig syscall.Signal) error {
	p.look() // it may be about to end
	err := syscall.Kill(-p.cmd.Process.Pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil // it ended a moment ago, and its exit is about to be reported
	}
	return err
}

// writeLog adds a line of the launcher to the log. If the disk is full, the line is lost, but the
// run must not end.
func (p *place) writeLog(format string, args ...any) {
	_, _ = fmt.Fprintf(p.log, "=== %s %s %s\n", time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), p.spec.Part, fmt.Sprintf(format, args...))
}

// said returns the lines that the last life printed, or the last of them; nil if the log cannot be
// read.
func (p *place) said() [][]byte {
	const most = 1 << 20 // of a crash with hundreds of goroutines, only the end
	end, err := p.log.Seek(0, 2)
	if err != nil {
		return nil
	}
	from := max(p.logStart, end-most)
	text := make([]byte, end-from)
	n, _ := p.log.ReadAt(text, from) // show what could be read
	return bytes.Split(bytes.TrimRight(text[:n], "\n"), []byte("\n"))
}

// tail returns the end of the last life's output, for the end of an error. If Go's runtime crashed,
// it returns the beginning of the crash report instead, which has the reason.
func (p *place) tail() string {
	const maxLines = 20
	lines, part := p.said(), "end"
	if lines == nil {
		return "its log is " + p.logPath
	}
	if i := slices.IndexFunc(lines, record.Crashed); i >= 0 {
		lines, part = lines[i:min(len(lines), i+maxLines)], "crash"
	} else {
		lines = lines[max(0, len(lines)-maxLines):]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the %s in %s:", part, p.logPath)
	for _, l := range lines {
		fmt.Fprintf(&b, "\n    | %s", bytes.ToValidUTF8(l, []byte("?")))
	}
	return b.String()
}

// words returns the line in which the last life said why it ended, or "".
func (p *place) words() string {
	const most = 300 // limit in bytes, as the line is shown in tables
	lines := p.said()
	i := slices.IndexFunc(lines, record.Crashed)
	if i < 0 {
		i = len(lines) - 1
		for ; i >= 0 && !bytes.HasPrefix(lines[i], []byte("kintsugi: ")); i-- {
		}
	}
	if i < 0 {
		return ""
	}
	line := bytes.TrimPrefix(lines[i], []byte("kintsugi: "))
	if len(line) > most {
		line = append(slices.Clip(line[:most]), "…"...)
	}
	return string(bytes.ToValidUTF8(line, []byte("?")))
}

func exitOf(cmd *exec.Cmd) Exit {
	ps := cmd.ProcessState
	e := Exit{Status: ps.ExitCode(), CPU: ps.UserTime() + ps.SystemTime()}
	if usage, ok := ps.SysUsage().(*syscall.Rusage); ok {
		e.PeakBytes = uint64(usage.Maxrss)
		if runtime.GOOS != "darwin" { // others count in KiB
			e.PeakBytes <<= 10
		}
	}
	if state, ok := ps.Sys().(syscall.WaitStatus); ok && state.Signaled() {
		e.Status, e.Signal = -1, state.Signal().String()
	}
	return e
}
