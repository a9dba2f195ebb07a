package program_test

import (
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// inPython starts a program that begins so and then runs what kintsugi.py is for.
func inPython(t *testing.T, source string) (*program.Program, error) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here, which kintsugi.py is for")
	}
	t.Setenv("PYTHONPATH", "../../python")
	t.Setenv("PYTHONUNBUFFERED", "") // which is what users have
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	p, err := program.Start(t.Context(), program.Config{Command: []string{python, "-c", source}, Slots: 1})
	if err == nil {
		t.Cleanup(func() { _ = p.Close() }) // tests see how it ended
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
	if err == nil || !strings.Contains(err.Error(), `it ended (signal: killed); the last that it wrote is "300 GB, please"`) {
		t.Error(err)
	}
}

func TestAProgramInPythonSuggestsItsRecipe(t *testing.T) {
	p, err := inPython(t, `
import kintsugi
kintsugi.run("net", [("w", (2, 1)), ("b", (2,))], lambda params, seed: None, None, examples=3, batch=2, steps=9, learning_rate=0.25, optimizer="adamw",
    momentum=0.5, codec="int8", warmup=3, decay="linear", weight_decay=0.125, weight_decay_for="matrices")
`)
	if err != nil {
		t.Fatal(err)
	}
	want := program.Description{
		Name: "net", Tensors: []kintsugi.Tensor{{Name: "w", Shape: []int{2, 1}}, {Name: "b", Shape: []int{2}}}, Examples: 3, Batch: 2, Steps: 9,
		LearningRate: 0.25, Optimizer: "adamw", Momentum: 0.5, Codec: "int8", Warmup: 3, Decay: "linear", WeightDecay: 0.125, Decayed: "matrices",
	}
	if got := p.About(); !reflect.DeepEqual(got, want) {
		t.Errorf("it describes %+v, want %+v", got, want)
	}
}

func TestWhatRunDoesNotSuggestIsForTheCommandLine(t *testing.T) {
	_, err := inPython(t, `
import kintsugi
kintsugi.run("net", [("w", (2,))], None, None, epsilon=0.1)
`)
	if err == nil || !strings.Contains(err.Error(), "TypeError: run has no argument epsilon; what a program does not suggest is for the command line of kintsugi train") {
		t.Error(err)
	}
}
