package program_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/program"
	"github.com/kintsugi-ml/kintsugi/worker/program/programtest"
)

const (
	behaviour = "KINTSUGI_TEST_BEHAVIOUR" // of a program of these tests
	lockFile  = "KINTSUGI_TEST_LOCK"
	howMany   = "KINTSUGI_TEST_VALUES" // number of values of the model, if it is not that of about
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(program.Variable) != "":
		behave(os.Getenv(behaviour))
	case os.Getenv(behaviour) == "a worker":
		beWorker()
	default:
		os.Exit(m.Run())
	}
}

var about = program.Description{
	Name: "two-arrays", Tensors: []kintsugi.Tensor{{Name: "a", Shape: []int{2, 3}}, {Name: "b", Shape: []int{5}}}, Examples: 9, Batch: 4, Evaluates: true,
}

// behaviours are what a program does, instead of what it should, when it is asked for a gradient.
var behaviours = map[string]func(p *programtest.Program, q programtest.Question) error{
	"end": func(*programtest.Program, programtest.Question) error { os.Exit(0); return nil },
	"die": func(*programtest.Program, programtest.Question) error {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	},
	"fail": func(*programtest.Program, programtest.Question) error {
		fmt.Println("one\nno memory left")
		os.Exit(3)
		return nil
	},
	"hang up": func(p *programtest.Program, _ programtest.Question) error { return p.Close() },
	"hang up and stay": func(*programtest.Program, programtest.Question) error {
		if err := syscall.Shutdown(3, syscall.SHUT_RDWR); err != nil {
			return err
		}
		<-time.After(time.Hour) // for ever; without a C thread, Go's runtime would find a deadlock and end
		return nil
	},
	"hang": func(*programtest.Program, programtest.Question) error {
		<-time.After(time.Hour)
		return nil
	},
	"hang, whatever comes": func(*programtest.Program, programtest.Question) error {
		signal.Ignore(syscall.SIGQUIT)
		<-time.After(time.Hour)
		return nil
	},
	"babble":    func(p *programtest.Program, _ programtest.Question) error { return p.Say("hello") },
	"long line": func(p *programtest.Program, _ programtest.Question) error { return p.Say(strings.Repeat("a", 16<<20)) },
	"answer another": func(p *programtest.Program, q programtest.Question) error {
		return p.Answer(map[string]any{"id": q.ID + 1, "loss": 1})
	},
	"forget how many": func(p *programtest.Program, q programtest.Question) error { // without indices, only the program knows the number
		return p.Answer(map[string]any{"id": q.ID, "loss": 1})
	},
	"nothing at all": func(p *programtest.Program, q programtest.Question) error {
		return p.Answer(map[string]any{"id": q.ID, "loss": 1})
	},
	"complain": func(p *programtest.Program, q programtest.Question) error {
		return p.Answer(map[string]any{"id": q.ID, "error": "the data are gone"})
	},
	"no number": func(p *programtest.Program, q programtest.Question) error {
		return p.Answer(map[string]any{"id": q.ID, "loss": nil, "examples": 1})
	},
	"take long": func(p *programtest.Program, q programtest.Question) error { // until nobody wants it any more
		if q.Version == 0 {
			fmt.Println("at it")
			for p.Wanted() == q.ID {
			}
		}
		for i := range p.Grads() {
			p.Grads()[i] = float32(q.Version)
		}
		return p.Answer(map[string]any{"id": q.ID, "loss": 1, "examples": 1})
	},
	"read late": func(p *programtest.Program, q programtest.Question) error { // what the parameters come to some time after nobody wants it any more
		if q.Version == 0 {
			fmt.Println("at it")
			for p.Wanted() == q.ID {
			}
			for range 100_000 {
				late = 0
				for _, v := range p.Params() {
					late += float64(v)
				}
			}
		}
		p.Grads()[0] = p.Params()[0]
		return p.Answer(map[string]any{"id": q.ID, "loss": late, "examples": 1})
	},
	"repeat": func(p *programtest.Program, q programtest.Question) error { // what it was asked
		p.Grads()[0], p.Grads()[1], p.Grads()[2] = float32(q.Slot), float32(q.Version), float32(q.Sequence)
		for i, x := range q.Indices {
			p.Grads()[3+i] = float32(x)
		}
		return p.Answer(map[string]any{"id": q.ID, "loss": float64(q.Seed), "examples": 7})
	},
}

var late float64 // what the behaviour "read late" has read

func behave(how string) {
	about := about
	if n, err := strconv.Atoi(os.Getenv(howMany)); err == nil {
		about.Tensors = []kintsugi.Tensor{{Name: "a", Shape: []int{n}}}
	}
	p, err := programtest.Open(os.Getenv(program.Variable), about)
	if err != nil {
		panic(err)
	}
	if path := os.Getenv(lockFile); path != "" {
		lock(path)
	}
	if behaviours[how] == nil {
		if err := p.Serve(); err != nil {
			panic(err)
		}
		return
	}
	for {
		q, err := p.Next()
		switch {
		case err != nil:
			return
		case q.Ask == "gradient":
			err = behaviours[how](p, q)
		case q.Ask == "describe":
			err = p.Describe(q.ID)
		default:
			err = p.Answer(map[string]any{"id": q.ID})
		}
		if err != nil {
			return
		}
	}
}

// start starts a program with the given behaviour.
func start(t *testing.T, how string) *program.Program {
	t.Helper()
	return startWith(t, how, program.Config{})
}

// startWith is start with some settings.
func startWith(t *testing.T, how string, cfg program.Config) *program.Program {
	t.Helper()
	t.Setenv(behaviour, how)
	cfg.Command, cfg.Seed, cfg.Slots = []string{"/proc/self/exe"}, 3, 2
	p, err := program.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestAProgramInitialisesComputesAndEvaluates(t *testing.T) {
	p := start(t, "")
	got := p.About()
	if err := about.Differs(&got); err != nil || got.Batch != 4 || !got.Evaluates {
		t.Fatalf("it describes %+v, %v", got, err)
	}
	params, grads, want := make([]float32, 11), make([]float32, 11), make([]float32, 11)
	if err := p.Initialise(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(params, []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) {
		t.Fatalf("initial parameters %v", params)
	}
	for version := range kintsugi.Step(20) {
		indices := []int{int(version), 2, 3}
		loss, n, err := p.Gradient(t.Context(), params, grads, program.Request{ID: kintsugi.PushID{Version: version}, Indices: indices})
		if err != nil {
			t.Fatal(err)
		}
		if l := programtest.Gradient(want, params, indices); loss != l || n != 3 || !slices.Equal(grads, want) {
			t.Fatalf("version %d: loss %v of %d, gradient %v; want %v of 3, %v", version, loss, n, grads, l, want)
		}
		for i := range params {
			params[i] -= 0.25 * grads[i]
		}
	}
	loss, accuracy, n, err := p.Evaluate(t.Context(), params)
	if l := programtest.Gradient(nil, params, []int{4}); err != nil || loss != l || accuracy != 0.5 || n != 1 {
		t.Fatalf("evaluates to %v, %v on %d, %v; want a loss of %v", loss, accuracy, n, err, l)
	}
}

func TestAProgramIsToldExactlyWhichGradient(t *testing.T) {
	p := start(t, "repeat")
	grads := make([]float32, 11)
	r := program.Request{ID: kintsugi.PushID{Slot: 5, Version: 1 << 20, Sequence: 9}, Seed: math.MaxUint64, Indices: []int{8, 0, 6}}
	seed, n, err := p.Gradient(t.Context(), make([]float32, 11), grads, r)
	if err != nil || seed != 1<<53-1 || n != 7 || !slices.Equal(grads[:6], []float32{5, 1 << 20, 9, 8, 0, 6}) {
		t.Fatalf("it was told %v, a seed of %v, and answers of %d examples, %v", grads, seed, n, err)
	}
}

func TestAGradientThatNobodyWaitsForIsPassedOver(t *testing.T) {
	p, ctx := startUntil(t, "take long")
	grads := make([]float32, 11)
	_, _, err := p.Gradient(ctx, grads, grads, program.Request{Indices: []int{1}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("the gradient that was given up: %v", err)
	}
	for version := kintsugi.Step(1); version < 4; version++ {
		_, _, err := p.Gradient(t.Context(), make([]float32, 11), grads, program.Request{ID: kintsugi.PushID{Version: version}, Indices: []int{1}})
		if err != nil || grads[0] != float32(version) {
			t.Fatalf("after it: gradient %v of version %d, %v", grads, version, err)
		}
	}
}

// Parameters that are written where the program reads them need no copy, and are written only when an
// earlier question is over, even if nobody waits for its answer.
func TestParametersCanBeWrittenWhereTheyAreRead(t *testing.T) {
	p, ctx := startUntil(t, "read late")
	m, err := p.Memory(t.Context())
	params, own := m.Params, m.Grads
	if err != nil || len(params) != 11 || len(own) != 11 || m.Touched != nil {
		t.Fatal(len(params), len(own), len(m.Touched), err)
	}
	write := func(v float32) {
		if err := p.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range params {
			params[i] = v
		}
	}
	write(1)
	grads := make([]float32, 11)
	if _, _, err = p.Gradient(ctx, params, grads, program.Request{Indices: []int{1}}); !errors.Is(err, context.Canceled) {
		t.Fatalf("the gradient that was given up: %v", err)
	}
	for version := kintsugi.Step(1); version < 4; version++ {
		write(float32(10 * version))
		saw, _, err := p.Gradient(t.Context(), params, grads, program.Request{ID: kintsugi.PushID{Version: version}, Indices: []int{1}})
		if err != nil || grads[0] != float32(10*version) || params[0] != float32(10*version) {
			t.Fatalf("version %d: gradient %v at %v, %v", version, grads, params, err)
		}
		if saw != 11 {
			t.Fatalf("the gradient that was given up has seen parameters that come to %v, and was to see 11", saw)
		}
	}
	if _, _, err := p.Gradient(t.Context(), params, own, program.Request{ID: kintsugi.PushID{Version: 4}, Indices: []int{1}}); err != nil || own[0] != 30 {
		t.Errorf("a gradient that is read where it was left: %v, %v", own, err)
	}
	// Others are copied as before.
	if _, _, err := p.Gradient(t.Context(), make([]float32, 11), grads, program.Request{ID: kintsugi.PushID{Version: 5}, Indices: []int{1}}); err != nil || grads[0] != 0 || params[0] != 0 {
		t.Errorf("gradient %v at %v, %v; all parameters are 0", grads, params, err)
	}
}

// startUntil starts a program, and returns a context that ends when the program says that it is at it.
func startUntil(t *testing.T, how string) (*program.Program, context.Context) {
	t.Helper()
	t.Setenv(behaviour, how)
	ctx, cancel := context.WithCancel(t.Context())
	p, err := program.Start(t.Context(), program.Config{Command: []string{"/proc/self/exe"}, Output: when("at it", cancel)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p, ctx
}

// when calls do when the text has been written.
func when(text string, do func()) writer {
	return func(b []byte) (int, error) {
		if bytes.Contains(b, []byte(text)) {
			do()
		}
		return len(b), nil
	}
}

type writer func(b []byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestAProgramThatDoesNotKeepToTheProtocolIsNamed(t *testing.T) {
	for how, want := range map[string]string{
		"end":              "it ended, and wrote nothing",
		"fail":             `it ended (exit status 3); the last that it wrote is "no memory left"`,
		"die":              "it was killed (signal: killed), as the system does when memory is short, and wrote nothing",
		"hang up":          "it ended, and wrote nothing",
		"hang up and stay": "it broke off the conversation, and was ended 2s later, and wrote nothing",
		"babble":           `"hello" is no answer`,
		"long line":        "it sent a line of more than 16777216 bytes",
		"answer another":   "it answers question 4, and was asked question 3",
		"forget how many":  `it does not say of how many "examples"`,
	} {
		t.Run(how, func(t *testing.T) {
			p := start(t, how)
			params, grads := make([]float32, 11), make([]float32, 11)
			for range 2 { // it stays that way
				_, _, err := p.Gradient(t.Context(), params, grads, program.Request{})
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Fatalf("error %v; want %s", err, want)
				}
			}
		})
	}
}

// A question that was given up counts too: if the program never comes back from it, no other can be asked.
func TestAProgramThatHangsIsEnded(t *testing.T) {
	const after = 50 * time.Millisecond // no other question is asked than one that is never answered
	for _, how := range []string{"hang", "hang, whatever comes"} {
		t.Run(how, func(t *testing.T) {
			var out bytes.Buffer
			p := startWith(t, how, program.Config{HangAfter: after, Output: &out})
			ctx, cancel := context.WithCancel(t.Context())
			if how == "hang" {
				cancel()
			}
			defer cancel()
			params, grads := make([]float32, 11), make([]float32, 11)
			_, _, err := p.Gradient(ctx, params, grads, program.Request{})
			if how == "hang" {
				if !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				_, _, err = p.Gradient(t.Context(), params, grads, program.Request{})
			}
			failure, failed := errors.AsType[program.Failure](err)
			if !failed || !strings.Contains(failure.Error(), "it hangs: no answer within 50ms") {
				t.Fatalf("error %v", err)
			}
			if err := p.Settle(t.Context()); !errors.As(err, &failure) {
				t.Errorf("afterwards it can be asked: %v", err)
			}
			if wrote := strings.Contains(out.String(), "SIGQUIT"); wrote != (how == "hang") { // Go writes where each goroutine stands
				t.Errorf("it wrote %q", out.String())
			}
		})
	}
}

func TestAProgramMayComplainAndGoOn(t *testing.T) {
	p := start(t, "complain")
	for range 3 {
		_, _, err := p.Gradient(t.Context(), make([]float32, 11), make([]float32, 11), program.Request{})
		if err == nil || !strings.HasSuffix(err.Error(), "it says: the data are gone") {
			t.Fatal(err)
		}
	}
}

func TestALossThatIsNoNumber(t *testing.T) {
	p := start(t, "no number")
	if loss, _, err := p.Gradient(t.Context(), make([]float32, 11), make([]float32, 11), program.Request{}); err != nil || !math.IsNaN(loss) {
		t.Fatal(loss, err)
	}
}

func TestWhatIsNoProgram(t *testing.T) {
	for _, c := range []struct {
		command []string
		want    string
	}{
		{nil, "no program to start"},
		{[]string{"./not-there"}, "start ./not-there"},
		{[]string{"true"}, "ask true what it trains: it ended, and wrote nothing. Nothing in it has waited for questions: a program in Python calls run,"},
		{[]string{"sh", "-c", "echo no torch >&2; exit 1"}, `it ended (exit status 1); the last that it wrote is "no torch"`},
		{[]string{"sh", "-c", `echo "ModuleNotFoundError: No module named 'kintsugi'" >&2; exit 1`}, "or copy it beside the program"},
		{[]string{"sh", "-c", `echo '{"id":1,"name":"x"}' >&3; cat <&3`}, `it describes no "tensors"`},
	} {
		if _, err := program.Start(t.Context(), program.Config{Command: c.command}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v; want %s", c.command, err, c.want)
		}
	}
}

// A program that is ended while it starts may yet wait for questions.
func TestAStartThatIsGivenUpIsNotTheProgramsFault(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := program.Start(ctx, program.Config{Command: []string{"cat"}}); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "Nothing in it") {
		t.Error(err)
	}
}

// beWorker starts a program, reports it, and waits to be killed.
func beWorker() {
	if err := os.Setenv(behaviour, ""); err != nil {
		panic(err)
	}
	p, err := program.Start(context.Background(), program.Config{Command: []string{"/proc/self/exe"}})
	if err != nil {
		panic(err)
	}
	fmt.Println("started", p)
	select {}
}

func lock(path string) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		panic(err)
	}
}

func TestAWorkerThatIsKilledLeavesNoProgramBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	worker := exec.Command("/proc/self/exe")
	worker.Env = append(os.Environ(), behaviour+"=a worker", lockFile+"="+path)
	out, err := worker.StdoutPipe()
	if err == nil {
		err = worker.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 7)); err != nil { // the program holds its lock, since it has described its model
		t.Fatal(err)
	}
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = worker.Wait() // it was killed
	lock(path)        // waits until the program is gone
}

// Linux ends a child with the thread that started it, and a thread ends with the goroutine that is
// locked to it, as in launch.Cluster.
func TestAProgramOutlivesTheThreadThatAskedForIt(t *testing.T) {
	t.Setenv(behaviour, "nothing at all")
	var p *program.Program
	var err error
	started := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(started)
		p, err = program.Start(t.Context(), program.Config{Command: []string{"/proc/self/exe"}})
	}()
	<-started
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 20 {
		if _, _, err := p.Gradient(t.Context(), make([]float32, 11), make([]float32, 11), program.Request{Indices: []int{1}}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAProgramThatDoesNotEndIsEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	t.Setenv(lockFile, path)
	t.Setenv(behaviour, "take long")
	ctx, cancel := context.WithCancel(t.Context())
	p, err := program.Start(t.Context(), program.Config{Command: []string{"sh", "-c", "/proc/" + fmt.Sprint(os.Getpid()) + "/exe; sleep 1000"}, Output: when("at it", cancel)})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Gradient(ctx, make([]float32, 11), make([]float32, 11), program.Request{Indices: []int{1}}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil { // the program ends, and the shell that started it sleeps
		t.Fatal(err)
	}
	lock(path)
}

func TestWhatAProgramHasStartedEndsWithIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	t.Setenv(behaviour, "end")
	// A child that lives on holds the program's end of the socket, and its output.
	script := "flock " + path + " sleep 1000 & exec /proc/self/exe"
	script = strings.Replace(script, "/proc/self", fmt.Sprintf("/proc/%d", os.Getpid()), 1)
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("no flock here, by which a child is seen to end")
	}
	p, err := program.Start(t.Context(), program.Config{Command: []string{"sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_, _, err = p.Gradient(t.Context(), make([]float32, 11), make([]float32, 11), program.Request{})
	if err == nil || !strings.Contains(err.Error(), "it ended") {
		t.Fatal(err)
	}
	lock(path)
}
