package program_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// inPython starts a program that begins with source and then calls kintsugi.py.
func inPython(t testing.TB, source string) (*program.Program, error) {
	t.Helper()
	return inPythonAt(t, 0, source)
}

// inPythonAt is inPython for a worker of some rank on its host.
func inPythonAt(t testing.TB, rank int, source string) (*program.Program, error) {
	t.Helper()
	return inPythonWith(t, program.Config{Slots: 1, LocalRank: rank}, source)
}

// inPythonWith is inPython with some settings.
func inPythonWith(t testing.TB, cfg program.Config, source string) (*program.Program, error) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here, which kintsugi.py is for")
	}
	if _, err := os.ReadFile("../../python/kintsugi.py"); err != nil { // so that `go test` knows what the result depends on
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", "../../python")
	t.Setenv("PYTHONUNBUFFERED", "") // as users have it
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	cfg.Command = []string{python, "-c", source}
	p, err := program.Start(t.Context(), cfg)
	if err == nil {
		t.Cleanup(func() { _ = p.Close() }) // tests look at how it ended
	}
	return p, err
}

func TestANumberIsATensorInPythonToo(t *testing.T) {
	p, err := inPython(t, `
import kintsugi

def initialise(params, seed):
    params.flat[0] = 2.5

def gradient(params, grads, batch):
    grads.flat[0] = 2 * params.flat[0]
    return params.flat[0] ** 2

kintsugi.run("number", [("scale", ())], initialise, gradient, examples=3)
`)
	if err != nil {
		t.Fatal(err)
	}
	if shape := p.About().Tensors[0].Shape; !slices.Equal(shape, []int{1}) {
		t.Errorf("its shape is %v, want one value", shape)
	}
	params, grads := make([]float32, 1), make([]float32, 1)
	if err := p.Initialise(t.Context(), params); err != nil || params[0] != 2.5 {
		t.Fatal(params, err)
	}
	loss, n, err := p.Gradient(t.Context(), params, grads, program.Request{Indices: []int{0, 2}})
	if err != nil || loss != 6.25 || n != 2 || grads[0] != 5 {
		t.Fatal(loss, n, grads, err)
	}
}

// The line in which a program hangs is what its author needs to know.
func TestWhereAProgramInPythonHangsIsTold(t *testing.T) {
	p, err := inPythonWith(t, program.Config{HangAfter: 50 * time.Millisecond}, `
import threading
import kintsugi

def deeper():
    threading.Event().wait()

def gradient(params, grads, batch):
    threading.Thread(target=deeper, daemon=True).start()
    deeper()

kintsugi.run("stuck", [("scale", ())], lambda params, seed: None, gradient, examples=3)
`)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = p.Gradient(t.Context(), make([]float32, 1), make([]float32, 1), program.Request{Indices: []int{0}})
	if err == nil || !strings.Contains(err.Error(), "it hangs, at File ") || !strings.Contains(err.Error(), "threading.py") || !strings.HasSuffix(err.Error(), ": no answer within 50ms; --hang-after sets another time") {
		t.Error(err)
	}
}

// A signal that the program handles itself, or a crash of a library, is not Kintsugi's.
func TestAProgramInPythonThatCrashesSaysWhere(t *testing.T) {
	var out bytes.Buffer
	p, err := inPythonWith(t, program.Config{Output: &out}, `
import ctypes, os, signal
import kintsugi

signal.signal(signal.SIGQUIT, lambda *_: print("its own"))

def gradient(params, grads, batch):
    os.kill(os.getpid(), signal.SIGQUIT)
    ctypes.string_at(0)

kintsugi.run("crash", [("scale", ())], lambda params, seed: None, gradient, examples=3)
`)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = p.Gradient(t.Context(), make([]float32, 1), make([]float32, 1), program.Request{Indices: []int{0}})
	if err == nil || !strings.Contains(err.Error(), "segmentation fault") || !strings.Contains(out.String(), "line 9 in gradient") || !strings.Contains(out.String(), "its own") {
		t.Errorf("error %v; it wrote %q", err, out.String())
	}
}

// What follows run in a program would be done by every process that was asked something, with
// parameters of some step or none.
func TestWhatFollowsRunDoesNotRun(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	p, err := inPython(t, fmt.Sprintf(`
import kintsugi
try:
    kintsugi.run("number", [("scale", ())], None, None, examples=3)
finally:
    open(%q, "w").write("cleaned up")
open(%[1]q, "w").write("went on")
`, mark))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(mark); err != nil || string(b) != "cleaned up" {
		t.Errorf("the program has %s, %v", b, err)
	}
}

func TestAWorkersProgramInPythonMakesNoInitialParameters(t *testing.T) {
	const source = `
import kintsugi

def initialise(params, seed):
    raise RuntimeError("it takes seconds")

kintsugi.run("large", [("w", (2,))], initialise, lambda params, grads, batch: params["w"][0], examples=3)
`
	p, err := inPython(t, source)
	if err != nil {
		t.Fatal(err)
	}
	params := []float32{0.5, 1}
	if loss, _, err := p.Gradient(t.Context(), params, make([]float32, 2), program.Request{Indices: []int{1}}); err != nil || loss != 0.5 {
		t.Errorf("a gradient of a program that was not asked for its initial parameters: loss %v, %v", loss, err)
	}
	if p, err = inPython(t, source); err != nil {
		t.Fatal(err)
	}
	if err := p.Initialise(t.Context(), params); err == nil {
		t.Error("it has not been asked for its initial parameters")
	}
}

// Memory that goes back to the system comes back page by page, and each page that is written for
// the first time is a fault. A framework allocates in threads of its own, too: there, the C library
// has other heaps.
func TestAProgramInPythonKeepsTheMemoryOfItsGradients(t *testing.T) {
	const pages = 4 * 32 << 20 / 4096
	faults := func() float64 {
		p, err := inPython(t, `
import concurrent.futures, ctypes, kintsugi, os, resource

pool = concurrent.futures.ThreadPoolExecutor(1)

def gradient(params, grads, batch):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(32 << 20)
    pool.submit(lambda: len([bytearray(32 << 20) for _ in range(3)])).result()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

os.confstr("CS_GNU_LIBC_VERSION")
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # no huge pages, of which few would do
kintsugi.run("large", [("w", (2,))], lambda params, seed: None, gradient, examples=3)
`)
		if err != nil && strings.Contains(err.Error(), "unrecognized configuration name") {
			t.Skip("the C library is not glibc, which has a function that keeps memory")
		}
		if err != nil {
			t.Fatal(err)
		}
		last := 0.0
		for range 3 {
			if last, _, err = p.Gradient(t.Context(), make([]float32, 2), make([]float32, 2), program.Request{Indices: []int{1}}); err != nil {
				t.Fatal(err)
			}
		}
		return last
	}
	if n := faults(); n > pages/10 {
		t.Errorf("the third gradient met %v new pages; its arrays have %d", n, pages)
	}
	t.Setenv("MALLOC_TRIM_THRESHOLD_", "131072")
	if n := faults(); n < pages {
		t.Errorf("the user wants memory back, and the third gradient met %v new pages; its arrays have %d", n, pages)
	}
}

func TestWhatAProgramInPythonHasPrintedIsThereWhenItIsKilled(t *testing.T) {
	p, err := inPython(t, `
import kintsugi, os, signal

def gradient(params, grads, batch):
    print("300 GB, please")
    os.kill(os.getpid(), signal.SIGKILL)

kintsugi.run("greedy", [("w", (2,))], lambda params, seed: None, gradient, examples=3)
`)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = p.Gradient(t.Context(), make([]float32, 2), make([]float32, 2), program.Request{Indices: []int{0}})
	if err == nil || !strings.Contains(err.Error(), `it was killed (signal: killed), as the system does when memory is short; the last that it wrote is "300 GB, please"`) {
		t.Error(err)
	}
}

func TestAProgramInPythonSuggestsItsRecipe(t *testing.T) {
	p, err := inPython(t, `
import kintsugi
kintsugi.run("net", [("w", (2, 1)), ("b", (2,))], lambda params, seed: None, None, examples=3, batch=2, steps=9, learning_rate=0.25, optimizer="adamw",
    momentum=0.5, codec="int8", warmup=3, decay="linear", betas=(0, 0.95), epsilon=0.5, weight_decay=0.125, weight_decay_for="matrices", clip_norm=1.5, rates={"b*": 0.5, "*": 2})
`)
	if err != nil {
		t.Fatal(err)
	}
	want := program.Description{
		Name: "net", Tensors: []kintsugi.Tensor{{Name: "w", Shape: []int{2, 1}}, {Name: "b", Shape: []int{2}}}, Examples: 3, Batch: 2, Steps: 9,
		LearningRate: 0.25, Optimizer: "adamw", Momentum: 0.5, Codec: "int8", Warmup: 3, Decay: "linear", Betas: "0.0,0.95", Epsilon: 0.5, WeightDecay: 0.125, Decayed: "matrices", ClipNorm: 1.5, Rates: map[string]float32{"w": 2, "b": 0.5},
	}
	if got := p.About(); !reflect.DeepEqual(got, want) {
		t.Errorf("it describes %+v, want %+v", got, want)
	}
}

func TestWhatRunDoesNotSuggestIsForTheCommandLine(t *testing.T) {
	_, err := inPython(t, `
import kintsugi
kintsugi.run("net", [("w", (2,))], None, None, amsgrad=True)
`)
	if err == nil || !strings.Contains(err.Error(), "TypeError: run has no argument amsgrad; what a program does not suggest is for the command line of kintsugi train") {
		t.Error(err)
	}
}

// Newcomers have a training loop of their own, and give kintsugi.py what that loop has. It is read
// as it was meant, or refused by name.
func TestWhatAProgramInPythonGivesIsReadAsItWasMeantOrNamed(t *testing.T) {
	p, err := inPython(t, `
import kintsugi

class Number:  # of numpy's, or of a framework's
    def __init__(self, value):
        self.value = value
    def item(self):
        return self.value

refused = []
for suggested in {"steps": 62.5}, {"batch": "64"}, {"optimizer": Number}, {"learning_rate": float("nan")}, {"betas": 0.9}, {"betas": (0.9, 0.99, 0.999)}, {"betas": (0.9, None)}, {"examples": 0}, {"rates": {"x.*": 2}}, {"rates": {"w": 0}}, {"rates": {"*": 2, "w": 3}}:
    try:
        kintsugi.run("net", [("w", (2,))], None, None, **suggested)
    except (TypeError, ValueError) as e:
        refused.append(str(e))
for tensors in {"w": 2}, [("w", (2,)), "wb"]:
    try:
        kintsugi.run("net", tensors, None, None)
    except ValueError as e:
        refused.append(str(e))

def gradient(params, grads, batch):
    if batch.version == 0:
        raise RuntimeError("; ".join(refused))
    return 0.5

kintsugi.run("net", {"w": (2,)}, lambda params, seed: None, gradient, evaluate=lambda params: 0.5, batch=Number(64), learning_rate=Number(0.25), steps=8.0, momentum=None)
`)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.About(); got.Batch != 64 || got.LearningRate != 0.25 || got.Steps != 8 {
		t.Errorf("it describes %+v", got)
	}
	said := func(version kintsugi.Step) string {
		_, _, err := p.Gradient(t.Context(), make([]float32, 2), make([]float32, 2), program.Request{ID: kintsugi.PushID{Version: version}})
		return fmt.Sprint(err)
	}
	refused := said(0)
	for _, want := range []string{
		"steps is 62.5; it must be a whole number", "batch is '64'; it must be a whole number", "optimizer is <class '__main__.Number'>; it must be a word, as for --optimizer",
		"learning_rate is nan; it must be a number", "examples is 0: there is nothing to draw from", "rates: no tensor fits 'x.*'; there are w", "rates: 'w' has 0.0 times the learning rate; it must be a positive number",
		"rates: every tensor that fits 'w', such as w, fits an earlier pattern, and the first one counts; put this one before it",
		"betas is 0.9; it must be a pair of numbers", "betas is (0.9, 0.99, 0.999); it must be a pair", "betas is (0.9, None); it must be a pair",
		"tensors has ('w', 2), which is no pair of a name and a shape", "tensors has 'wb', which is no pair",
	} {
		if !strings.Contains(refused, want) {
			t.Errorf("%s\nlacks %q", refused, want)
		}
	}
	if got := said(1); !strings.Contains(got, "without examples a gradient returns the loss and of how many examples it is; it returned float") {
		t.Error(got)
	}
	_, _, _, err = p.Evaluate(t.Context(), make([]float32, 2))
	if err == nil || !strings.Contains(err.Error(), "evaluate returns a loss and an accuracy, either may be None, and on how many examples; it returned float") {
		t.Error(err)
	}
}

// withPyTorch skips a test if there is no PyTorch.
func withPyTorch(t testing.TB) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil || exec.Command(python, "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('torch'))").Run() != nil {
		t.Skip("no PyTorch here: pip install torch, in a virtual environment whose python3 is the first on PATH")
	}
}

func TestWhatALoopInPyTorchDoesAndALossMustNotIsNamed(t *testing.T) {
	withPyTorch(t)
	p, err := inPython(t, `
import kintsugi, random, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.none = nn.Parameter(torch.ones(3, 2).t()), nn.Parameter(torch.zeros(0, 3))
        self.register_buffer("calls", torch.zeros(1))

refused = []
for build in lambda: [1], lambda: nn.LazyLinear(2), lambda: nn.ParameterDict({"c": torch.ones(1, dtype=torch.complex64)}), lambda: nn.Linear(1, 1).requires_grad_(False):
    try:
        kintsugi.run_torch("net", build, None)
    except (TypeError, ValueError) as e:
        refused.append(str(e))

def loss(module, batch):
    value = (module.w ** 2).sum() + module.none.sum()
    case = batch.indices[0]
    if case == 0:
        raise RuntimeError("; ".join(refused))
    elif case == 1:
        return value.item()
    elif case == 2:
        return module.w[0]
    elif case == 3:
        value.backward()
    elif case == 4:
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return value.detach()
    elif case == 5:
        module.calls += 1
    elif case == 6:
        return torch.tensor(1.0)
    elif case == 7:
        return value * random.random()
    elif case == 10:
        return sum(p.sum() for p in other.parameters())
    elif case == 11:
        return torch.zeros((), requires_grad=True)
    elif case == 9:
        module.w.data.clamp_(max=3)
    return value

other = Net()
kintsugi.run_torch("net", Net, loss, examples=12)
`)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.About().Tensors; len(got) != 1 || got[0].Name != "w" || !slices.Equal(got[0].Shape, []int{2, 3}) {
		t.Fatalf("it trains %v; a tensor without values is not for servers", got)
	}
	params, grads, again := []float32{1, 2, 3, 4, 5, 6}, make([]float32, 6), make([]float32, 6)
	if _, _, err := p.Gradient(t.Context(), params, grads, program.Request{Indices: []int{9}}); err == nil || !strings.Contains(err.Error(), "the loss changes parameter w, as an optimizer's step, a clamp") {
		t.Errorf("values that are changed behind the back of autograd: %v", err)
	}
	if _, _, err := p.Gradient(t.Context(), params, grads, program.Request{Indices: []int{10}}); err == nil || !strings.Contains(err.Error(), "depends on no parameter of the module that it was given, but on others") {
		t.Errorf("a module that was made elsewhere: %v", err)
	}
	if loss, _, err := p.Gradient(t.Context(), params, grads, program.Request{Indices: []int{11}}); err != nil || loss != 0 || !slices.Equal(grads, make([]float32, 6)) {
		t.Errorf("a constant: loss %v, gradient %v, %v", loss, grads, err)
	}
	for i, wants := range [][]string{
		{"build returned list; it must", "parameter weight has no shape yet", "parameter c is of type torch.complex64", "no parameter of the module that build returned needs a gradient"},
		{"loss returned float; it must return the mean loss, a tensor of one value"},
		{"loss returned a tensor of shape (3,); it must"},
		{"return it detached, as by value.detach()"},
		{"the loss changes parameter w, as an optimizer's step"},
		{"the forward pass changes buffer calls, which no server has"},
		{"the loss depends on no parameter, and has left no gradient in one"},
	} {
		_, _, err := p.Gradient(t.Context(), params, grads, program.Request{Indices: []int{i}})
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("case %d: error %v; want %s", i, err, want)
			}
		}
	}
	// The program goes on after an error, and Python's own random numbers depend only on the batch
	// too.
	for _, into := range [][]float32{grads, again} {
		if _, _, err := p.Gradient(t.Context(), params, into, program.Request{Seed: 5, Indices: []int{7}}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(grads, again) {
		t.Errorf("gradients of one batch: %v and %v", grads, again)
	}
	loss, _, err := p.Gradient(t.Context(), params, grads, program.Request{Indices: []int{8}})
	if err != nil || loss != 91 || !slices.Equal(grads, []float32{2, 4, 6, 8, 10, 12}) {
		t.Errorf("loss %v, gradient %v, %v", loss, grads, err)
	}
}

// A module on a CPU has its parameters in the memory that its worker writes. Those of another type,
// in another order, or in memory that something else has too, stay where they are. So do all while
// the program takes local steps, which must not change what the worker has written.
func TestAModuleComputesInTheMemoryOfItsWorker(t *testing.T) {
	withPyTorch(t)
	p, err := inPython(t, `
import kintsugi, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        both = torch.zeros(4)
        self.plain, self.short = nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
        self.turned, self.part = nn.Parameter(torch.zeros(2, 2).t()), nn.Parameter(both[:2])

def shared(p):
    at = p.data_ptr()
    for line in open("/proc/self/maps"):
        lo, hi = (int(x, 16) for x in line.split()[0].split("-"))
        if lo <= at < hi:
            return "memfd" in line
    return False

def loss(module, batch):
    names = [n for n, p in module.named_parameters() if shared(p)]
    if names != ([] if batch and batch.indices[0] == 2 else ["plain"]):
        raise RuntimeError("in the memory of the worker: %s" % names)
    if batch and batch.indices[0] == 1:
        module.plain.data.clamp_(max=3)
    return sum((p.float() ** 2).sum() for p in module.parameters()) / 2

kintsugi._takes_steps = lambda far: True  # also on a CPU
kintsugi.run_torch("net", Net, loss, examples=10, evaluate=lambda module: (loss(module, None).item(), None, 1))
`)
	if err != nil {
		t.Fatal(err)
	}
	params, grads := []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, make([]float32, 12)
	if _, _, err := p.Gradient(t.Context(), params, grads, program.Request{Indices: []int{1}}); err == nil || !strings.Contains(err.Error(), "the loss changes parameter plain") {
		t.Errorf("values that are changed in the memory of the worker: %v", err)
	}
	for version := range kintsugi.Step(5) {
		want := float64(0)
		for i := range params {
			params[i] = float32(int(version) + i)
			want += float64(params[i] * params[i] / 2)
		}
		loss, _, err := p.Gradient(t.Context(), params, grads, program.Request{ID: kintsugi.PushID{Version: version}, Indices: []int{0}})
		if err != nil || loss != want || !slices.Equal(grads, params) {
			t.Fatalf("version %d: loss %v and gradient %v, %v; want %v and %v", version, loss, grads, err, want, params)
		}
		clear(params) // a program whose parameters are the worker's would now have zeros
		if loss, _, _, err = p.Evaluate(t.Context(), params); err != nil || loss != 0 {
			t.Fatalf("version %d: an evaluation of zeros has loss %v, %v", version, loss, err)
		}
		x := program.Steps{Rule: kernels.SGD, Groups: make([]int, 4), Decays: []float32{0}, Units: []float32{0.5}, Batches: []program.StepBatch{{Indices: []int{2}, Rates: []float32{0.5}}}}
		for range 2 {
			if _, _, err := p.Take(t.Context(), params, grads, &x); err != nil {
				t.Fatalf("version %d: a local step: %v", version, err)
			}
		}
	}
}

// Of a gradient with sparse rows only these rows are written. What earlier answers wrote must not be
// in it, whatever they were.
func TestSparseGradientsAreThoseOfTheirBatch(t *testing.T) {
	withPyTorch(t)
	p, err := inPython(t, `
import kintsugi, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.short = nn.Parameter(torch.zeros(4, 2)), nn.Parameter(torch.zeros(2, 1, dtype=torch.bfloat16))

rows = torch.zeros(3, dtype=torch.long)  # the same memory in each batch

def loss(module, batch):
    kind, *rest = batch.indices
    if kind == 0:
        rows.copy_(torch.tensor(rest))
        value = (nn.functional.embedding_bag(rows, module.w, torch.arange(3), mode="sum", sparse=True).sum(1) * torch.arange(1.0, 4.0)).sum()
    elif kind == 1:
        value = (module.w * torch.arange(8.0).view(4, 2)).sum()
    elif kind == 2:
        value = nn.functional.embedding(torch.tensor(rest), module.short, sparse=True).sum()
    elif kind == 3:
        module.w.grad = torch.sparse_coo_tensor([[1, 1], [0, 1]], [5.0, 7.0], (4, 2))  # both dimensions are sparse
        return torch.zeros(())
    return value

kintsugi.run_torch("net", Net, loss, examples=10)
`)
	if err != nil {
		t.Fatal(err)
	}
	params, grads := make([]float32, 10), make([]float32, 10)
	for i, c := range []struct {
		indices []int
		want    []float32
	}{
		{[]int{0, 1, 3, 1}, []float32{0, 0, 4, 4, 0, 0, 2, 2, 0, 0}},
		{[]int{0, 2, 2, 2}, []float32{0, 0, 0, 0, 6, 6, 0, 0, 0, 0}},
		{[]int{1}, []float32{0, 1, 2, 3, 4, 5, 6, 7, 0, 0}},
		{[]int{0, 0, 3, 3}, []float32{1, 1, 0, 0, 0, 0, 5, 5, 0, 0}},
		{[]int{2, 1, 1}, []float32{0, 0, 0, 0, 0, 0, 0, 0, 0, 2}},
		{[]int{0, 1, 1, 2}, []float32{0, 0, 3, 3, 3, 3, 0, 0, 0, 0}},
		{[]int{3}, []float32{0, 0, 5, 7, 0, 0, 0, 0, 0, 0}},
		{[]int{2, 0}, []float32{0, 0, 0, 0, 0, 0, 0, 0, 1, 0}},
	} {
		if _, _, err := p.Gradient(t.Context(), params, grads, program.Request{Indices: c.indices}); err != nil || !slices.Equal(grads, c.want) {
			t.Errorf("gradient %d is %v, %v; want %v", i, grads, err, c.want)
		}
	}
}

// A module with sparse gradients says which spots of a gradient its rows and its other parameters lie
// in, and no others, wherever rows begin and end.
func TestAModuleSaysWhichRowsItHasTouched(t *testing.T) {
	withPyTorch(t)
	widths := []int{16, 1, 20, 5, 40, 3, 15, 16, 17, 16, 33}
	p, err := inPython(t, `
import kintsugi, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        for i, width in enumerate([16, 1, 20, 5, 40, 3, 15, 16, 17, 16, 33]):
            self.add_module("layer%d" % i, nn.Linear(width, 1, bias=False) if i % 2 else nn.Embedding(50, width, sparse=True))

def loss(module, batch):
    rows = torch.tensor(batch.indices)
    return sum(m(rows).sum() if isinstance(m, nn.Embedding) else m.weight.sum() for m in module.children())

kintsugi.run_torch("net", Net, loss, examples=50)
`)
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.Memory(t.Context())
	if err != nil || len(m.Touched) != kernels.Spots(len(m.Grads)) {
		t.Fatalf("%d bytes for %d values: %v", len(m.Touched), len(m.Grads), err)
	}
	for i, rows := range [][]int{{3, 17, 3, 49}, {0}, {16, 17, 18, 19}, {49, 0}} {
		if _, _, err := p.Gradient(t.Context(), m.Params, m.Grads, program.Request{Indices: rows}); err != nil {
			t.Fatal(err)
		}
		want, at := make([]byte, len(m.Touched)), 0
		touch := func(lo, hi int) {
			for j := lo; j < hi; j++ {
				want[j/kernels.Spot] = 1
			}
		}
		for layer, width := range widths {
			if layer%2 == 1 {
				touch(at, at+width)
				at += width
				continue
			}
			for _, row := range rows {
				touch(at+row*width, at+(row+1)*width)
			}
			at += 50 * width
		}
		if at != len(m.Grads) || !slices.Equal(m.Touched, want) {
			t.Errorf("gradient %d, of %d values, %d expected: touched are\n%v, want\n%v", i, len(m.Grads), at, m.Touched, want)
		}
		if v := p.Overlooked(); v >= 0 {
			t.Errorf("gradient %d: value %d is not said to be touched", i, v)
		}
	}
}

// A module has the same tensors whether it is compiled or not: --resume and load_torch take either.
func TestACompiledModuleHasTheSameTensors(t *testing.T) {
	withPyTorch(t)
	p, err := inPython(t, `
import kintsugi, torch
from torch import nn

def build():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    if hasattr(torch, "compile"):
        module[1] = torch.compile(module[1], backend="eager")
        module = torch.compile(module, backend="eager")
    return module

kintsugi.run_torch("net", build, lambda module, batch: module(torch.ones(2)).sum(), examples=3)
`)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tensor := range p.About().Tensors {
		names = append(names, tensor.Name)
	}
	if want := []string{"0.weight", "0.bias", "1.weight", "1.bias"}; !slices.Equal(names, want) {
		t.Errorf("its tensors are %v, want %v", names, want)
	}
	params, grads := make([]float32, 9), make([]float32, 9)
	if err := p.Initialise(t.Context(), params); err != nil || slices.Contains(params, 0) {
		t.Errorf("its initial parameters are %v, %v", params, err)
	}
	params = []float32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	loss, _, err := p.Gradient(t.Context(), params, grads, program.Request{Indices: []int{0}})
	if want := []float32{7, 7, 8, 8, 7, 8, 8, 13, 1}; err != nil || loss != 169 || !slices.Equal(grads, want) {
		t.Errorf("its loss is %v and its gradient %v, %v; want %v", loss, grads, err, want)
	}
}

// Memory is pinned for copies to a GPU if there is one, and where there is none nothing happens.
func TestMemoryIsPinnedWhereThereIsAGPU(t *testing.T) {
	withPyTorch(t)
	_, err := inPython(t, `
import kintsugi, mmap, torch

for size in 4096, 1 << 20:
    if kintsugi._pin(torch, memoryview(mmap.mmap(-1, size)), torch.device("cuda:0")) != torch.cuda.is_available():
        raise RuntimeError("a GPU is there: %s, and it has pinned memory, or has not" % torch.cuda.is_available())
print(torch.nn.functional.relu(torch.ones(1, device="cuda" if torch.cuda.is_available() else "cpu")))
kintsugi.run("pinned", [("w", (2,))], lambda params, seed: None, None, examples=3)
`)
	if err != nil {
		t.Error(err)
	}
}

// State of a module that servers do not have is refused by name, even if autograd does not see that
// it changes. So are parameters that no server would train.
func TestWhatAModuleChangesBehindAutogradIsNamed(t *testing.T) {
	withPyTorch(t)
	p, err := inPython(t, `
import kintsugi, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.frozen = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("same", torch.ones(1))

def tied():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[1].weight.data = module[0].weight.data
    return module

try:
    kintsugi.run_torch("net", tied, None)
except ValueError as e:
    refused = str(e)

def loss(module, batch):
    value = (module.w ** 2).sum()
    case = batch.indices[0]
    if case == 0:
        raise RuntimeError(refused)
    elif case == 1:
        module.calls = module.calls + 1
    elif case == 2:
        module.calls.data.add_(1)
    elif case == 3:
        module.late = nn.Parameter(torch.ones(1))
    elif case == 4:
        del module.late
        module.frozen.requires_grad_(True)
    elif case == 5:
        module.frozen.requires_grad_(False)
        module.same = torch.ones(1)  # which a forward pass computes anew
    return value

def evaluate(module):
    return torch.rand(1), None, 1

kintsugi.run_torch("net", Net, loss, examples=10, evaluate=evaluate)
`)
	if err != nil {
		t.Fatal(err)
	}
	params, grads := []float32{1, 2}, make([]float32, 2)
	ask := func(case_ int) error {
		_, _, err := p.Gradient(t.Context(), params, grads, program.Request{Indices: []int{case_}})
		return err
	}
	// Values are compared in the 1st, 2nd, 4th and 8th gradient.
	for _, c := range []struct {
		number int
		want   string
	}{
		{1, "the forward pass changes buffer calls, which no server has"},
		{2, "the forward pass changes buffer calls, which no server has"},
		{0, "parameters 0.weight and 1.weight have the same memory and are two"},
		{3, "parameter late is not what build has made"},
		{9, ""}, {9, ""}, {9, ""},
		{4, "parameter frozen is not what build has made"},
		{5, ""},
	} {
		if err := ask(c.number); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("case %d: error %v; want %q", c.number, err, c.want)
		}
	}
	first, _, _, err := p.Evaluate(t.Context(), params)
	again, _, _, errAgain := p.Evaluate(t.Context(), params)
	if first != again || err != nil || errAgain != nil {
		t.Errorf("two evaluations of the same parameters come to %v and %v: %v, %v", first, again, err, errAgain)
	}
}
