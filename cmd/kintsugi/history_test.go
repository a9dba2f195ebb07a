package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/role"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/serial"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// Servers of chains are killed as processes, one after the other. The workers run in this process
// and note what they read and push. That must be what they would see of a single server that does
// one thing after the other.
func TestWhatWorkersSeeOfProcessesIsInOrder(t *testing.T) {
	onlyLong(t)
	notUnderRace(t)
	t.Parallel()
	const servers, workers, replicas = 3, 3, 2
	flags := []string{"--model", "qp:dimension=4000,condition=30,noise=0.1", "--blas", "gonum", "--workers", strconv.Itoa(workers), "--servers", strconv.Itoa(servers),
		"--recovery", "chain", "--replicas", strconv.Itoa(replicas), "--decay", "constant", "--steps", "100000000", "--checkpoint-every", "100000000", "--seed", "5"}
	e, err := etcd.Embed(t.Context(), t.TempDir(), etcd.Options{UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	client, err := etcd.Dial(t.Context(), []string{e.Endpoint()}, "seen")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	cluster, err := launch.New(launch.Config{Logs: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Stop(context.Background()) })
	store := t.TempDir()
	start := func(role launch.Role, i int, more ...string) {
		args := append(append([]string{role.String(), "--etcd", e.Endpoint(), "--run", "seen", "--store", store}, flags...), more...)
		if err := cluster.Start(launch.Spec{Part: launch.Part{Role: role, Index: i}, Args: args, Env: []string{beKintsugi + "=1"}}); err != nil {
			t.Fatal(err)
		}
	}
	start(launch.Coordinator, 0)
	for i := range servers {
		start(launch.Server, i, "--index", strconv.Itoa(i))
	}
	seen := newNotes(t, flags)
	wait := seen.work(t, client, workers)
	run := watch(t, client, nil)
	for i := range servers {
		run.until(t, "every server has caught up", func() bool { return run.complete(replicas) })
		seen.steps(t, 40)
		run.mu.Lock()
		was := run.view.Number
		run.mu.Unlock()
		if err := cluster.Kill(launch.Part{Role: launch.Server, Index: i}, false); err != nil {
			t.Fatal(err)
		}
		run.until(t, fmt.Sprintf("server/%d is missed", i), func() bool { return run.view.Number > was })
		seen.steps(t, 40)
	}
	if err := client.PutStop(t.Context(), etcd.Stop{Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	wait()
	if len(run.lines) > 1 {
		t.Errorf("the run went over lines %v: steps were taken back", run.lines)
	}
	h := seen.history(t)
	if err := h.Check(patience); err != nil {
		t.Error(err)
	}
	t.Logf("%d operations in order over %d versions and %d views", h.Len(), len(h.Sums), run.view.Number)
}

// notes is what the workers in this process see.
type notes struct {
	settings *job.Settings
	problem  *job.Problem
	began    time.Time

	mu     sync.Mutex
	seen   serial.History
	newest kintsugi.Step
	open   map[kintsugi.Slot]offered // by worker: the newest gradient that it pushes
}

type offered struct {
	version kintsugi.Step
	at      time.Duration
}

func newNotes(t *testing.T, flags []string) *notes {
	n := &notes{settings: &job.Settings{}, began: time.Now(), open: make(map[kintsugi.Slot]offered)}
	f := job.NewFlagSet("notes")
	n.settings.Register(f)
	if err := f.Parse(flags); err != nil {
		t.Fatal(err)
	}
	var err error
	if n.problem, err = job.Describe(n.settings); err != nil {
		t.Fatal(err)
	}
	return n
}

// gradient returns the function by which the workers compute, which also ends them.
func (n *notes) gradient(t *testing.T) worker.Gradient {
	g, m, err := n.problem.Compute(t.Context(), n.settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return g
}

// work starts the workers. It returns a function that waits for the end of the run.
func (n *notes) work(t *testing.T, client *etcd.Client, workers int) (wait func()) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	consistency, err := n.settings.Counting()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range workers {
		place, err := client.Register(ctx, etcd.Worker, uint32(i), struct{}{}, role.Lease)
		if err != nil {
			t.Fatal(err)
		}
		cfg := worker.Config{
			Slot: kintsugi.Slot(i), Incarnation: place.Incarnation(), Layout: n.problem.Layout, Device: kernels.Best(), Gradient: n.note(n.gradient(t)),
			Seed: n.settings.Seed, Pace: consistency.Pace(), Log: slog.New(slog.DiscardHandler),
		}
		wg.Go(func() {
			if err := worker.Run(ctx, cfg, client.WatchView(ctx)); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("worker/%d: %v", i, err)
			}
		})
	}
	t.Cleanup(wg.Wait)
	t.Cleanup(cancel)
	return wg.Wait
}

// note wraps gradient and notes its calls. A worker has read a version when it begins to compute on
// it, and has pushed a gradient when it begins to compute the next one.
func (n *notes) note(gradient worker.Gradient) worker.Gradient {
	var last time.Duration // when the previous gradient was computed
	return func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
		now := time.Since(n.began)
		n.mu.Lock()
		n.seen.Pulled(id.Slot, id.Version, sumOver(params), last, now)
		n.settle(id.Slot, id.Version, now)
		n.newest = max(n.newest, id.Version)
		n.mu.Unlock()
		loss, examples, err := gradient(ctx, params, grads, id)
		last = time.Since(n.began)
		n.mu.Lock()
		defer n.mu.Unlock()
		if err == nil {
			n.open[id.Slot] = offered{id.Version, last}
		}
		return loss, examples, err
	}
}

// settle notes the outcome of a worker's push when the worker goes on with a version. The push was
// counted if that version is newer.
func (n *notes) settle(slot kintsugi.Slot, version kintsugi.Step, now time.Duration) {
	o, ok := n.open[slot]
	if !ok {
		return
	}
	delete(n.open, slot)
	step := kintsugi.Step(0)
	if version > o.version {
		step = o.version + 1
	}
	n.seen.Pushed(slot, o.version, step, o.at, now)
}

// steps waits until workers compute on versions newer by this number of steps.
func (n *notes) steps(t *testing.T, more kintsugi.Step) {
	t.Helper()
	n.mu.Lock()
	from := n.newest
	n.mu.Unlock()
	eventually(t, fmt.Sprintf("%d steps after step %d", more, from), func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.newest >= from+more
	})
}

// history returns what was seen, beside what a single loop makes of the same gradients.
func (n *notes) history(t *testing.T) *serial.History {
	schedule, err := n.settings.Schedule()
	if err != nil {
		t.Fatal(err)
	}
	workers, values := n.settings.Workers, n.problem.Layout.Values
	params, gradient := make([]float32, values), n.gradient(t)
	if err := n.problem.Desc.Init(n.settings.Seed, params); err != nil {
		t.Fatal(err)
	}
	step := kernels.Step{Rule: kernels.Rule(schedule.Rule), Params: params, Next: params}
	for i := range step.Rule.States() {
		step.State[i] = make([]float32, values)
		step.NextState[i] = step.State[i]
	}
	for range workers {
		step.Operands = append(step.Operands, kernels.Operand{Values: make([]float32, values)})
	}
	for slot := range n.open {
		n.settle(slot, 0, 0)
	}
	h := &n.seen
	h.Workers, h.Sums = workers, []uint64{sumOver(params)}
	for v := kintsugi.Step(0); v <= n.newest; v++ {
		o, total := schedule.At(v+1), 0.0
		step.Scalars = server.Scalars(o, kintsugi.Tensor{})
		for i := range step.Operands {
			_, examples, err := gradient(t.Context(), params, step.Operands[i].Values, kintsugi.PushID{Slot: kintsugi.Slot(i), Version: v})
			if err != nil {
				t.Fatal(err)
			}
			step.Operands[i].Weight = float32(examples)
			total += float64(examples)
		}
		step.Scale = float32(1 / total)
		if _, err := kernels.Host.Step(&step); err != nil {
			t.Fatal(err)
		}
		h.Sums = append(h.Sums, sumOver(params))
	}
	return h
}

func sumOver(params []float32) uint64 {
	return crc64.Checksum(kernels.Bytes(params), ecma)
}

var ecma = crc64.MakeTable(crc64.ECMA)
