package main

import (
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
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/worker/program"
	"github.com/kintsugi-ml/kintsugi/worker/program/programtest"
)

// beProgram answers as the program of a model with a thousand parameters. Words on its command line
// change its behaviour.
func beProgram() {
	about := program.Description{
		Name: "pulled", Tensors: []kintsugi.Tensor{{Name: "x", Shape: []int{10, 99}}, {Name: "y", Shape: []int{10}}}, Examples: 50, Batch: 5, Steps: 80, LearningRate: 0.02, Optimizer: "sgd", Evaluates: true,
	}
	if len(os.Args) > 1 && os.Args[1] == "wider" {
		about.Tensors[0].Shape = []int{10, 100}
	}
	if slices.Contains(os.Args, "large") {
		about.Tensors[0].Shape = []int{8000, 1000}
	}
	if slices.Contains(os.Args, "recipe") {
		about.Optimizer, about.Warmup, about.Decay, about.WeightDecay, about.Decayed, about.ClipNorm = "adamw", 10, "linear", 0.1, "matrices", 0.5
		about.Betas, about.Epsilon = "0.5,0.75", 0.125
	}
	if slices.Contains(os.Args, "rated") {
		about.Rates = map[string]float32{"y": 0.5}
	}
	about.Takes = slices.Contains(os.Args, "takes")
	about.Touches = slices.Contains(os.Args, "overlooks") || slices.Contains(os.Args, "touches")
	if slices.Contains(os.Args, "rmsprop") {
		about.Optimizer = "rmsprop"
	}
	p, err := programtest.Open(os.Getenv(program.Variable), about)
	if err == nil && slices.Contains(os.Args, "slow") && !ofLauncher(os.Args[2]) {
		for err == nil { // still reading its data, until nobody waits any more
			_, err = p.Next()
		}
		return
	}
	if err == nil {
		p.Spoil = spoil(os.Args[1:])
		p.Overlooks = slices.Contains(os.Args, "overlooks")
		if slices.Contains(os.Args, "unjudged") {
			p.Refuses = "evaluate"
		}
		err = p.Serve()
	}
	if err != nil {
		panic(err)
	}
}

// ofLauncher reports whether the process is one of the two that train starts before a run. Each
// call leaves a mark in the folder.
func ofLauncher(dir string) bool {
	f, err := os.CreateTemp(dir, "")
	if err != nil {
		panic(err)
	}
	defer f.Close()
	all, err := os.ReadDir(dir)
	if err != nil {
		panic(err)
	}
	return len(all) <= 2
}

// spoil returns the function that a word applies to gradients.
func spoil(words []string) func(q programtest.Question, grads []float32) {
	kept := float32(0)
	if len(words) == 2 && words[0] == "hangs" {
		return func(q programtest.Question, _ []float32) {
			if q.Version == 20 && os.Mkdir(words[1], 0o700) == nil { // no process has made it yet
				<-time.After(time.Hour)
			}
		}
	}
	switch strings.Join(words, " ") {
	case "fails":
		return func(q programtest.Question, _ []float32) {
			if q.Version == 20 {
				fmt.Println("example 7 has no label")
				os.Exit(3)
			}
		}
	case "takes":
		return func(q programtest.Question, _ []float32) {
			if q.Ask == "gradient" && q.Version > 0 { // only the first one is tried
				fmt.Println("it takes local steps by itself")
				os.Exit(3)
			}
		}
	case "remembers":
		return func(_ programtest.Question, grads []float32) { kept++; grads[3] += kept }
	case "of its own":
		return func(_ programtest.Question, grads []float32) {
			h := uint32(os.Getpid())
			for i := range grads {
				h = h*1664525 + 1013904223
				grads[i] = float32(h>>24) - 128
			}
		}
	case "a little of its own":
		return func(_ programtest.Question, grads []float32) { grads[3] *= 1 + 1e-6*float32(1+os.Getpid()%1000) }
	case "wrong":
		return func(_ programtest.Question, grads []float32) { grads[999] *= 5 }
	case "no number":
		return func(_ programtest.Question, grads []float32) { grads[995] = float32(math.NaN()) }
	case "nothing":
		return func(_ programtest.Question, grads []float32) { clear(grads) }
	}
	return nil
}

// ownProgram is the part of train's arguments that names the program of these tests.
var ownProgram = []string{"--", "/proc/self/exe"}

func TestAProgramTrainsThroughKilledServersToTheSameBits(t *testing.T) {
	t.Parallel()
	calm, struck := newDir(t), newDir(t)
	args := []string{"train", "--workers", "2", "--out"}
	out := must(t, append(append(args, calm), ownProgram...)...)
	if !strings.Contains(out, "pulled on own: 80 steps") || !strings.Contains(out, "test loss ") || !strings.Contains(out, "test accuracy 0.5000") {
		t.Errorf("it printed %s", out)
	}
	must(t, append(append(args, struck, "--fault", "kill server/0 at step 20", "--fault", "kill server/1 at step 40"), ownProgram...)...)
	sameBits(t, struck, calm)
	again := newDir(t)
	must(t, "rerun", calm, "--out", again)
	sameBits(t, again, calm)
	noOrphans(t, calm)
	noOrphans(t, struck)
}

// A program can give settings of the training as the command line can, and the command line
// overrides it.
func TestARecipeIsThatOfTheProgramUnlessTheCommandLineHasAnother(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	train := func(flags ...string) string {
		dir := newDir(t)
		must(t, append([]string{"train", "--workers", "2", "--recovery", "none", "--out", dir}, flags...)...)
		return dir
	}
	plain, recipe := ownProgram, append(slices.Clone(ownProgram), "recipe")
	own, told := train(recipe...), train(append([]string{"--optimizer", "adamw", "--warmup", "10", "--decay", "linear", "--weight-decay", "0.1", "--weight-decay-for", "matrices", "--clip-norm", "0.5", "--betas", "0.5,0.75", "--epsilon", "0.125"}, plain...)...)
	sameBits(t, own, told)
	plainly, overruled := train(plain...), train(append([]string{"--optimizer", "sgd", "--warmup", "0", "--decay", "cosine", "--weight-decay", "0", "--weight-decay-for", "all", "--clip-norm", "0"}, recipe...)...)
	sameBits(t, overruled, plainly)
}

func TestARunOfAProgramIsResumed(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	whole, parts := newDir(t), newDir(t)
	must(t, append([]string{"train", "--decay", "constant", "--out", whole}, ownProgram...)...)
	must(t, append([]string{"train", "--decay", "constant", "--steps", "30", "--out", parts}, ownProgram...)...)
	must(t, "train", "--resume", parts, "--steps", "80")
	sameBits(t, parts, whole)

	r := kin(t, "train", "--resume", parts, "--steps", "90", "--", "/proc/self/exe", "wider")
	if r.status != exitUsage || !strings.Contains(r.stderr, "describes another model than when the run began: tensor 0 was x [10 99], and is x [10 100] now") {
		t.Errorf("another program: status %d, %s", r.status, r.stderr)
	}
}

// The servers are healthy when a program is not. No step is lost, and a run that is resumed has
// them all.
func TestAProgramThatFailsEndsTheRunWithItsWordsAndALastCheckpoint(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := newDir(t)
	r := kin(t, append([]string{"train", "--workers", "1", "--out", dir}, append(ownProgram, "fails")...)...)
	if r.status != exitFailed {
		t.Errorf("exit status %d", r.status)
	}
	for _, want := range []string{"died 5 times", "a program that failed (exit status 70)", `it ended (exit status 3); the last that it wrote is \"example 7 has no label\"`} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("%s\nlacks %q", r.stderr, want)
		}
	}
	if !strings.Contains(r.stdout, "go on with: kintsugi train --resume "+dir) {
		t.Errorf("it printed %s", r.stdout)
	}
	if step, _ := lastParams(t, dir); step != 20 {
		t.Errorf("the newest checkpoint is of step %d; want 20", step)
	}
	noOrphans(t, dir)
}

// The worker that is started again computes the same gradient, so the model is the same.
func TestAProgramThatHangsIsStartedAgain(t *testing.T) {
	t.Parallel()
	calm, struck := newDir(t), newDir(t)
	args := []string{"train", "--workers", "1", "--out"}
	must(t, append(append(args, calm), ownProgram...)...)
	must(t, append(append(args, struck, "--hang-after", "500ms"), append(ownProgram, "hangs", filepath.Join(t.TempDir(), "hung"))...)...)
	sameBits(t, struck, calm)
	hung := 0
	for _, f := range readRun(t, struck).Summary.Failures {
		if strings.HasPrefix(f.Part, "worker/") && strings.Contains(f.Cause, "it hangs: no answer within 500ms") {
			hung++
		}
	}
	if hung == 0 {
		t.Errorf("failures %+v", readRun(t, struck).Summary.Failures)
	}
	noOrphans(t, struck)
}

func TestProgramsThatCannotTrain(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"train", "--", "false"}, exitFailed, "ask false what it trains: it ended (exit status 1), and wrote nothing"},
		{[]string{"train", "--", "./nowhere"}, exitUsage, "start ./nowhere"},
		{[]string{"train", "here", "--", "true"}, exitUsage, `unexpected argument "here"`},
		{[]string{"train", "--program", "true", "--", "true"}, exitUsage, "leave one out"},
		{[]string{"train", "--data", "mnist", "--", "true"}, exitUsage, "--data mnist: a program has its own data"},
		{[]string{"train", "--engine", "gorgonia", "--", "true"}, exitUsage, "--engine gorgonia: a program computes its model itself"},
		{[]string{"train", "--described", "x"}, exitUsage, "--described x is what a program said"},
		{[]string{"train", "--program", "true", "--described", "/nowhere/x"}, exitUsage, "/nowhere/x"},
	} {
		r := kin(t, c.args...)
		if r.status != c.status || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%q: status %d, %q; want %d, %q", c.args, r.status, r.stderr, c.status, c.want)
		}
	}
}

func TestAnEvaluationThatFailsIsToldBeforeTheRunBegins(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := newDir(t)
	r := kin(t, append([]string{"train", "--out", dir}, append(ownProgram, "unjudged")...)...)
	if r.status != exitFailed || !strings.Contains(r.stderr, "to evaluate: it says: the labels are gone") {
		t.Errorf("status %d, %s", r.status, r.stderr)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the run has begun, in a folder: %v", err)
	}
}

// A gradient that is not finite at the start would not become finite later: each worker's gradient
// would be refused until the run gives up.
func TestAFirstGradientThatIsNotFiniteIsToldBeforeTheRunBegins(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := newDir(t)
	r := kin(t, append([]string{"train", "--out", dir}, append(ownProgram, "no number")...)...)
	if r.status != exitFailed || !strings.Contains(r.stderr, "not finite: the first gradient, at the initial parameters: tensor y holds NaN; look at the data") {
		t.Errorf("status %d, %s", r.status, r.stderr)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the run has begun, in a folder: %v", err)
	}
}

// Programs that read their data for minutes do not delay the end of a run that is interrupted.
func TestAnInterruptDoesNotWaitForProgramsThatStart(t *testing.T) {
	t.Parallel()
	dir, begun := newDir(t), t.TempDir()
	p := start(t, append([]string{"train", "--workers", "1", "--out", dir}, append(ownProgram, "slow", begun)...)...)
	eventually(t, "the program of the worker has started", func() bool {
		all, err := os.ReadDir(begun)
		return err == nil && len(all) == 3
	})
	p.signal(syscall.SIGINT)
	if r := p.wait(); r.status != exitInterrupted {
		t.Errorf("exit status %d:\n%s", r.status, r.stderr)
	}
	for _, l := range readRun(t, dir).Lives {
		if strings.Contains(l.End, "killed") {
			t.Errorf("%s did not end by itself: %s", l.Part, l.End)
		}
	}
	noOrphans(t, dir)
}

// Processes of a program that have different data, or vocabularies, train something different in
// each worker, and no error would show it. If only the last bits differ, training works.
func TestProcessesThatAreNotAlikeAreFoundBeforeARunBegins(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	r := kin(t, append([]string{"train", "--workers", "2", "--out", dir}, append(ownProgram, "of", "its", "own")...)...)
	if r.status != exitUsage || !strings.Contains(r.stderr, "two processes of /proc/self/exe of its own compute gradients of one batch, at the same parameters, that are") ||
		!strings.Contains(r.stderr, "so each worker would train something else: what is random while the program starts") {
		t.Errorf("status %d, %s", r.status, r.stderr)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the run has begun, in a folder: %v", err)
	}
	out := must(t, append([]string{"train", "--workers", "2", "--steps", "10", "--out", dir}, append(ownProgram, "a", "little", "of", "its", "own")...)...)
	if !strings.Contains(out, "that differ a little: training works") {
		t.Errorf("it printed %s", out)
	}
	noOrphans(t, dir)
}

// dependsOn reads files that only processes of a test read. Otherwise `go test` would not know that its result depends
// on them, and would repeat that of another day.
func dependsOn(t *testing.T, files ...string) {
	t.Helper()
	for _, f := range files {
		if _, err := os.ReadFile(f); err != nil {
			t.Fatal(err)
		}
	}
}

// The JAX example trains as its first lines say, and its result can be loaded.
func TestTheExampleInJAXTrainsThroughAKilledServer(t *testing.T) {
	notUnderRace(t)
	python, err := exec.LookPath("python3")
	if err != nil || exec.Command(python, "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('jax'))").Run() != nil {
		t.Skip("no JAX here: pip install jax, in a virtual environment whose python3 is the first on PATH")
	}
	dependsOn(t, "../../python/kintsugi.py", "../../examples/python/spirals_jax.py")
	source, err := filepath.Abs("../../examples/python/spirals_jax.py")
	if err != nil {
		t.Fatal(err)
	}
	calm, struck := newDir(t), newDir(t)
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	args := []string{"train", "--workers", "2", "--steps", "300", "--out"}
	must(t, append(args, calm, "--", python, source)...)
	must(t, append(args, struck, "--fault", "kill server/0 at step 100", "--", python, source)...)
	sameBits(t, struck, calm)
	file := filepath.Join(t.TempDir(), "spirals.safetensors")
	must(t, "checkpoint", "export", struck, "--out", file)
	load := exec.Command(python, "-c", "import kintsugi, sys; kintsugi.run_jax = lambda *_, **__: None; import spirals_jax as s; print(s.evaluate(kintsugi.load_jax(s.build, sys.argv[1]))[1])", file)
	load.Env = append(os.Environ(), "PYTHONPATH=../../python:../../examples/python")
	got, err := load.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := float64(readRun(t, struck).Summary.FinalAccuracy)
	if accuracy, err := strconv.ParseFloat(strings.TrimSpace(string(got)), 64); err != nil || math.Abs(accuracy-want) > 1e-6 || want < 0.9 {
		t.Errorf("what is loaded has accuracy %s, %v; the run ended with %v", got, err, want)
	}
}

// The Python example trains as its first lines say, and its gradients depend only on what is asked
// for.
func TestTheExampleInPythonTrainsThroughAKilledServer(t *testing.T) {
	notUnderRace(t)
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here, which the example is for: install it")
	}
	dependsOn(t, "../../python/kintsugi.py", "../../examples/python/spirals.py")
	source, err := filepath.Abs("../../examples/python/spirals.py")
	if err != nil {
		t.Fatal(err)
	}
	calm, struck := newDir(t), newDir(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PYTHONPATH", "") // kintsugi.py comes from the binary
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	args := []string{"train", "--workers", "2", "--steps", "300", "--out"}
	must(t, append(args, calm, "--", python, source)...)
	out := must(t, append(args, struck, "--fault", "kill server/0 at step 100", "--", python, source)...)
	sameBits(t, struck, calm)
	if accuracy := readRun(t, struck).Summary.FinalAccuracy; accuracy < 0.9 || strings.Contains(out, "differ") {
		t.Errorf("accuracy %v; it printed %s", accuracy, out)
	}

	file := filepath.Join(t.TempDir(), "spirals.safetensors")
	must(t, "checkpoint", "export", struck, "--out", file)
	load := exec.Command(python, "-c", "import kintsugi, sys; v = kintsugi.load(sys.argv[1]); print(*v, *[x.hex() for x in v.flat.tolist()])", file)
	load.Env = append(os.Environ(), "PYTHONPATH=../../python")
	got, err := load.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"hidden/w", "hidden/b", "out/w", "out/b"}
	_, params := lastParams(t, struck)
	words := strings.Fields(string(got))
	if len(words) != len(want)+len(params) || !slices.Equal(words[:len(want)], want) {
		t.Fatalf("kintsugi.load has %s", got)
	}
	for i, w := range words[len(want):] {
		if x, err := strconv.ParseFloat(w, 64); err != nil || float32(x) != params[i] {
			t.Fatalf("value %d is %s, and was %v: %v", i, w, params[i], err)
		}
	}
}

// A PyTorch model with BatchNorm, dropout, a tied and a frozen parameter, a scalar, float64, and a
// loss that calls backward in parts.
func TestAModelInPyTorchIsTrainedAndComesBack(t *testing.T) {
	onlyLong(t)
	notUnderRace(t)
	python, err := exec.LookPath("python3")
	if err != nil || exec.Command(python, "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('torch'))").Run() != nil {
		t.Skip("no PyTorch here: pip install torch, in a virtual environment whose python3 is the first on PATH")
	}
	dependsOn(t, "../../python/kintsugi.py", "testdata/pytorch.py")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", filepath.Join(here, "../../python"))
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	calm, struck := newDir(t), newDir(t)
	args := []string{"train", "--workers", "2", "--out"}
	source := []string{"--", python, filepath.Join(here, "testdata/pytorch.py")}
	must(t, append(append(args, calm), source...)...)
	out := must(t, append(append(args, struck, "--fault", "kill server/0 at step 10"), source...)...)
	sameBits(t, struck, calm)
	if strings.Contains(out, "differ") {
		t.Errorf("it printed %s", out)
	}
	must(t, append([]string{"program", "check"}, source...)...)

	file := filepath.Join(t.TempDir(), "net.safetensors")
	must(t, "checkpoint", "export", calm, "--out", file)
	back, err := exec.Command(python, "testdata/pytorch.py", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	s := readRun(t, calm).Summary
	if want := fmt.Sprintf("%v %v", float64(s.FinalTestLoss), float64(s.FinalAccuracy)); strings.TrimSpace(string(back)) != want || s.FinalAccuracy < 0.9 {
		t.Errorf("the loaded module evaluates to %s; want %s, as the run did", back, want)
	}
}

func TestACheckFindsWhatAProgramDoesNotKeep(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	for words, want := range map[string]string{
		"remembers":  "the gradient of one batch at the same parameters is another one in the same process",
		"of its own": "the gradient of one batch at the same parameters is another one in another process",
		"wrong":      "that of y is not the gradient of this loss",
		"nothing":    "and its norm 0: from there no step leads anywhere",
		"no number":  "not finite: the first gradient, at the initial parameters: tensor y holds NaN",
		"overlooks":  "has written tensor y, value 2, and its byte of those that say what is touched is 0",
		"rmsprop":    `optimizer "rmsprop" is unknown; use sgd,`,
	} {
		r := kin(t, append([]string{"program", "check", "--", "/proc/self/exe"}, strings.Fields(words)...)...)
		status := exitFailed
		if words == "rmsprop" || words == "overlooks" { // what it says of itself is wrong
			status = exitUsage
		}
		if r.status != status || !strings.Contains(r.stderr, want) || words == "no number" && strings.Contains(r.stderr, "another one") {
			t.Errorf("%s: status %d, %s; want %s", words, r.status, r.stderr, want)
		}
	}
	out := must(t, "program", "check", "--", "/proc/self/exe")
	for _, want := range []string{"pulled: 1000 parameters, 50 examples", "in the same process: equal to the bit", "in another process: equal to the bit", "of 1 examples"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s\nlacks %q", out, want)
		}
	}
}

func TestWhatAProgramDescribesIsAFileForServers(t *testing.T) {
	notUnderRace(t)
	path := filepath.Join(t.TempDir(), "model.described")
	if out := must(t, "program", "describe", "--out", path, "--", "/proc/self/exe"); !strings.Contains(out, "pulled, 1000 parameters") {
		t.Error(out)
	}
	d, err := program.Read(path)
	initial := make([]float32, 1000)
	if err == nil {
		err = program.ReadInitial(path, 0, initial)
	}
	if err != nil || d.Name != "pulled" || initial[999] != 999 {
		t.Fatal(d, err)
	}
}

func TestAProgramIsComparedWithALoop(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	out := must(t, "bench", "train", "--workers", "2", "--steps", "20", "--rounds", "1", "--before", "", "--format", "benchfmt", "--", "/proc/self/exe")
	if !strings.HasPrefix(out, "BenchmarkTrain/pulled 1 ") {
		t.Error(out)
	}
}

// A run that is resumed with a program that has other rates goes on with those, from its own
// parameters.
func TestARunIsResumedWithOtherRates(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	once, twice := newDir(t), newDir(t)
	flags := []string{"train", "--decay", "constant", "--recovery", "none", "--steps"}
	must(t, append(append(slices.Clone(flags), "30", "--out", once), append(ownProgram, "rated")...)...)
	must(t, append(append(slices.Clone(flags), "30", "--out", twice), ownProgram...)...)
	_, with := lastParams(t, once)
	_, without := lastParams(t, twice)
	if slices.Equal(with, without) {
		t.Fatal("rates change nothing")
	}
	must(t, append([]string{"train", "--resume", twice, "--steps", "60"}, append(ownProgram, "rated")...)...)
	described, err := program.Read(filepath.Join(twice, job.DescribedFile))
	if err != nil || described.Rates["y"] != 0.5 {
		t.Errorf("the run describes %+v, %v", described, err)
	}
}

// A checkpoint of a program's run becomes another run, wherever the first one lies by then, and even
// if its description was lost.
func TestARestoredRunOfAProgramGoesOn(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	flags := []string{"train", "--decay", "constant", "--workers", "2", "--steps"}
	run := func(dir, steps string) {
		must(t, append(append(slices.Clone(flags), steps, "--out", dir), ownProgram...)...)
	}
	whole := newDir(t)
	run(whole, "60")
	_, want := lastParams(t, whole)
	for name, lose := range map[string]func(old, restored string) error{
		"the description of the new run": func(old, _ string) error { return os.RemoveAll(old) },
		"the description of the old run": func(_, restored string) error { return os.Remove(filepath.Join(restored, job.DescribedFile)) },
		"neither, and the program says it": func(old, restored string) error {
			return errors.Join(os.RemoveAll(old), os.Remove(filepath.Join(restored, job.DescribedFile)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			began, old, restored := newDir(t), newDir(t), newDir(t)
			run(began, "30")
			if err := errors.Join(os.MkdirAll(filepath.Dir(old), 0o777), os.Rename(began, old)); err != nil {
				t.Fatal(err)
			}
			must(t, "checkpoint", "restore", old, "--out", restored)
			if err := lose(old, restored); err != nil {
				t.Fatal(err)
			}
			must(t, "train", "--resume", restored, "--steps", "60")
			if step, got := lastParams(t, restored); step != 60 || !slices.Equal(got, want) {
				t.Errorf("at step %d, the run has other parameters than one that was not restored", step)
			}
		})
	}
}
