package launch

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAKilledProcessComesBackAsTheNextIncarnation(t *testing.T) {
	m := newMeeting(t)
	c, events := m.cluster(Config{})
	part := Part{Server, 0}
	must(t, c.Start(m.spec(part, "serve")))
	first := m.next()
	must(t, c.Kill(part, false))
	first.dies()
	second := m.next()
	second.answers()
	if e := await(t, events, ProcessDied); !e.Exit.Injected || e.Held || e.Incarnation != 1 || e.PID != first.pid {
		t.Errorf("death: %+v", e)
	}
	if e := await(t, events, ProcessStarted); e.Incarnation != 2 || e.PID != second.pid {
		t.Errorf("restart: %+v", e)
	}
}

func TestAHeldPlaceStaysEmptyUntilReleased(t *testing.T) {
	m := newMeeting(t)
	c, events := m.cluster(Config{Restart: RestartPolicy{First: time.Nanosecond}})
	part := Part{Server, 1}
	must(t, c.Start(m.spec(part, "serve")))
	m.next()
	must(t, c.Kill(part, true))
	if e := await(t, events, ProcessDied); !e.Held {
		t.Errorf("death: %+v, want a held place", e)
	}
	if s := standing(t, c); !slices.Equal(s, []stands{{held: true, incarnation: 1}}) {
		t.Errorf("places %+v, want one that is empty and held", s)
	}
	must(t, c.Release(part))
	m.next().answers()
	if s := standing(t, c); !slices.Equal(s, []stands{{running: true, incarnation: 2}}) {
		t.Errorf("places %+v, want one with its second life", s)
	}
}

func TestAPausedProcessGoesOnWhereItStopped(t *testing.T) {
	m := newMeeting(t)
	c, events := m.cluster(Config{})
	part := Part{Worker, 0}
	must(t, c.Start(m.spec(part, "serve")))
	g := m.next()
	must(t, c.Pause(part))
	await(t, events, ProcessPaused)
	waitForState(t, g.pid, 'T')
	must(t, c.Resume(part))
	await(t, events, ProcessResumed)
	g.answers()
}

// waitForState waits until the kernel reports that the process is in a state.
func waitForState(t *testing.T, pid int, state byte) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		must(t, err)
		if i := bytes.LastIndexByte(stat, ')'); i >= 0 && stat[i+2] == state {
			return
		}
	}
	t.Fatalf("process %d is not in state %c", pid, state)
}

func TestAProcessWithAWrongFlagEndsTheRunWithItsWords(t *testing.T) {
	m := newMeeting(t)
	c, _ := m.cluster(Config{})
	must(t, c.Start(Spec{Part: Part{Worker, 2}, Args: []string{"exit", "78", "unknown flag --speed"}}))
	err := failure(t, c)
	for _, want := range []string{"worker/2", "exit status 78", "worker-2.log", "| unknown flag --speed"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("the error does not wrap ErrUsage: %v", err)
	}
}

// Go's runtime ends a process that panics with status 2, and prints the stacks of all goroutines
// after the reason.
func TestACrashIsADeathLikeOthersAndItsReasonIsShown(t *testing.T) {
	m := newMeeting(t)
	c, events := m.cluster(Config{Restart: RestartPolicy{First: time.Millisecond, Window: time.Hour}})
	must(t, c.Start(Spec{Part: Part{Worker, 2}, Args: []string{"exit", "2", "panic: index out of range [3]\n\n" + strings.Repeat("goroutine 1 [running]:\n", 100)}}))
	if e := await(t, events, ProcessDied); e.Exit.String() != "crashed (exit status 2): panic: index out of range [3]" {
		t.Errorf("the death is told as %q", e.Exit)
	}
	if err := failure(t, c); !strings.Contains(err.Error(), "died 5 times") || !strings.Contains(err.Error(), "the crash in ") || !strings.Contains(err.Error(), "| panic: index out of range [3]") {
		t.Errorf("the error does not say why: %v", err)
	}
}

func TestWhyAProcessEndedIsItsOwnLastWord(t *testing.T) {
	m := newMeeting(t)
	c, events := m.cluster(Config{})
	must(t, c.Start(Spec{Part: Part{Worker, 0}, Args: []string{"exit", "1", "warming up\nkintsugi: no space left on device"}}))
	if e := await(t, events, ProcessDied); e.Exit.String() != "exit status 1: no space left on device" {
		t.Errorf("the death is told as %q", e.Exit)
	}
}

func TestACrashLoopEndsTheRunWithTheEndOfTheLog(t *testing.T) {
	m := newMeeting(t)
	c, events := m.cluster(Config{Restart: RestartPolicy{First: time.Millisecond, Window: time.Hour}})
	must(t, c.Start(Spec{Part: Part{Server, 0}, Args: []string{"exit", "1", "address in use"}}))
	err := failure(t, c)
	for _, want := range []string{"server/0", "died 5 times", "| address in use"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("the error wraps ErrUsage: %v", err)
	}
	if e := await(t, events, ProcessGivenUp); e.Incarnation != 5 {
		t.Errorf("given up: %+v, want the fifth life", e)
	}
}

func failure(t *testing.T, c *Cluster) error {
	t.Helper()
	select {
	case err := <-c.Failed():
		return err
	case <-time.After(patience):
		t.Fatal("the run did not end")
		return nil
	}
}

func TestAFinishedProcessIsNotStartedAgain(t *testing.T) {
	m := newMeeting(t)
	c, events := m.cluster(Config{})
	part := Part{Worker, 0}
	must(t, c.Start(Spec{Part: part, Args: []string{"exit", "0", "done"}}))
	await(t, events, ProcessFinished)
	must(t, c.Kill(part, true)) // faults on it have no effect
	must(t, c.Release(part))
	if s := standing(t, c); !slices.Equal(s, []stands{{incarnation: 1}}) {
		t.Errorf("places %+v, want one with a finished life", s)
	}
}

// stands is the state of a place.
type stands struct {
	running, held bool
	incarnation   int
}

// standing returns the state of every place, in the order of their start.
func standing(t *testing.T, c *Cluster) (all []stands) {
	t.Helper()
	must(t, c.call(func() error {
		for _, p := range c.places {
			all = append(all, stands{p.running(), p.held, p.incarnation})
		}
		return nil
	}))
	return all
}

func TestStopEndsWorkersBeforeServersBeforeTheCoordinator(t *testing.T) {
	m := newMeeting(t)
	c, events := m.cluster(Config{})
	for _, part := range []Part{{Role: Coordinator}, {Server, 0}, {Worker, 0}} {
		must(t, c.Start(m.spec(part, "serve")))
		m.next()
	}
	must(t, c.Pause(Part{Server, 0})) // a paused process is woken, so that it receives the signal
	must(t, c.Stop(context.Background()))
	for _, want := range []Role{Worker, Server, Coordinator} {
		if e := await(t, events, ProcessFinished); e.Part.Role != want {
			t.Errorf("%s ended, want %s", e.Part, want)
		}
	}
	if err := c.Start(m.spec(Part{Worker, 9}, "serve")); !errors.Is(err, ErrStopped) {
		t.Errorf("start after stop: %v, want ErrStopped", err)
	}
	must(t, c.Stop(context.Background()))
}

func TestAProcessThatIgnoresSIGINTIsKilledAfterTheGrace(t *testing.T) {
	m := newMeeting(t)
	c, events := m.cluster(Config{Grace: time.Millisecond})
	must(t, c.Start(m.spec(Part{Worker, 0}, "stubborn")))
	g := m.next()
	must(t, c.Stop(context.Background()))
	g.dies()
	if e := await(t, events, ProcessFinished); e.Exit.Signal != "killed" {
		t.Errorf("it ended with %v, want SIGKILL", e.Exit)
	}
}

// A process with notice is killed when the warning is over, and not before. Then its next life
// starts.
func TestAProcessThatHasNoticeIsKilledWhenItsTimeIsUp(t *testing.T) {
	m := newMeeting(t)
	warning := 50 * time.Millisecond
	c, events := m.cluster(Config{Warning: warning})
	part := Part{Server, 0}
	must(t, c.Start(m.spec(part, "clinging")))
	m.next()
	began := time.Now()
	must(t, c.Notice(part))
	e := await(t, events, ProcessDied)
	if took := e.Time.Sub(began); !e.Exit.Injected || e.Left() || e.NoticedAt.Before(began) || took < warning {
		t.Errorf("it ended with %v after %v", e.Exit, took)
	}
	m.next()
}

// A process has notice once in a life, however often it is given. One that leaves in time is not
// killed, and its next life starts.
func TestAProcessThatHasNoticeMayLeave(t *testing.T) {
	m := newMeeting(t)
	c, events := m.cluster(Config{Warning: time.Hour})
	server, worker := Part{Server, 0}, Part{Worker, 0}
	must(t, c.Start(m.spec(server, "clinging")))
	m.next()
	must(t, c.Start(m.spec(worker, "leaving")))
	m.next()
	must(t, c.Notice(server))
	must(t, c.Notice(server))
	must(t, c.Notice(worker))
	for _, want := range []Part{server, worker} {
		if e := await(t, events, ProcessNoticed); e.Part != want {
			t.Errorf("%s had notice; want %s, each once", e.Part, want)
		}
	}
	if e := await(t, events, ProcessDied); !e.Left() || e.Part != worker || e.Exit.PeakBytes < 1<<20 {
		t.Errorf("%s ended with %+v; want %s to have left", e.Part, e.Exit, worker)
	}
	m.next()
	must(t, c.Stop(context.Background()))
	if err := c.Notice(server); !errors.Is(err, ErrStopped) {
		t.Errorf("notice after stop: %v", err)
	}
}

func TestACancelledStopKillsEverythingAtOnce(t *testing.T) {
	m := newMeeting(t)
	c, _ := m.cluster(Config{Grace: time.Hour})
	must(t, c.Start(m.spec(Part{Worker, 0}, "stubborn")))
	must(t, c.Start(m.spec(Part{Server, 0}, "stubborn")))
	a, b := m.next(), m.next()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	must(t, c.Stop(ctx))
	a.dies()
	b.dies()
}

func TestLogsHoldEveryLifeUnderItsHeader(t *testing.T) {
	m := newMeeting(t)
	c, events := m.cluster(Config{})
	part := Part{Server, 0}
	must(t, c.Start(m.spec(part, "serve")))
	m.next()
	must(t, c.Kill(part, false))
	m.next()
	must(t, c.Stop(context.Background()))
	await(t, events, ProcessFinished)
	text, err := os.ReadFile(filepath.Join(c.cfg.Logs, "server-0.log"))
	must(t, err)
	rest := string(text)
	for _, want := range []string{
		"incarnation 1: kintsugi serve server/0", "server/0 serves", "incarnation 1 ended after", "killed by a fault",
		"incarnation 2: kintsugi serve server/0", "server/0 serves", "incarnation 2 ended after", "signal: interrupt",
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("after what came before, the log does not hold %q:\n%s", want, text)
		}
		rest = after
	}
}

// Nothing that a launcher started outlives it, even if it is killed and cannot act.
func TestChildrenDieWithALauncherThatIsKilled(t *testing.T) {
	m := newMeeting(t)
	launcher := exec.Command(os.Args[0], "launch", m.socket, filepath.Join(t.TempDir(), "logs"))
	launcher.Stderr = os.Stderr
	must(t, launcher.Start())
	t.Cleanup(func() { launcher.Process.Kill(); launcher.Wait() })
	guests := map[string]*guest{}
	for range 4 {
		g := m.next()
		guests[g.name] = g
	}
	for name, g := range guests {
		group, err := syscall.Getpgid(g.pid)
		must(t, err)
		if name != "launcher" && group != g.pid {
			t.Errorf("%s is in the process group %d, want its own, %d", name, group, g.pid)
		}
	}
	must(t, launcher.Process.Signal(syscall.SIGKILL))
	for _, g := range guests {
		g.dies()
	}
}

func TestABinaryThatDoesNotExistIsReportedAtTheStart(t *testing.T) {
	c, err := New(Config{Binary: "/does/not/exist", Logs: t.TempDir()})
	must(t, err)
	defer c.Stop(context.Background())
	if err := c.Start(Spec{Part: Part{Server, 0}}); err == nil || !strings.Contains(err.Error(), "start server/0:") {
		t.Errorf("got %v, want an error about server/0", err)
	}
	if err := c.Kill(Part{Server, 0}, false); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("kill of a part that never started: %v", err)
	}
}

func TestTheInjectorDoesWhatTheFaultsSay(t *testing.T) {
	m := newMeeting(t)
	c, events := m.cluster(Config{})
	must(t, c.Start(m.spec(Part{Server, 0}, "serve")))
	m.next()
	faults, err := ParseFaults([]string{
		"kill server/0 at step 5 for 10ms", "slow worker/1 x3 from step 5 to step 6", "kill worker/0 at step 99",
	})
	must(t, err)
	control := filepath.Join(t.TempDir(), "control")
	actions := make(chan Action, 10)
	in := NewInjector(NewSchedule(faults), c, SlowFiles(control), func(a Action, err error) {
		if err != nil {
			t.Errorf("%s %s: %v", a.Kind, a.Part, err)
		}
		actions <- a
	})
	ctx, cancel := context.WithCancel(context.Background())
	unreached := make(chan []Fault, 1)
	go func() { unreached <- in.Run(ctx, time.Now()) }()
	in.Released(4)
	in.Released(5)
	await(t, events, ProcessKilled)
	for got := ActionKind(0); got != ActSlow; got = (<-actions).Kind {
	}
	if x, err := SlowFactor(control, 1); err != nil || x != 3 {
		t.Errorf("slow factor %v, %v; want 3", x, err)
	}
	m.next().answers() // it came back by itself
	in.Released(6)
	for got := ActionKind(0); got != ActUnslow; got = (<-actions).Kind {
	}
	if x, err := SlowFactor(control, 1); err != nil || x != 1 {
		t.Errorf("slow factor %v, %v; want 1", x, err)
	}
	cancel()
	if left := <-unreached; len(left) != 1 || left[0] != faults[2] {
		t.Errorf("unreached faults %v, want %v", left, faults[2:])
	}
}

func TestAWorkerWithoutAControlFileIsNotSlow(t *testing.T) {
	dir := t.TempDir()
	if x, err := SlowFactor(dir, 0); x != 1 || err != nil {
		t.Errorf("got %v, %v; want 1", x, err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "worker-0.json"), []byte(`{"slow_factor": -2}`), 0o666))
	if x, err := SlowFactor(dir, 0); x != 1 || err == nil {
		t.Errorf("got %v, %v; want 1 and an error", x, err)
	}
}
