package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAnInterruptedRunGoesOnAsIfNothingHadBeen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		signal syscall.Signal
		status int
		stderr string
	}{
		{syscall.SIGINT, exitInterrupted, ""},
		{syscall.SIGHUP, exitInterrupted, ""},
		{syscall.SIGTERM, exitPreempted, "kintsugi: preempted: start it again with --resume"},
	} {
		t.Run(c.signal.String(), func(t *testing.T) {
			if c.signal != syscall.SIGINT {
				onlyLong(t)
			}
			if signal.Ignored(c.signal) { // as with nohup, which child processes would inherit
				caught := make(chan os.Signal, 1)
				signal.Notify(caught, c.signal)
				t.Cleanup(func() { signal.Ignore(c.signal) })
			}
			dir, want := newDir(t), newDir(t)
			must(t, quadratic(200, "--out", want)...)
			p := start(t, quadratic(200, "--gradient-time", "5ms", "--checkpoint-every", "20", "--out", dir)...)
			p.reaches(dir, 40)
			p.signal(c.signal)
			r := p.wait()
			if r.status != c.status || !strings.Contains(r.stderr, c.stderr) {
				t.Fatalf("exit status %d:\n%s; want %d and %q", r.status, r.stderr, c.status, c.stderr)
			}
			noOrphans(t, dir)
			run := readRun(t, dir)
			step, _ := lastParams(t, dir)
			if newest := run.Summary.Steps; uint64(step) != newest || newest >= 200 {
				t.Errorf("the last checkpoint is of step %d of %d; want the newest step %d", step, 200, newest)
			}
			if !strings.Contains(r.stdout, "--resume "+dir) {
				t.Errorf("it does not say how to go on:\n%s", r.stdout)
			}
			must(t, "train", "--resume", dir)
			sameBits(t, dir, want)
		})
	}
}

// Somebody removes the run's folder while it runs. That is not a wrong flag (status 2), and the
// message must not advise another folder.
func TestARunWhoseFolderIsTakenAwaySaysSo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		steps, status int
	}{{300, exitFailed}, {1000000, exitInterrupted}} {
		dir := newDir(t)
		p := start(t, quadratic(c.steps, "--out", dir, "--gradient-time", "5ms")...)
		p.reaches(dir, 20)
		if err := os.Remove(filepath.Join(dir, "events.jsonl")); err != nil {
			t.Fatal(err)
		}
		if c.status == exitInterrupted {
			p.signal(syscall.SIGINT)
		}
		if r := p.wait(); r.status != c.status || !strings.Contains(r.stderr, dir+" has lost the events of this run") || strings.Contains(r.stderr, "--out named") {
			t.Errorf("exit status %d, want %d: %s", r.status, c.status, r.stderr)
		}
	}
}

func TestTheSecondInterruptDoesNotWait(t *testing.T) {
	dir := newDir(t)
	p := start(t, quadratic(100000, "--out", dir, "--fault", "pause server/1 at step 20 for 80s")...)
	p.reaches(dir, 20)
	eventually(t, "server/1 is paused", func() bool { return len(readRun(t, dir).Failures) > 0 })
	p.signal(syscall.SIGINT) // while a server is paused, no last checkpoint can be saved
	eventually(t, "the first interrupt is noticed", func() bool { return len(readRun(t, dir).Notes) > 0 })
	began := time.Now()
	p.signal(syscall.SIGINT)
	if r := p.wait(); r.status != exitInterrupted {
		t.Errorf("exit status %d:\n%s", r.status, r.stderr)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it ended after %v", took)
	}
	noOrphans(t, dir)
}

func TestNoProcessOutlivesItsLauncher(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	p := start(t, quadratic(100000, "--checkpoint-every", "20", "--out", dir)...)
	p.reaches(dir, 20)
	eventually(t, "a checkpoint is published", func() bool { return len(readRun(t, dir).Checkpoints) > 0 })
	if n := len(leftOf(t, dir)); n != 6 { // launcher, coordinator, two servers, two workers
		t.Errorf("%d processes run; want 6", n)
	}
	p.signal(syscall.SIGKILL)
	p.wait()
	eventually(t, "every process has ended", func() bool { return len(leftOf(t, dir)) == 0 })
	// What it left is a run that can be read and resumed.
	step, _ := lastParams(t, dir)
	must(t, "train", "--resume", dir, "--steps", strconv.Itoa(int(step)+50))
	if s := readRun(t, dir).Summary; s.Steps != uint64(step)+50 || len(s.Restores) != 1 || s.Restores[0].RestoredStep != uint64(step) {
		t.Errorf("it went on to step %d, restores %+v; want %d more than %d", s.Steps, s.Restores, 50, step)
	}
}

// Nor does it need the server that a fault has killed, once that is done. A fault that waits is another matter.
func TestAResumedRunDoesNotRepeatItsFaults(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := newDir(t)
	must(t, quadratic(100, "--out", dir, "--fault", "kill server/1 at step 60", "--fault", "kill server/1 at step 7000")...)
	on := []string{"train", "--resume", dir, "--steps", "150", "--servers", "1"}
	if r := kin(t, on...); r.status != exitUsage || !strings.HasSuffix(r.stderr, `or --fault none: fault "kill server/1 at step 7000": server/1: there is 1 server, server/0`+"\n") {
		t.Errorf("without the server of a fault that is to come: exit status %d:\n%s", r.status, r.stderr)
	}
	must(t, append(on, "--fault", "none")...)
	r := readRun(t, dir)
	if r.Summary.Steps != 150 || len(r.Summary.Failures) != 1 {
		t.Errorf("%d steps, failures %+v; want 150 and the one of the first part", r.Summary.Steps, r.Summary.Failures)
	}
}

func TestARunGoesOnOnAnotherNumberOfServers(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	dir, want := newDir(t), newDir(t)
	flags := []string{"--decay", "constant", "--optimizer", "adam", "--learning-rate", "0.01"}
	must(t, quadratic(120, append(flags, "--out", want)...)...)
	must(t, quadratic(60, append(flags, "--out", dir)...)...)
	must(t, "train", "--resume", dir, "--servers", "3", "--steps", "120")
	sameBits(t, dir, want)
}

func TestTwoRunsShareAnEtcdButNotAFolder(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	dir, other := newDir(t), newDir(t)
	p := start(t, quadratic(1000, "--checkpoint-every", "20", "--out", dir)...)
	p.reaches(dir, 20)
	for _, second := range [][]string{{"train", "--resume", dir}, quadratic(20, "--out", dir)} {
		if r := kin(t, second...); r.status == exitDone || !strings.Contains(r.stderr, dir) {
			t.Errorf("%q ended with status %d:\n%s", second, r.status, r.stderr)
		}
	}
	must(t, quadratic(60, "--model", "qp:dimension=100", "--etcd", etcdOf(t, dir), "--out", other)...)
	if s := readRun(t, other).Summary; s.Steps != 60 {
		t.Errorf("the other run did %d steps; want 60", s.Steps)
	}
	noOrphans(t, other)
	p.signal(syscall.SIGINT)
	if r := p.wait(); r.status != exitInterrupted {
		t.Errorf("exit status %d:\n%s", r.status, r.stderr)
	}
	if s := readRun(t, dir).Summary; len(s.Failures) != 0 {
		t.Errorf("failures %+v; want none", s.Failures)
	}
}

func TestThereIsNothingToResumeInARunThatIsOver(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	dir := newDir(t)
	must(t, quadratic(50, "--out", dir)...)
	must(t, "train", "--resume", dir) // nothing is left to be done
	if step, _ := lastParams(t, dir); step != 50 {
		t.Errorf("step %d; want 50", step)
	}
}

// A terminal behind a connection that is gone takes nothing more, and so does less. What train has
// to say is then lost, but not the processes that it would start again.
func TestARunGoesOnIfNobodyReadsItsOutput(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	r, full, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fd := int(full.Fd())
	err = syscall.SetNonblock(fd, true)
	for page := make([]byte, 4096); err == nil; {
		_, err = syscall.Write(fd, page)
	}
	for err = nil; err == nil; {
		_, err = syscall.Write(fd, []byte{'.'})
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	dir := newDir(t)
	p := startWith(t, t.TempDir(), full, quadratic(100, "--out", dir, "--fault", "kill server/1 at step 60")...)
	if err := full.Close(); err != nil {
		t.Fatal(err)
	}
	// A kill may come a step or two after the one that asks for it.
	if r := p.wait(); r.status != exitDone || !strings.Contains(r.stdout, "server/1 failed at step 6") {
		t.Errorf("exit status %d:\n%s", r.status, r.stdout)
	}
}
