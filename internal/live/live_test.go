package live

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// patience bounds every wait for a cluster. Only a failing test uses it up. It is long, because a
// busy machine is not a failure.
const patience = 4 * time.Minute

// soon is the grace of clusters that are to go on without a worker.
const soon = 300 * time.Millisecond

func layout(t testing.TB) *kintsugi.Layout {
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "a/w", Shape: []int{300, 40}}, {Name: "a/b", Shape: []int{40}}, {Name: "c", Shape: []int{3, 777}}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// noisy is the gradient of ‖w − 1‖²/2 with noise that depends only on the id of the push. The noise
// is so large that a gradient that is counted twice, or left out, or summed in another order shows
// in the bits.
func noisy(_ context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
	h := uint64(id.Slot)*0x9e3779b97f4a7c15 ^ uint64(id.Version)*0xbf58476d1ce4e5b9 ^ uint64(id.Sequence)*0x94d049bb133111eb
	loss := 0.0
	for i, p := range params {
		h ^= h << 13
		h ^= h >> 7
		h ^= h << 17
		d := p - 1
		loss += float64(d) * float64(d)
		grads[i] = d + (float32(h>>40)/(1<<23) - 1)
	}
	return loss / 2, 32, nil
}

func base(t testing.TB) Config {
	return Config{
		Servers: 1, Workers: 4, Layout: layout(t), Gradient: noisy, Steps: raced(60, 45), SaveEvery: 10,
		Schedule: conductor.Schedule{Rule: kintsugi.RuleAdam, LearningRate: 0.01},
	}
}

// brief reports whether this is a short run under the race detector.
func brief() bool { return race.Enabled && testing.Short() }

// raced returns the number of steps of a long run: few under the race detector with -short,
// otherwise plain. The detector finds in some dozens of steps what it finds in all, and each takes
// many times longer.
func raced(plain, few kintsugi.Step) kintsugi.Step {
	if brief() {
		return few
	}
	return plain
}

// run runs a cluster to its end, with storm beside it, and returns the parameters that it published
// last.
func run(t *testing.T, cfg Config, storm func(*Cluster)) []float32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cfg.Log = t.Output()
	l, err := Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if storm != nil {
		storm(l)
	}
	d, err := l.Wait()
	if err != nil {
		t.Fatal(err)
	}
	params, step := l.Params()
	if d.Step != cfg.Steps || step != cfg.Steps {
		t.Fatalf("run ended at step %d, the last checkpoint is of step %d, want %d", d.Step, step, cfg.Steps)
	}
	return params
}

// until waits for the release of a step in the present view.
func until(t *testing.T, l *Cluster, step kintsugi.Step) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		reached := false
		_ = l.Watch(ctx, func(e kintsugi.RunEvent) bool {
			s, ok := e.(kintsugi.StepEvent)
			reached = reached || ok && s.Step >= step
			return !reached
		})
		if reached {
			return
		}
	}
	t.Fatalf("step %d was not reached", step)
}

// If every gradient is counted, the number of servers, threads and devices does not change a bit.
func TestShardsThreadsAndDevicesDoNotChangeTheModel(t *testing.T) {
	want := run(t, base(t), nil)
	counts, devices := []int{1, 2, 3, 7}, kernels.Devices()
	if brief() {
		counts, devices = []int{3}, devices[:1]
	}
	for _, servers := range counts {
		for _, d := range devices {
			cfg := base(t)
			cfg.Servers, cfg.Device, cfg.Threads = servers, d, 1+servers%3
			if got := run(t, cfg, nil); !slices.EqualFunc(got, want, sameBits) {
				t.Errorf("%d servers on %s with %d threads end with another model", servers, d.Name(), cfg.Threads)
			}
		}
	}
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

// The wire by which gradients and parameters travel does not change the model. If it is shared
// memory, a server that is killed with gradients in it loses no more than elsewhere.
func TestTheWireDoesNotChangeTheModel(t *testing.T) {
	for _, consistency := range []string{"bsp", "bsp:wait", "bsp:sum,pull"} {
		if brief() && consistency == "bsp" {
			continue
		}
		cfg := base(t)
		cfg.Servers, cfg.Consistency, cfg.Schedule.LearningRate = 2, preset(t, consistency), 0.005
		cfg.Wire = worker.WireGRPC
		want := run(t, cfg, nil)
		cfg.Wire = worker.WireShared
		got := run(t, cfg, func(l *Cluster) {
			until(t, l, 33)
			l.KillServer(1)
			if err := l.StartServer(1); err != nil {
				t.Fatal(err)
			}
			l.NewView("a server came back")
		})
		if !slices.EqualFunc(got, want, sameBits) {
			t.Errorf("%s: the model depends on the wire", consistency)
		}
	}
}

// A server that dies loses its shard. The run goes on from the checkpoint and ends with the bits of
// an undisturbed run.
func TestServerCrashDoesNotChangeTheModel(t *testing.T) {
	want := run(t, base(t), nil)
	for _, victim := range []int{0, 1} {
		for i, every := range []kintsugi.Step{1, 10} {
			if brief() && victim != i {
				continue
			}
			cfg := base(t)
			cfg.Servers, cfg.SaveEvery = 2, every
			got := run(t, cfg, func(l *Cluster) {
				until(t, l, 33)
				l.KillServer(victim)
				if err := l.StartServer(victim); err != nil {
					t.Fatal(err)
				}
				l.NewView("a server came back")
			})
			if !slices.EqualFunc(got, want, sameBits) {
				t.Errorf("killing server %d with a checkpoint every %d steps changed the model", victim, every)
			}
		}
	}
}

// A run ends although a worker dies and comes back, while others go on.
func TestWorkerCrashEndsNothing(t *testing.T) {
	cfg := base(t)
	cfg.Servers, cfg.Steps, cfg.LeaveGrace = 2, 200, soon
	run(t, cfg, func(l *Cluster) {
		until(t, l, 20)
		l.KillWorker(2)
		until(t, l, 40)
		l.StartWorker(2)
	})
}

// Steps wait for ever for a worker whose connection broke, but not if it is known to be dead.
func TestNoStepWaitsForTheDead(t *testing.T) {
	cfg := base(t)
	alive := make(chan map[kintsugi.Slot]kintsugi.Incarnation)
	cfg.Servers, cfg.Alive = 2, func(ctx context.Context) <-chan map[kintsugi.Slot]kintsugi.Incarnation {
		context.AfterFunc(ctx, func() { close(alive) })
		return alive
	}
	run(t, cfg, func(l *Cluster) {
		until(t, l, 10)
		alive <- l.Workers()
		l.KillWorker(2)
		alive <- l.Workers()
	})
}

// If nobody is waited for, each step counts one gradient, and the model still comes near the
// optimum.
func TestAsyncConverges(t *testing.T) {
	cfg := base(t)
	cfg.Servers, cfg.Steps = 2, 1500
	if brief() {
		t.Skip("the race detector sees async among the presets; run this without -short")
	}
	cfg.Schedule = conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: 0.01}
	cfg.Consistency, _ = agg.Preset("async")
	params := run(t, cfg, nil)
	sum := 0.0
	for _, p := range params {
		sum += float64(p)
	}
	if mean := sum / float64(len(params)); math.Abs(mean-1) > 0.05 {
		t.Errorf("mean parameter is %v after %d steps, want about 1", mean, cfg.Steps)
	}
}

// Stop ends the run after the open step, with a checkpoint of the newest version.
func TestStopSavesTheNewestVersion(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cfg := base(t)
	cfg.Servers, cfg.Steps, cfg.SaveEvery, cfg.Log = 2, 1_000_000, 0, t.Output()
	l, err := Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	until(t, l, 25)
	l.Stop("interrupted", true)
	d, err := l.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if _, step := l.Params(); step != d.Step || step < 25 || d.Reason != "interrupted" {
		t.Errorf("ended with %+v and a checkpoint of step %d", d, step)
	}
}

// A disk that is full or fails on one server stops no step. The run's events report the errors, and
// the next checkpoint is published as soon as the disk works.
func TestADiskThatFailsStopsNoStep(t *testing.T) {
	cfg := base(t)
	cfg.Servers = 2
	cfg.SaveErr = func(shard kintsugi.ShardID, step kintsugi.Step) error {
		switch {
		case shard == 1 && step <= 20:
			return fmt.Errorf("write segment: %w", syscall.ENOSPC)
		case shard == 0 && step == 30:
			return fmt.Errorf("write segment: %w", syscall.EIO)
		}
		return nil
	}
	want := run(t, base(t), nil)
	var failed, published []kintsugi.Step
	got := run(t, cfg, func(l *Cluster) {
		_ = l.Watch(t.Context(), func(e kintsugi.RunEvent) bool {
			c, ok := e.(kintsugi.CheckpointEvent)
			switch {
			case ok && c.Err != "":
				failed = append(failed, c.Step)
				if !strings.Contains(c.Err, "write segment: ") {
					t.Errorf("the event of step %d says %q", c.Step, c.Err)
				}
			case ok:
				published = append(published, c.Step)
			}
			_, done := e.(kintsugi.Done)
			return !done
		})
	})
	if !slices.EqualFunc(got, want, sameBits) {
		t.Error("a failing disk changed the model")
	}
	if len(failed) == 0 || len(published) == 0 || slices.Contains(failed, cfg.Steps) || published[len(published)-1] != cfg.Steps {
		t.Errorf("checkpoints of steps %v failed, of %v were published", failed, published)
	}
}
