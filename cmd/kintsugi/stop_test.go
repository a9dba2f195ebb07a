package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/etcd"
)

// A run whose processes were started one by one is ended by one command, with its newest step saved.
// It stays ended until that is taken back, and then goes on to the bits of a run that nobody ended.
func TestARunOnSeveralHostsIsStoppedAndGoesOn(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := t.TempDir()
	file, endpoint, store := filepath.Join(dir, "run.yaml"), freeAddress(t), filepath.Join(dir, "store")
	const settings = "model: qp:dimension=4000,condition=30,noise=0.1\nblas: gonum\nworkers: 2\nservers: 2\nsteps: 120\n"
	if err := os.WriteFile(file, []byte(settings), 0o666); err != nil {
		t.Fatal(err)
	}
	start(t, "etcd", "--listen", endpoint, "--peer", "a="+freeAddress(t), "--dir", filepath.Join(dir, "etcd"))
	waitListening(t, endpoint)
	role := func(name string, more ...string) *childProcess {
		return start(t, append([]string{name, "--config", file, "--etcd", endpoint, "--store", store}, more...)...)
	}
	stop := func(more ...string) result {
		return kin(t, append([]string{"stop", "--etcd", endpoint}, more...)...)
	}
	ended := func(all []*childProcess) {
		t.Helper()
		for _, p := range all {
			if r := p.wait(); r.status != exitDone {
				t.Errorf("%v ended with status %d: %s", p.cmd.Args[1:], r.status, r.stderr)
			}
		}
	}
	if r := stop(); r.status != exitFailed || !strings.Contains(r.stderr, "knows nothing of this run") {
		t.Errorf("a run that nobody has started was stopped with status %d: %s%s", r.status, r.stdout, r.stderr)
	}
	everybody := func(more ...string) []*childProcess {
		return []*childProcess{
			role("coordinator", "--end-with-run"), role("server", "--index", "0", "--end-with-run"), role("server", "--index", "1", "--end-with-run"),
			role("worker", append([]string{"--index", "0"}, more...)...), role("worker", append([]string{"--index", "1"}, more...)...),
		}
	}
	all := everybody("--gradient-time", "20ms") // so that it is not over before it is stopped
	client, err := etcd.Dial(t.Context(), []string{endpoint}, "default")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	eventually(t, "the run has begun", func() bool {
		v, _, err := client.View(t.Context())
		return err == nil && v != nil
	})
	if r := stop("--undo"); r.status != exitFailed || !strings.Contains(r.stderr, "end all of them first") {
		t.Errorf("while it ran, its end was taken back with status %d: %s%s", r.status, r.stdout, r.stderr)
	}
	r := stop("--reason", "good enough")
	done, err := client.Done(t.Context())
	if err != nil || done == nil {
		t.Fatalf("the run is not over: %v; %s%s", err, r.stdout, r.stderr)
	}
	if want := fmt.Sprintf("run default ended at step %d: good enough\n", done.Step); r.status != exitDone || !strings.HasSuffix(r.stdout, want) || done.Step >= 120 || !done.Saved {
		t.Errorf("stop ended with status %d and said\n%s%swant %q, of a saved step below 120: %+v", r.status, r.stdout, r.stderr, want, *done)
	}
	ended(all)
	if saved := must(t, "checkpoint", "list", store); !strings.Contains(saved, fmt.Sprintf("\n%d ", done.Step)) {
		t.Errorf("there is no checkpoint of step %d:\n%s", done.Step, saved)
	}
	if again := stop(); again.status != exitDone || !strings.HasPrefix(again.stdout, "run default was over already\n") {
		t.Errorf("stopped twice: status %d: %s%s", again.status, again.stdout, again.stderr)
	}
	ended(everybody()) // it stays ended
	if d, err := client.Done(t.Context()); err != nil || *d != *done {
		t.Errorf("started again without --undo, it ended with %+v, %v; want %+v", d, err, *done)
	}
	if r := stop("--undo"); r.status != exitDone || !strings.Contains(r.stdout, "may be started again") {
		t.Errorf("--undo ended with status %d: %s%s", r.status, r.stdout, r.stderr)
	}
	ended(everybody())
	undisturbed := newDir(t)
	must(t, quadratic(120, "--out", undisturbed)...)
	sameBits(t, store, undisturbed)
}

// A run that has done its steps and goes on with more is not over, whatever was said before.
func TestARunThatGoesOnWithMoreStepsIsNotOver(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := t.TempDir()
	endpoint, store := freeAddress(t), filepath.Join(dir, "store")
	start(t, "etcd", "--listen", endpoint, "--peer", "a="+freeAddress(t), "--dir", filepath.Join(dir, "etcd"))
	waitListening(t, endpoint)
	with := func(steps int, worker ...string) []*childProcess {
		flags := []string{"--model", "qp", "--workers", "1", "--servers", "1", "--steps", fmt.Sprint(steps), "--etcd", endpoint, "--store", store}
		return []*childProcess{
			start(t, append([]string{"coordinator"}, flags...)...), start(t, append([]string{"server", "--index", "0"}, flags...)...),
			start(t, append(append([]string{"worker", "--index", "0"}, flags...), worker...)...),
		}
	}
	all := with(10)
	all[2].wait()
	status := func() string { return kin(t, "status", "--etcd", endpoint, "--listen-for", "300ms").stdout }
	if s := status(); !strings.HasPrefix(s, "run default: over at step 10: all steps are done\n") {
		t.Errorf("at its end the status is\n%s", s)
	}
	for _, p := range all[:2] {
		p.signal(syscall.SIGTERM)
		p.wait()
	}
	with(100000, "--gradient-time", "10ms")
	eventually(t, "the run goes on with more steps", func() bool {
		s := status()
		return strings.HasPrefix(s, "run default: step ") && !strings.HasPrefix(s, "run default: step 10;")
	})
	if r := kin(t, "stop", "--etcd", endpoint, "--reason", "enough"); r.status != exitDone || !strings.HasSuffix(r.stdout, ": enough\n") || strings.Contains(r.stdout, "step 10:") {
		t.Errorf("stop ended with status %d: %s%s", r.status, r.stdout, r.stderr)
	}
}
