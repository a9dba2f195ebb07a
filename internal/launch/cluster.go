package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/notice"
)

// ErrStopped means that the cluster has stopped or is stopping, so the call had no effect.
var ErrStopped = errors.New("the cluster has stopped")

// Spec describes the processes of one place, each the successor of the one before.
type Spec struct {
	Part Part
	Args []string // without the program name
	Env  []string // "NAME=value", in addition to the launcher's environment

	Files []*os.File // inherited by each process as descriptors 3 and up; the caller closes them after Stop
}

// Config configures a Cluster. Zero fields mean the defaults.
type Config struct {
	// Binary is the program to start. Default: this program, even if its file has been replaced or
	// removed since, so that a restarted process always has the same version as the others.
	Binary string

	// Logs is the folder for the output of the processes, one file for each place, such as
	// server-0.log. It is created if necessary. Required.
	Logs string

	Restart RestartPolicy

	// Grace is how long a process may take to end after SIGINT, when the cluster stops, before it
	// is killed. Default: 10s.
	Grace time.Duration

	// Warning is how long a process may live after a notice before it is killed. Default: 25s.
	Warning time.Duration

	// Observe, if set, is called for each process event, in order, by the goroutine that owns the
	// processes. It must return soon and must not call methods of the Cluster.
	Observe func(ProcessEvent)
}

// ProcessEventKind says what happened to a process.
type ProcessEventKind uint8

// The kinds of process event.
const (
	ProcessStarted  ProcessEventKind = iota + 1
	ProcessKilled                    // a fault sent SIGKILL; ProcessDied follows
	ProcessPaused                    // SIGSTOP was sent
	ProcessResumed                   // SIGCONT was sent
	ProcessDied                      // it ended; the next life starts after Pause, or when the hold ends
	ProcessFinished                  // it ended with status 0, or because the cluster stops
	ProcessGivenUp                   // it ended and is not restarted: the run cannot go on
	ProcessNoticed                   // SIGTERM was sent: a notice that the process is about to go
)

// String returns the kind as a verb, such as "started".
func (k ProcessEventKind) String() string {
	names := [...]string{"none", "started", "killed", "paused", "resumed", "died", "finished", "given up", "noticed"}
	if int(k) < len(names) {
		return names[k]
	}
	return "event"
}

// ProcessEvent is something that happened to a process.
type ProcessEvent struct {
	Time        time.Time
	Kind        ProcessEventKind
	Part        Part
	Incarnation int // number of the life of this place, from 1
	PID         int
	Exit        Exit          // with ProcessDied, ProcessFinished and ProcessGivenUp
	Held        bool          // with ProcessDied: a fault keeps the place empty for a time
	Pause       time.Duration // with ProcessDied, unless held: time until the next life starts
	KilledAt    time.Time     // with ProcessDied: when a fault sent SIGKILL; zero if none did
	NoticedAt   time.Time     // with ProcessDied: when Notice gave it notice; zero if it did not
	Began       time.Time     // start of this life
}

// Left reports whether the process ended in an orderly way after a notice.
func (e ProcessEvent) Left() bool { return e.Kind == ProcessDied && e.Exit.Status == exitPreempted }

// Cluster is a set of child processes. It starts them, restarts those that die, and ends them all.
//
// Each child leads a process group of its own. So Ctrl-C on a terminal reaches only the launcher,
// which then stops the children in order. Each child is killed when the launcher ends, however that
// happens (PR_SET_PDEATHSIG). Linux sends this signal when the thread that started the child ends,
// not the process. So one goroutine starts all children; it is locked to its thread, and lives as
// long as any of them.
//
// Limitation: processes that a child has started end with the child, but not when the launcher is
// killed.
//
// All methods are safe for concurrent use, except from Config.Observe.
type Cluster struct {
	cfg      Config
	inbox    chan func()   // unbuffered: a caller waits until the owner has time; never closed
	exits    chan lifeEnd  // one value for each life; never closed
	done     chan struct{} // closed by run when all processes have ended
	failed   chan error    // has room for the only error, so that run never waits for a reader
	progress atomic.Bool   // a step was released since the last death

	// The remaining fields belong to the goroutine of run.
	places   []*place
	stopping *stopping
	stopErr  error // read by others after done is closed
}

// New returns a running cluster without processes. The caller must call Stop.
func New(cfg Config) (*Cluster, error) {
	if cfg.Binary == "" {
		cfg.Binary = "/proc/self/exe"
	}
	if cfg.Grace == 0 {
		cfg.Grace = 10 * time.Second
	}
	if cfg.Warning == 0 {
		cfg.Warning = notice.DefaultWarning
	}
	logs, err := filepath.Abs(cfg.Logs)
	if err != nil {
		return nil, fmt.Errorf("folder for logs: %w", err)
	}
	cfg.Logs = logs
	if err := os.MkdirAll(cfg.Logs, 0o777); err != nil {
		return nil, fmt.Errorf("folder for logs: %w; choose a folder that can be written", err)
	}
	c := &Cluster{
		cfg:    cfg,
		inbox:  make(chan func()),
		exits:  make(chan lifeEnd),
		done:   make(chan struct{}),
		failed: make(chan error, 1),
	}
	go c.run()
	return c, nil
}

// Start starts the first process of a new place. It returns when the process runs, which does not
// mean that it is ready.
func (c *Cluster) Start(spec Spec) error {
	return c.call(func() error {
		if c.find(spec.Part) != nil {
			return fmt.Errorf("start %s: it has been started before", spec.Part)
		}
		p, err := newPlace(spec, c.cfg)
		if err != nil {
			return fmt.Errorf("start %s: %w", spec.Part, err)
		}
		if err := c.startLife(p); err != nil {
			return fmt.Errorf("start %s: %w", spec.Part, errors.Join(err, p.log.Close()))
		}
		c.places = append(c.places, p)
		return nil
	})
}

// Kill sends SIGKILL to the process of a place. With hold the place stays empty until Release.
// Otherwise the next life starts as after any other death. An empty place can also be held.
func (c *Cluster) Kill(part Part, hold bool) error {
	return c.with("kill", part, func(p *place) error {
		p.held = p.held || hold && !p.over
		if !p.running() {
			return nil
		}
		p.killedAt = time.Now()
		c.observe(p, ProcessEvent{Kind: ProcessKilled})
		return p.signal(syscall.SIGKILL)
	})
}

// Notice sends SIGTERM to the process of a place: a notice that it is about to go. If the process
// has not ended after Config.Warning, it is killed. The next life starts as after any other death.
func (c *Cluster) Notice(part Part) error {
	return c.with("give notice to", part, func(p *place) error {
		if !p.running() || !p.noticed.IsZero() {
			return nil
		}
		p.noticed = time.Now()
		c.observe(p, ProcessEvent{Kind: ProcessNoticed})
		return p.signal(syscall.SIGTERM)
	})
}

// reclaim kills the processes whose time after a notice is over.
func (c *Cluster) reclaim(now time.Time) {
	for _, p := range c.places {
		if p.reclaimed(c.cfg.Warning, now) && p.killedAt.IsZero() {
			p.writeLog("the warning of %s is over", c.cfg.Warning)
			p.killedAt = now
			_ = p.signal(syscall.SIGKILL) // it may have ended at this moment, and its exit is reported then
		}
	}
}

// Release ends a hold. The next life starts at once.
func (c *Cluster) Release(part Part) error {
	return c.with("start", part, func(p *place) error {
		if p.held {
			p.held = false
			p.due = time.Now()
		}
		return nil
	})
}

// Pause stops the process of a place (SIGSTOP) until Resume. The process keeps its memory and
// connections but does not answer. An empty place cannot be paused.
func (c *Cluster) Pause(part Part) error {
	return c.with("pause", part, func(p *place) error {
		if !p.running() || p.paused {
			return nil
		}
		p.paused = true
		c.observe(p, ProcessEvent{Kind: ProcessPaused})
		return p.signal(syscall.SIGSTOP)
	})
}

// Resume continues a paused process (SIGCONT).
func (c *Cluster) Resume(part Part) error {
	return c.with("resume", part, func(p *place) error {
		if !p.running() || !p.paused {
			return nil
		}
		p.paused = false
		c.observe(p, ProcessEvent{Kind: ProcessResumed})
		return p.signal(syscall.SIGCONT)
	})
}

// Progressed tells the cluster that a step was released, see Restarts.Progressed. It is cheap.
func (c *Cluster) Progressed() { c.progress.Store(true) }

// GradientsFailed is the error of a run that cannot go on because a worker can compute none of its
// gradients: the user's program fails, in every worker, or the gradients are not finite. The rest
// of the run is in order.
type GradientsFailed struct {
	Why string // the reason in words, with the worker's name
	error
}

// Unwrap returns the error.
func (g GradientsFailed) Unwrap() error { return g.error }

// Failed returns a channel that yields at most one error: why the run cannot go on, including the
// end of the log of the process that caused it. The error wraps kintsugi.ErrUsage if that process
// was started with wrong settings. It is a GradientsFailed if only gradients are missing. The other
// processes run on until Stop.
func (c *Cluster) Failed() <-chan error { return c.failed }

// Stop ends all processes: first workers, then servers, then the coordinator. Each role gets SIGINT
// and, after the grace, SIGKILL. SIGTERM is not used, as it is a notice: processes would hand over
// to one another. Stop returns when all have ended. When ctx ends first, all are killed at once.
// Later calls wait for the first call. The error names processes that survived even SIGKILL.
func (c *Cluster) Stop(ctx context.Context) error {
	_ = c.call(func() error { // ErrStopped means that it is already stopping; done says when it has stopped
		c.beginStop(time.Now())
		return nil
	})
	select {
	case <-c.done:
	case <-ctx.Done():
		c.send(c.killAll)
		<-c.done
	}
	return c.stopErr
}

// send passes f to the goroutine that owns the processes. It reports whether that goroutine still
// runs.
func (c *Cluster) send(f func()) bool {
	select {
	case c.inbox <- f:
		return true
	case <-c.done:
		return false
	}
}

// call runs f on the goroutine that owns the processes, and returns its error, or ErrStopped.
func (c *Cluster) call(f func() error) error {
	answer := make(chan error, 1) // with room for the answer, so that the owner never waits for the caller
	sent := c.send(func() {
		if c.stopping != nil {
			answer <- ErrStopped
			return
		}
		answer <- f()
	})
	if !sent {
		return ErrStopped
	}
	return <-answer
}

func (c *Cluster) with(verb string, part Part, f func(*place) error) error {
	return c.call(func() error {
		p := c.find(part)
		if p == nil {
			return fmt.Errorf("%s %s: the cluster has no such part: %w", verb, part, kintsugi.ErrUsage)
		}
		if err := f(p); err != nil {
			return fmt.Errorf("%s %s: %w", verb, part, err)
		}
		return nil
	})
}

func (c *Cluster) find(part Part) *place {
	i := slices.IndexFunc(c.places, func(p *place) bool { return p.spec.Part == part })
	if i < 0 {
		return nil
	}
	return c.places[i]
}

// lookEvery is the time between two looks at how much memory the processes have.
const lookEvery = time.Second

// run owns the processes. For PR_SET_PDEATHSIG, its thread is their parent. So run never unlocks
// the thread; the runtime ends the thread with the goroutine.
func (c *Cluster) run() {
	runtime.LockOSThread()
	relax()
	defer close(c.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	for {
		select {
		case f := <-c.inbox:
			f()
		case end := <-c.exits:
			c.ended(end)
		case <-timer.C:
		case <-looks.C:
			for _, p := range c.places {
				if p.running() {
					p.look()
				}
			}
		}
		now := time.Now()
		c.startDue(now)
		c.reclaim(now)
		if c.stopping != nil && c.advanceStop(now) {
			for _, p := range c.places {
				c.stopErr = errors.Join(c.stopErr, p.log.Close())
			}
			return
		}
		if next, ok := c.nextMoment(); ok {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
	}
}

func (c *Cluster) nextMoment() (next time.Time, ok bool) {
	if c.stopping != nil {
		return c.stopping.deadline, true
	}
	for _, p := range c.places {
		at := p.due
		if p.running() {
			if p.noticed.IsZero() || !p.killedAt.IsZero() {
				continue
			}
			at = p.noticed.Add(c.cfg.Warning)
		} else if p.due.IsZero() || p.held {
			continue
		}
		if !ok || at.Before(next) {
			next, ok = at, true
		}
	}
	return next, ok
}

// startDue starts the next life in each place whose pause is over.
func (c *Cluster) startDue(now time.Time) {
	if c.stopping != nil {
		return
	}
	for _, p := range c.places {
		if p.running() || p.held || p.due.IsZero() || p.due.After(now) {
			continue
		}
		p.due = time.Time{}
		if err := c.startLife(p); err != nil {
			// Memory or process limits: this may pass, so it counts as a death.
			p.writeLog("could not be started: %v", err)
			c.judge(p, Exit{Status: 1})
		}
	}
}

func (c *Cluster) startLife(p *place) error {
	if err := p.start(c.cfg.Binary); err != nil {
		return err
	}
	c.observe(p, ProcessEvent{Kind: ProcessStarted})
	cmd := p.cmd
	go func() {
		_ = cmd.Wait() // ProcessState has more information
		select {
		case c.exits <- lifeEnd{p, exitOf(cmd)}:
		case <-c.done: // the process outlived even SIGKILL and its owner
		}
	}()
	return nil
}

// ended notes the end of a life and decides what to do next.
func (c *Cluster) ended(end lifeEnd) {
	p := end.place
	if !p.running() {
		return // the stop had given it up, but it has ended after all
	}
	end.exit.PeakBytes = peak(end.exit.PeakBytes, p.floor, p.seen)
	end.exit.Injected = !p.killedAt.IsZero() && end.exit.Signal != ""
	if end.exit.Status != exitDone {
		end.exit.Words = p.words()
	}
	p.end(end.exit)
	c.judge(p, end.exit)
	p.cmd, p.paused, p.killedAt, p.noticed = nil, false, time.Time{}, time.Time{}
}

func (c *Cluster) judge(p *place, exit Exit) {
	if c.progress.Swap(false) {
		for _, q := range c.places {
			q.restarts.Progressed()
		}
	}
	if c.stopping != nil {
		c.observe(p, ProcessEvent{Kind: ProcessFinished, Exit: exit})
		return
	}
	v := p.restarts.Exited(time.Since(p.born), exit)
	switch v.Kind {
	case Finished:
		p.over, p.held = true, false
		c.observe(p, ProcessEvent{Kind: ProcessFinished, Exit: exit})
	case Restart:
		p.due = time.Now().Add(v.Pause)
		c.observe(p, ProcessEvent{Kind: ProcessDied, Exit: exit, Held: p.held, Pause: v.Pause, KilledAt: p.killedAt, NoticedAt: p.noticed})
	case GiveUp:
		p.over, p.held = true, false
		c.observe(p, ProcessEvent{Kind: ProcessGivenUp, Exit: exit})
		err := fmt.Errorf("%s: %s; %s", p.spec.Part, v.Reason, p.tail())
		switch exit.Status {
		case exitConfig:
			err = fmt.Errorf("%w: %w", kintsugi.ErrUsage, err)
		case exitProgram:
			err = GradientsFailed{fmt.Sprintf("the program of %s fails", p.spec.Part), err}
		case exitNotFinite:
			err = GradientsFailed{fmt.Sprintf("the gradient of %s is not finite", p.spec.Part), err}
		}
		select {
		case c.failed <- err:
		default: // report the first failure only; later ones are often its consequences
		}
	}
}

func (c *Cluster) observe(p *place, e ProcessEvent) {
	if c.cfg.Observe == nil {
		return
	}
	e.Time, e.Part, e.Incarnation, e.Began = time.Now(), p.spec.Part, p.incarnation, p.since
	if p.cmd != nil {
		e.PID = p.cmd.Process.Pid
	}
	c.cfg.Observe(e)
}
