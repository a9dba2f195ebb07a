package role

import (
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// saver is a run from which a planner learns. Steps take 10 ms, and half as long again while chunks
// are saved to its store.
type saver struct {
	p       *planner
	chunks  int
	latency float64        // seconds of a save without bytes
	model   float64        // seconds that a save of all bytes takes in addition
	beside  float64        // seconds of a step beside a save
	noise   func() float64 // factor of the time of a step; nil: 1
	fast    float64        // how much faster the first chunk moves than the others; 0: as fast

	step  kintsugi.Step
	now   float64
	saved []kintsugi.ChunkID // being saved; nil: none
	of    kintsugi.Step
	begun float64
	until float64
	plans int
	first int // plans that have the first chunk
}

// newSaver returns a run at step 2000, after some failures.
func newSaver(t *testing.T, recovery string, failures int, latency, model float64) *saver {
	t.Helper()
	return newSaverIn(t, recovery, kintsugi.View{Line: 1 + kintsugi.Line(failures), Losses: failures}, latency, model)
}

// newSaverIn is newSaver for a given view, and for any way to recover that has a running
// checkpoint.
func newSaverIn(t *testing.T, recovery string, v kintsugi.View, latency, model float64) *saver {
	t.Helper()
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{200_000}}})
	if err != nil {
		t.Fatal(err)
	}
	protects, err := (&job.Settings{Recovery: recovery, Servers: 1}).Protection()
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPlanner(*protects.Running, l, kernels.SGD, v, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s := &saver{p: p, chunks: len(l.Chunks), latency: latency, model: model, beside: 0.015, step: 2000}
	saved := make([]kintsugi.Step, s.chunks)
	for i := range saved {
		saved[i] = s.step
	}
	p.Begin(s.step, saved)
	return s
}

func (s *saver) run(steps int) {
	for range steps {
		s.step++
		took := 0.01
		if s.saved != nil {
			took = s.beside
		}
		if s.noise != nil {
			took *= s.noise()
		}
		s.now += took
		if s.saved != nil && s.now >= s.until {
			s.p.Done(s.of, s.saved, true)
			s.p.Observe(kintsugi.CheckpointEvent{Running: true, Bytes: s.bytes(s.saved), Took: time.Duration(1e9 * (s.until - s.begun))})
			s.saved = nil
		}
		if s.saved == nil && s.p.Due(s.step) {
			s.plan()
		}
		s.p.Observe(kintsugi.StepEvent{Step: s.step, Loss: 2 * math.Exp(-float64(s.step)/500), Norm: 1, Wait: time.Duration(1e9 * took)})
	}
}

func (s *saver) plan() {
	distances := make([]float64, s.chunks)
	x := kintsugi.Exposure{Chunks: uint32(s.chunks)}
	for i := range distances {
		age := s.p.Age(s.step, kintsugi.ChunkID(i))
		distances[i] = float64(age) * float64(1+i%4)
		if i == 0 && s.fast > 0 {
			distances[i] *= s.fast
		}
		x.Squared += distances[i]
		x.Age += uint64(age)
	}
	x.Dot = -2 * math.Exp(-float64(s.step)/500) / 500 * float64(x.Age) / float64(x.Chunks)
	s.p.Observe(kintsugi.ExposureEvent{Step: s.step, Shards: []kintsugi.Exposure{x}})
	if chosen := s.p.Plan(s.step, distances); len(chosen) > 0 {
		s.plans++
		if slices.Contains(chosen, 0) {
			s.first++
		}
		s.saved, s.of, s.begun = chosen, s.step, s.now
		s.until = s.now + s.latency + s.model*float64(s.bytes(chosen))/(4*200_000)
	}
}

func (s *saver) bytes(chunks []kintsugi.ChunkID) (sum uint64) {
	for _, c := range chunks {
		sum += uint64(s.p.Bytes(c))
	}
	return sum
}

// Fraction and period follow the store and the failures. No plan begins while the previous one is
// being saved, the store is not asked for more than it can take, and a run that fails rarely saves
// rarely.
func TestAnAdaptivePlanFollowsTheStoreAndTheFailures(t *testing.T) {
	type want struct{ period, interval kintsugi.Step }
	settle := func(failures int, latency, model float64) want {
		s := newSaver(t, "scar:adaptive", failures, latency, model)
		s.run(3000)
		k := s.p.knobs
		w := want{k.Period, kintsugi.Step(math.Round(k.Fraction * float64(k.Period)))}
		if float64(w.interval) < 1.5*latency/0.01 || float64(k.Period) < model/0.01 {
			t.Errorf("a save lasts %v s and all bytes %v s of steps of 10 ms: %+v", latency, model, w)
		}
		plans := s.plans
		s.run(10 * int(k.Period))
		if made := float64(s.plans-plans) * k.Fraction; made < 6 || made > 15 {
			t.Errorf("in ten periods %v models are saved, %+v", made, w)
		}
		return w
	}
	fast, slow, late, rare := settle(20, 0.001, 0.1), settle(20, 0.001, 0.5), settle(20, 0.08, 0.1), settle(0, 0.001, 0.1)
	if !(fast.period < slow.period && fast.interval < late.interval && fast.period < rare.period) {
		t.Errorf("fast store %+v, slow %+v, late %+v, few failures %+v", fast, slow, late, rare)
	}
}

// If a measurement says by chance that saves are free, chunks are not saved as fast as the store
// takes them. If failures are rare, that would be wasted.
func TestNoiseDoesNotMakeSavesFree(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s := newSaverIn(t, "gold", kintsugi.View{Line: 1}, 0.001, 0.1)
		s.beside, s.noise = 0.01, func() float64 { return 0.5 + rng.Float64() }
		for range 40 {
			s.run(100)
			if k := s.p.knobs; k.Period < job.ScarLongest {
				t.Fatalf("seed %d: at step %d all bytes are saved in %d steps, and nothing has failed", seed, s.step, k.Period)
			}
		}
	}
}

// Gold assumes that its running checkpoint is needed rarely, until a run shows otherwise: after the
// second loss of a shard it saves as often as scar:adaptive.
func TestGoldSavesMoreOftenOnceItIsNeeded(t *testing.T) {
	rare, common := newSaverIn(t, "gold", kintsugi.View{Line: 2, Keeps: 1, Losses: 1}, 0.001, 0.1), newSaverIn(t, "gold", kintsugi.View{Line: 3, Keeps: 1, Losses: 2}, 0.001, 0.1)
	scar := newSaverIn(t, "scar:adaptive", kintsugi.View{Line: 3, Keeps: 1, Losses: 2}, 0.001, 0.1)
	for _, s := range []*saver{rare, common, scar} {
		s.run(1000)
	}
	if common.p.knobs.Period != scar.p.knobs.Period || common.plans != scar.plans || common.plans < 5*rare.plans {
		t.Errorf("%d plans after a loss, %d after two; scar:adaptive makes %d", rare.plans, common.plans, scar.plans)
	}
	if planned := newSaverIn(t, "gold", kintsugi.View{Line: 5, Keeps: 1, Losses: 1}, 0.001, 0.1); planned.p.knobs.Period != rare.p.knobs.Period {
		t.Errorf("a run whose replicas were changed three times saves all bytes in %d steps, another one in %d", planned.p.knobs.Period, rare.p.knobs.Period)
	}
	if resumed := newSaverIn(t, "gold", kintsugi.View{Line: 7, Losses: 6}, 0.001, 0.1); resumed.p.knobs.Period != job.ScarLongest {
		t.Errorf("a run that was resumed saves all bytes in %d steps, and has lost no shard alone", resumed.p.knobs.Period)
	}
}

// If a shard is lost every 60 steps, most of a view is over before it has learnt what saves cost. A
// view that goes on with what was learnt before saves like a long one from its first steps on.
func TestWhatWasLearntOutlivesAView(t *testing.T) {
	for _, recovery := range []string{"gold", "scar:adaptive"} {
		views := func(goesOn bool) *saver {
			var s *saver
			for lost := range 20 {
				next := newSaverIn(t, recovery, kintsugi.View{Line: 1 + kintsugi.Line(lost), Keeps: 1, Losses: lost}, 0.001, 0.01)
				if s != nil && goesOn {
					if err := next.p.goOn(s.p); err != nil {
						t.Fatal(err)
					}
				}
				s = next
				s.run(60)
			}
			last := newSaverIn(t, recovery, kintsugi.View{Line: 21, Keeps: 1, Losses: 20}, 0.001, 0.01)
			if goesOn {
				if err := last.p.goOn(s.p); err != nil {
					t.Fatal(err)
				}
			}
			last.run(12)
			return last
		}
		anew, learnt := views(false), views(true)
		long := newSaverIn(t, recovery, kintsugi.View{Line: 20, Keeps: 1, Losses: 19}, 0.001, 0.01)
		long.run(3000)
		if got, want := learnt.p.knobs.Period, long.p.knobs.Period; got > 2*want || want > 2*got || anew.p.knobs.Period <= 2*want {
			t.Errorf("%s: all bytes are saved in %d steps; in %d where each view learns anew, and %d in one that lasts", recovery, got, anew.p.knobs.Period, want)
		}
	}
}

// The chunk that moves most is saved most often, even after the period has become longer than the
// largest age of a chunk was at first. Otherwise all chunks would be too old, and be saved in turn.
func TestALongerPeriodLeavesRoomForWhatMoves(t *testing.T) {
	s := newSaver(t, "scar:adaptive", 0, 0.001, 0.1)
	s.fast = 1000
	s.run(3000)
	period := s.p.knobs.Period
	if period <= job.ScarAges*job.ScarPeriod {
		t.Fatalf("a period of %d steps; the test wants a long one", period)
	}
	before := s.first
	s.run(20 * int(period))
	if saved := s.first - before; saved < 40 {
		t.Errorf("in 20 periods of %d steps the chunk that moves 1000 times as fast as others is saved %d times", period, saved)
	}
}

func TestAFixedPlanStaysAsItIs(t *testing.T) {
	s := newSaver(t, "scar:1/4,32", 20, 0.001, 0.01)
	s.run(320)
	if s.plans != 40 || s.p.knobs.Period != 32 {
		t.Errorf("%d plans in 320 steps, want 40; %+v", s.plans, s.p.knobs)
	}
}

// A shard that does not report what is saved of it must not stop the conductor.
func TestAPlannerThatDoesNotKnowAllChunksPlansNothing(t *testing.T) {
	s := newSaver(t, "scar:1/4,32", 0, 0.001, 0.01)
	s.p.Begin(s.step, make([]kintsugi.Step, s.chunks-1))
	s.run(100)
	if s.plans != 0 || s.p.Age(5, kintsugi.ChunkID(s.chunks)) != 0 {
		t.Errorf("%d plans", s.plans)
	}
	s.p.Begin(s.step, make([]kintsugi.Step, s.chunks))
	if s.run(100); s.plans == 0 {
		t.Error("all is known, and nothing is planned")
	}
}
