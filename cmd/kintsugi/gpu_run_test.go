//go:build gpu && cgo && linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/cluster"
	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// withGPU makes the processes that the test starts load a driver from libraries of these names: of
// a GPU, or of its emulation.
func withGPU(t *testing.T, libraries ...string) {
	t.Helper()
	library := emulate.Library(t)
	if library == "" {
		return // the machine's own driver
	}
	dir := t.TempDir()
	for _, name := range append(libraries, "libcuda.so.1") {
		if err := os.Symlink(library, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("LD_LIBRARY_PATH", dir)
}

// small returns the flags of a run in which all work is done on the GPU, and which the emulation
// completes in seconds.
func small(more ...string) []string {
	args := []string{"train", "--model", "mlp", "--workers", "1", "--servers", "2", "--device", "cuda", "--server-device", "cuda", "--codec", "int8-nofeedback", "--checkpoint-every", "10"}
	if !emulate.OnGPU() {
		args = append(args, "--batch", "2")
	}
	return append(args, more...)
}

// Gradients and steps are computed on the GPU, and a server is killed. Nothing is lost: the
// parameters have the bits of an undisturbed run whose servers compute on the host.
func TestATrainingOnTheGPUOutlivesAServer(t *testing.T) {
	withGPU(t)
	model, steps, at := "mlp", "50", "15"
	switch {
	case testing.Short() && emulate.OnPTX(): // it takes seconds for a step of mlp
		model, steps, at = "mlr", "4", "2"
	case testing.Short() && !emulate.OnGPU(): // past the first checkpoint
		steps, at = "14", "12"
	}
	host, killed := newDir(t), newDir(t)
	must(t, small("--model", model, "--steps", steps, "--out", killed, "--fault", "kill server/0 at step "+at)...)
	must(t, small("--model", model, "--steps", steps, "--out", host, "--server-device", "cpu")...)
	sameBits(t, killed, host)
	if n := len(readRun(t, killed).Summary.Failures); n != 1 {
		t.Errorf("the summary has %d failures, want 1", n)
	}
	if emulate.OnPTX() { // and not from the sources
		log, err := os.ReadFile(filepath.Join(record.LogsDir(killed), "worker-0.log"))
		if err != nil || !strings.Contains(string(log), `"cuda, emulated by its PTX, `) {
			t.Errorf("%v; the worker's log is\n%s", err, log)
		}
	}
}

// The GPU takes the local steps, and encodes what they come to unless that is sent as it is.
func TestLocalStepsOnTheGPUOutliveAServer(t *testing.T) {
	withGPU(t)
	model, steps, at := "mlp", "8", "4"
	if testing.Short() && !emulate.OnGPU() { // a batch of mlp takes a third of a second, and seconds by its PTX
		model = "mlr"
	}
	if testing.Short() && emulate.OnPTX() {
		steps, at = "4", "2"
	}
	host, killed := newDir(t), newDir(t)
	must(t, small("--model", model, "--steps", steps, "--local-steps", "3", "--out", killed, "--fault", "kill server/0 at step "+at)...)
	must(t, small("--model", model, "--steps", steps, "--local-steps", "3", "--out", host, "--server-device", "cpu")...)
	sameBits(t, killed, host)
	if r := readRun(t, killed); len(r.Summary.Failures) != 1 || r.Header.LocalSteps != 3 {
		t.Errorf("%d failures, %d local steps", len(r.Summary.Failures), r.Header.LocalSteps)
	}
	if !emulate.OnPTX() {
		calm, killed := newDir(t), newDir(t)
		must(t, small("--model", model, "--steps", "8", "--local-steps", "3", "--clip-norm", "1", "--codec", "fp32", "--out", calm)...)
		must(t, small("--model", model, "--steps", "8", "--local-steps", "3", "--clip-norm", "1", "--codec", "fp32", "--out", killed, "--fault", "kill server/1 at step 5")...)
		sameBits(t, killed, calm)
	}
}

// A call to a GPU that hangs does not return, so its process ends. That of a worker, whose model would compute
// for ever, and that of a server, for which all would wait.
func TestARunOutlivesAGPUThatHangs(t *testing.T) {
	if emulate.OnGPU() {
		t.Skip("a GPU does not hang when it is asked to; run it without -real")
	}
	withGPU(t)
	file := filepath.Join(t.TempDir(), "hang")
	cases, steps := [][]string{{"--server-device", "cpu"}, {"--device", "cpu"}}, "40"
	if testing.Short() {
		cases, steps = cases[:1], "20"
	}
	for _, devices := range cases {
		flags := append([]string{"--model", "mlr", "--steps", steps, "--hang-after", "5s"}, devices...)
		calm, dir := newDir(t), newDir(t)
		must(t, small(append(flags, "--out", calm)...)...)
		p := start(t, append([]string{emulate.Hang + "=" + file}, small(append(flags, "--gradient-time", "50ms", "--out", dir)...)...)...)
		eventually(t, "a step is done", func() bool {
			events, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
			return err == nil && strings.Contains(string(events), `"kind":"step"`)
		})
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := p.wait(); r.status != exitDone {
			t.Errorf("%v: exit status %d:\n%s", devices, r.status, r.stderr)
		}
		sameBits(t, dir, calm)
		for _, f := range readRun(t, dir).Summary.Failures {
			if !strings.Contains(f.Cause, "GPU 0 has not finished its work within 5s: the GPU hangs") {
				t.Errorf("%v: %+v", devices, f)
			}
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) || len(readRun(t, dir).Summary.Failures) == 0 {
			t.Errorf("%v: nothing has hung: %v", devices, err)
		}
	}
}

// Each worker takes the next GPU that can be used, and so does each server. If one is named, all take
// that.
func TestEachProcessTakesAGPU(t *testing.T) {
	if emulate.OnGPU() {
		t.Skip("how many GPUs there are is not known; run it without -real")
	}
	withGPU(t)
	t.Setenv(emulate.Devices, "4")
	t.Setenv(emulate.Old, "1")
	for device, want := range map[string][]string{"cuda": {"cuda", "cuda:2", "cuda:3", "cuda"}, "cuda:3": {"cuda:3", "cuda:3", "cuda:3", "cuda:3"}, "auto": {"cuda", "cuda:2", "cuda:3", "cuda"}} {
		dir := newDir(t)
		must(t, "train", "--model", "mlr", "--workers", "4", "--servers", "4", "--batch", "2", "--steps", "3", "--eval-every", "0", "--device", device, "--server-device", device, "--out", dir)
		for i, gpu := range want {
			for _, role := range []string{"worker", "server"} {
				log, err := os.ReadFile(filepath.Join(record.LogsDir(dir), fmt.Sprintf("%s-%d.log", role, i)))
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(string(log), `"`+gpu+`, emulated`) {
					t.Errorf("--device %s: the log of %s %d is\n%s\nwant %s in it", device, role, i, log, gpu)
				}
			}
		}
		if text := map[bool]string{true: "cuda:3 (", false: "cuda, 3 GPUs ("}[device == "cuda:3"]; !strings.HasPrefix(readRun(t, dir).Header.Device, text) {
			t.Errorf("the run says that it is on %q", readRun(t, dir).Header.Device)
		}
	}
	if out := must(t, "version"); !strings.Contains(out, "; 3 GPUs can be used") {
		t.Errorf("version says\n%s", out)
	}
}

// If --device auto finds no GPU, a program that could use one says why it computes on the CPU.
func TestATrainingWithoutAGPUSaysSo(t *testing.T) {
	if emulate.OnGPU() {
		t.Skip("this machine has a GPU; run it without -real")
	}
	dir := newDir(t)
	must(t, "train", "--model", "qp", "--steps", "3", "--workers", "1", "--servers", "1", "--out", dir)
	log, err := os.ReadFile(filepath.Join(record.LogsDir(dir), "worker-0.log"))
	if err != nil {
		t.Fatal(err)
	}
	if want := `"device":"cpu (no GPU can be used: no CUDA driver: `; !strings.Contains(string(log), want) {
		t.Errorf("the worker's log is\n%s\nwant %s in it", log, want)
	}
}

// A run reports which library multiplies matrices, as `version` does. It has the same bits whether
// that library was found or asked for by name.
func TestATrainingOnTheGPUSaysWhatMultiplies(t *testing.T) {
	if emulate.OnGPU() {
		t.Skip("what is installed beside a GPU is not known; run it without -real")
	}
	withGPU(t, "libcublas.so.12")
	const library = "cuBLAS 12.3.4 (libcublas.so.12)"
	found, asked, rounded := newDir(t), newDir(t), newDir(t)
	must(t, small("--steps", "3", "--out", found)...)
	must(t, small("--steps", "3", "--out", asked, "--device", "cuda,cublas")...)
	sameBits(t, asked, found)
	must(t, small("--steps", "1", "--out", rounded, "--device", "cuda,bf16")...)
	for dir, want := range map[string]string{found: `"` + library + `"`, rounded: `"` + library + `, BF16"`} {
		log, err := os.ReadFile(filepath.Join(record.LogsDir(dir), "worker-0.log"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(log), want) {
			t.Errorf("the worker's log is\n%s\nwant %q in it", log, want)
		}
	}
	if out := must(t, "version"); !strings.Contains(out, "gpu: cuda, emulated") || !strings.Contains(out, "products by "+library+", in FP32, TF32 or BF16\n") {
		t.Errorf("version says\n%s", out)
	}
}

// `bench train` compares a cluster on the GPU with a loop on the same GPU.
func TestTrainingIsMeasuredOnTheGPU(t *testing.T) {
	withGPU(t)
	args := []string{"bench", "train", "--models", "mlr", "--device", "cuda", "--server-device", "cuda", "--rounds", "1", "--before", "", "--format", "json"}
	if !emulate.OnGPU() {
		args = append(args, "--workers", "1", "--servers", "1", "--steps", "10")
	}
	var rows []cluster.TrainRow
	if err := json.Unmarshal([]byte(must(t, args...)), &rows); err != nil {
		t.Fatal(err)
	}
	if r := rows[0]; len(rows) != 1 || r.Threads != 1 || !(r.TrainStepsPerSec > 0) || !(r.LoopStepsPerSecond > 0) {
		t.Errorf("rows %+v; want one, with a loop of one thread", rows)
	}
}

// Each operation with a row in docs/gpu.md is measured beside a copy of the same bytes.
func TestKernelsAreMeasuredOnTheGPU(t *testing.T) {
	withGPU(t)
	args := []string{"bench", "kernels", "--device", "cuda", "--format", "json"}
	if !emulate.OnGPU() {
		args = append(args, "--sizes", "1", "--k", "1", "--pairs", "1", "--at-least", "1ns")
	}
	var rows []bench.Row
	if err := json.Unmarshal([]byte(must(t, args...)), &rows); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bench.Row{}
	for _, r := range rows {
		if r.Device != "cuda" || r.Bytes < 1<<19 || !(r.Seconds > 0) || !(r.BoundGBPerS > 0) || !(r.Fraction > 0) {
			t.Errorf("row %+v", r)
		}
		seen[fmt.Sprintf("%s/%s/%s/%d", r.Name, r.Variant, r.DType, r.K)] = r
	}
	for name, goal := range map[string]float64{
		"adam/fused/fp32/1": 0.92, "adam/fused/bf16/1": 0.85, "adam/fused/int8/1": 0.85, "sgd/fused/fp32/1": 0.9, "adam/fused/sign/1": 0.9,
		"encode/feedback/bf16/1": 0.9, "encode/feedback, at random/int8/1": 0.85, "encode/feedback/powersgd:2/1": 0.2, "encode/a hundredth/sparse/1": 0.35, "squared distance/scan/fp32/2": 0.9, "finite/scan/fp32/1": 0.9,
		"select/feedback/topk:0.01/1": 0.7, "select/alone/topk:0.1/1": 0,
	} {
		if r, ok := seen[name]; (!ok || r.Goal != goal) && !emulate.OnGPU() {
			t.Errorf("%s has the goal %v, measured: %v; want %v", name, r.Goal, ok, goal)
		}
	}
}
