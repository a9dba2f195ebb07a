package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
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
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object/objecttest"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// The tests of this package run the command as users do: as processes. The program is the test
// binary itself, which acts as kintsugi if this variable is set. The processes of a cluster inherit
// the variable.
const beKintsugi = "BE_KINTSUGI"

// Exit statuses.
const (
	exitDone        = cli.ExitDone
	exitFailed      = cli.ExitFailed
	exitUsage       = cli.ExitUsage
	exitPreempted   = cli.ExitPreempted
	exitConfig      = cli.ExitConfig
	exitInterrupted = cli.ExitInterrupted
	exitTerminated  = cli.ExitTerminated
)

// patience bounds every wait. It is long, because a busy machine is not a failure.
const patience = 90 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(program.Variable) != "" {
		beProgram()
		return
	}
	if os.Getenv(beKintsugi) != "" {
		main()
		return
	}
	os.Setenv("AWS_ACCESS_KEY_ID", objecttest.Key) // of the object stores, for any test that starts one
	os.Setenv("AWS_SECRET_ACCESS_KEY", objecttest.Secret)
	os.Setenv("AZURE_STORAGE_KEY", objecttest.AccountKey)
	os.Exit(m.Run())
}

// A childProcess is a started kintsugi, which may still run.
type childProcess struct {
	t              *testing.T
	cmd            *exec.Cmd
	patience       context.Context
	stdout, stderr bytes.Buffer
	ended          chan struct{} // closed after the process has ended and was waited for
}

// A result is the outcome of a process.
type result struct {
	status         int // exit status, -1 if a signal ended it
	stdout, stderr string
}

// start starts kintsugi with args. Leading args that begin with KINTSUGI_ or XDG_ are its environment. The
// process is killed when the test ends or when patience runs out.
func start(t *testing.T, args ...string) *childProcess {
	t.Helper()
	return startIn(t, t.TempDir(), args...) // files that it writes unasked must not end up in the source tree
}

// startIn is start with a working directory.
func startIn(t *testing.T, dir string, args ...string) *childProcess {
	t.Helper()
	return startWith(t, dir, nil, args...)
}

// startWith is start with a working directory, and a file for the standard error unless that is nil.
func startWith(t *testing.T, dir string, stderr *os.File, args ...string) *childProcess {
	t.Helper()
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "KINTSUGI_") && !strings.HasPrefix(v, "KINTSUGI_EMU_") // these are for the emulation of a GPU
	})
	env = append(env, beKintsugi+"=1")
	for len(args) > 0 && (strings.HasPrefix(args[0], "KINTSUGI_") || strings.HasPrefix(args[0], "XDG_")) {
		env, args = append(env, args[0]), args[1:]
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	p := &childProcess{t: t, cmd: exec.CommandContext(ctx, "/proc/self/exe", args...), patience: ctx, ended: make(chan struct{})}
	p.cmd.Args[0], p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = "kintsugi", env, &p.stdout, &p.stderr
	p.cmd.Dir, p.cmd.WaitDelay = dir, time.Second
	if stderr != nil {
		p.cmd.Stderr = stderr
	}
	if err := p.cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState has the details
		close(p.ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-p.ended
	})
	return p
}

// wait waits until the process has ended.
func (p *childProcess) wait() result {
	p.t.Helper()
	<-p.ended
	if p.patience.Err() != nil {
		p.t.Fatalf("%q did not end:\n%s", p.cmd.Args, p.stderr.String())
	}
	return result{status: p.cmd.ProcessState.ExitCode(), stdout: p.stdout.String(), stderr: p.stderr.String()}
}

func (p *childProcess) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("send %v: %v", s, err)
	}
}

// kin runs kintsugi until it ends.
func kin(t *testing.T, args ...string) result {
	t.Helper()
	return start(t, args...).wait()
}

// must runs kintsugi, which must end with status 0, and returns its output.
func must(t *testing.T, args ...string) string {
	t.Helper()
	r := kin(t, args...)
	if r.status != exitDone {
		t.Fatalf("%q ended with status %d:\n%s%s", args, r.status, r.stdout, r.stderr)
	}
	return r.stdout
}

// onlyLong skips, with -short, a test of several runs that other tests cover in part.
func onlyLong(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes seconds; run it without -short")
	}
}

// quadratic returns the flags of a run that needs no data and computes the same bits everywhere. A
// step takes milliseconds, so a test can interfere in the middle of the run.
func quadratic(steps int, more ...string) []string {
	return append([]string{
		"train", "--model", "qp:dimension=4000,condition=30,noise=0.1", "--blas", "gonum", "--workers", "2", "--servers", "2",
		"--steps", strconv.Itoa(steps),
	}, more...)
}

// newDir returns the path of a run folder that does not exist yet. When the test ends, none of the
// processes of its run may have crashed: the run would have gone on without it.
func newDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	t.Cleanup(func() {
		if crashes, err := record.Crashes(dir); len(crashes) > 0 || err != nil {
			t.Errorf("processes of a run have crashed: %s; error %v", strings.Join(crashes, "; "), err)
		}
	})
	return dir
}

// readRun reads a run folder.
func readRun(t *testing.T, dir string) *record.Run {
	t.Helper()
	r, err := record.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lastParams reads the parameters of the newest checkpoint of a run.
func lastParams(t *testing.T, dir string) (kintsugi.Step, []float32) {
	t.Helper()
	at, err := train.OpenCheckpoints(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := ckpt.Newest(at.FS, at.Dir)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := kintsugi.NewLayout(m.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	params, err := ckpt.Params(t.Context(), at.FS, at.Dir, layout, m)
	if err != nil {
		t.Fatal(err)
	}
	return m.Step, params
}

// sameBits fails unless the runs in two folders ended at the same step with the same parameters,
// bit for bit.
func sameBits(t *testing.T, got, want string) {
	t.Helper()
	gotStep, g := lastParams(t, got)
	wantStep, w := lastParams(t, want)
	if gotStep != wantStep || len(g) != len(w) {
		t.Fatalf("%d parameters of step %d; want %d of step %d", len(g), gotStep, len(w), wantStep)
	}
	differ, first := 0, -1
	for i := range g {
		if math.Float32bits(g[i]) != math.Float32bits(w[i]) {
			if differ++; first < 0 {
				first = i
			}
		}
	}
	if differ > 0 {
		t.Errorf("%d of %d parameters differ, the first is %d: %v; want %v", differ, len(g), first, g[first], w[first])
	}
}

// eventually waits until f returns true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		begin := time.Now()
		if f() {
			return
		}
		if begin.After(deadline) {
			t.Fatalf("it did not come to this: %s", what)
		}
		// To look at a long run takes milliseconds, which the run must not lack.
		<-time.After(max(3*time.Millisecond, 4*time.Since(begin)))
	}
}

// reaches waits until the run in dir has released step. It fails if the run ends earlier.
func (p *childProcess) reaches(dir string, step uint64) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("step %d is released", step), func() bool {
		select {
		case <-p.ended:
			p.t.Fatalf("the run ended before step %d:\n%s", step, p.stderr.String())
		default:
		}
		r, err := record.ReadRun(dir)
		return err == nil && r.Summary.Steps >= step
	})
}

// leftOf returns the processes that have dir in their arguments: those of the run in it.
func leftOf(t *testing.T, dir string) map[int]string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	left := map[int]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(text, []byte(dir)) {
			continue // it has ended meanwhile, or belongs to another user
		}
		pid, err := strconv.Atoi(strings.Split(f, "/")[2])
		if err != nil {
			t.Fatal(err)
		}
		left[pid] = string(bytes.ReplaceAll(text, []byte{0}, []byte{' '}))
	}
	return left
}

// noOrphans fails if a process of the run in dir is alive.
func noOrphans(t *testing.T, dir string) {
	t.Helper()
	for pid, args := range leftOf(t, dir) {
		t.Errorf("process %d lives on: %s", pid, args)
	}
}

// tree returns the content of every file below dir, by path.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return files
}

// notUnderRace skips a test of many or long processes, or of arithmetic, under the race detector
// with -short. The detector makes it many times slower, and tests of clusters in one process cover
// what its processes do.
func notUnderRace(t *testing.T) {
	t.Helper()
	race.Skip(t)
}
