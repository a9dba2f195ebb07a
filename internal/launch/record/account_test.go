package record

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// steps returns the events of steps [lo, hi] on a line, one per second, released at from, from+1,
// …; each was committed a tenth of a second earlier.
func steps(line, lo, hi uint64, from float64) []Event {
	var es []Event
	for s := lo; s <= hi; s++ {
		es = append(es, &Step{At: At{from + float64(s-lo)}, Line: line, Step: s, Loss: Number(s), ApplySeconds: 0.1,
			Examples: 10, PushedBytes: 3, PulledBytes: 2, Late: 1, Counted: []uint32{0, 1}})
	}
	return es
}

func tally(es ...[]Event) *Account {
	a := &Account{}
	for _, e := range slices.Concat(es...) {
		a.Add(e)
	}
	return a
}

func fails(part string, at, seen float64, step uint64) []Event {
	return []Event{&Failure{At: At{at}, SeenSeconds: seen, Part: part, Cause: "killed by a fault", Injected: true, Step: step}}
}

func TestAPartialRestoreTakesNoStepBack(t *testing.T) {
	s := tally(
		steps(1, 1, 10, 1),                // steps 1 to 10 at 1 s to 10 s
		fails("server/1", 10.2, 10.4, 10), // killed after step 10
		[]Event{
			&View{At: At{11}, Line: 2, Keeps: 1, RestoredStep: 6}, // the step of a chunk that was not saved since
			&Partial{At: At{11.5}, Part: "server/1", Line: 2, AdoptedStep: 10, Chunks: 3, OldestStep: 6, MeanAge: 2},
		},
		steps(2, 11, 14, 12), // step 11 at 12 s
		[]Event{&Rework{At: At{16}, Part: "server/1", Step: 10, Predicted: 2, Measured: 3, Deviation: 1}},
	).Summary()
	want := FailureCost{Part: "server/1", Cause: "killed by a fault", Injected: true, Seconds: 10.2, Step: 10,
		RecoverySeconds: 1.8, CaughtUpSeconds: 1.8, PartialChunks: 3, PartialAge: 2, MeasuredRework: 3, MeasuredError: 1}
	got := s.Failures[0]
	if got.PartialRework = 0; len(s.Failures) != 1 || got != want {
		t.Errorf("got  %+v\nwant %+v", s.Failures, want)
	}
	if len(s.Restores) > 0 || s.ReworkSteps > 0 || s.ReworkSeconds > 0 || s.OutageSeconds != 1.8 || s.Steps != 14 {
		t.Errorf("restores %+v, rework %d steps, %v s, outage %v s, %d steps; want none, 0, 0, 1.8, 14", s.Restores, s.ReworkSteps, s.ReworkSeconds, s.OutageSeconds, s.Steps)
	}
}

// If a server stays away, the summary says which of its shards went to which servers, and not that
// they have come home.
func TestASummarySaysWhereShardsHaveMoved(t *testing.T) {
	s := tally(
		[]Event{&Header{Replicas: 1}, &View{At: At{0}, Line: 1, Heads: []uint32{0, 1, 2}}},
		steps(1, 1, 10, 1),
		fails("server/1", 10.2, 10.4, 10),
		[]Event{&View{At: At{45}, Line: 2, Keeps: 1, Heads: []uint32{0, 2, 2}}},
		steps(2, 11, 14, 46),
		fails("server/2", 50.2, 50.4, 14),
		[]Event{&View{At: At{90}, Line: 3, Keeps: 1, Heads: []uint32{0, 0, 0}}},
		steps(3, 15, 16, 91),
		[]Event{&View{At: At{100}, Line: 3, Keeps: 1, Heads: []uint32{0, 1, 2}}},
	).Summary()
	if a, b := s.Failures[0].Moved, s.Failures[1].Moved; a != "shard 1 to server/2" || b != "shard 1 to server/0, shard 2 to server/0" {
		t.Errorf("server/1: %q, server/2: %q", a, b)
	}
}

// If all heads of copies die together, the line keeps the one before, and steps are taken back
// nevertheless.
func TestALineThatBeginsWithCopiesAloneTakesStepsBack(t *testing.T) {
	s := tally(
		[]Event{&Header{Workers: 2, Feedback: true}},
		steps(1, 1, 10, 1),
		fails("server/1", 10.2, 10.4, 10),
		[]Event{
			&View{At: At{11}, Line: 2, Keeps: 1},
			&Partial{At: At{11.5}, Part: "server/1", Line: 2, AdoptedStep: 8, Chunks: 3, OldestStep: 8},
		},
		steps(2, 9, 14, 12), // step 11 at 14 s
	).Summary()
	f := s.Failures[0]
	if f.LostSteps != 2 || f.RestoredStep != 8 || f.RecoverySeconds != 1.8 || f.CaughtUpSeconds != 2.8 || f.PartialChunks != 3 || f.PartialAge != 0 {
		t.Errorf("%+v", f)
	}
	if len(s.Restores) != 1 || s.ReworkSteps != 2 || s.ResidualsLost != 0 || s.Steps != 14 || s.CountedGradients-s.UsefulGradients != 4 {
		t.Errorf("restores %+v, %d steps again, %d residuals lost, %d steps, %d of %d gradients useful", s.Restores, s.ReworkSteps, s.ResidualsLost, s.Steps, s.UsefulGradients, s.CountedGradients)
	}
}

// A step that was committed before the server was quite dead does not show that another has taken
// its place.
func TestAStepBeforeAPartialRestoreIsNoRecovery(t *testing.T) {
	s := tally(
		steps(1, 1, 3, 1),
		fails("server/1", 3, 3, 3),
		steps(1, 4, 4, 5),
		[]Event{&View{At: At{6}, Line: 2, Keeps: 1}},
		steps(2, 5, 6, 8),
	).Summary()
	if f := s.Failures[0]; f.RecoverySeconds != 5 || f.LostSteps > 0 {
		t.Errorf("%+v; want the recovery at 8 s", f)
	}
}

func TestSavesOfSomeChunksAreNoCheckpoints(t *testing.T) {
	s := tally([]Event{&Checkpoint{Bytes: 100}, &Checkpoint{Bytes: 10, Running: true}, &Checkpoint{Bytes: 5, Running: true}, &Checkpoint{Running: true, Error: "full"}}).Summary()
	if s.Checkpoints != 1 || s.RunningSaves != 2 || s.CheckpointBytes != 115 || s.FailedSaves != 1 {
		t.Errorf("%d checkpoints, %d running saves, %d bytes, %d failed; want 1, 2, 115, 1", s.Checkpoints, s.RunningSaves, s.CheckpointBytes, s.FailedSaves)
	}
}

func TestAFullRestoreCostsItsOutageAndItsRework(t *testing.T) {
	s := tally(
		steps(1, 1, 10, 1),                // steps 1 to 10 at 1 s to 10 s
		fails("server/0", 10.5, 10.6, 10), // killed after step 10
		[]Event{&View{At: At{14}, Line: 2, RestoredStep: 6}},
		steps(2, 7, 12, 15), // step 7 again at 15 s, step 10 again at 18 s
	).Summary()
	if len(s.Failures) != 1 {
		t.Fatalf("%d failures, want 1", len(s.Failures))
	}
	want := FailureCost{Part: "server/0", Cause: "killed by a fault", Injected: true, Seconds: 10.5, Step: 10,
		RecoverySeconds: 4.5, LostSteps: 4, RestoredStep: 6, CaughtUpSeconds: 7.5}
	got := s.Failures[0]
	if got.PartialRework.Known() || got.MeasuredRework.Known() || got.MeasuredError.Known() {
		t.Errorf("partial rework %v, measured %v ± %v, want none", got.PartialRework, got.MeasuredRework, got.MeasuredError)
	}
	got.PartialRework, got.MeasuredRework, got.MeasuredError = 0, 0, 0
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if s.ReworkSteps != 4 || s.ReworkSeconds != 3 || s.OutageSeconds != 4.5 || s.Steps != 12 {
		t.Errorf("rework %d steps, %v s; outage %v s; %d steps; want 4, 3, 4.5, 12", s.ReworkSteps, s.ReworkSeconds, s.OutageSeconds, s.Steps)
	}
	if len(s.RecoverySeconds) != 1 || s.RecoverySeconds[0] != 4.5 {
		t.Errorf("recovery_seconds %v, want [4.5]", s.RecoverySeconds)
	}
}

func TestARestoreIsKnownByItsLineWhenTheViewWasNotSeen(t *testing.T) {
	s := tally(steps(1, 1, 10, 1), fails("server/1", 10.5, 0, 10), steps(2, 7, 7, 15)).Summary()
	if c := s.Failures[0]; c.LostSteps != 4 || c.RestoredStep != 6 || c.RecoverySeconds != 4.5 || c.CaughtUpSeconds.Known() {
		t.Errorf("got %+v", c)
	}
}

func TestAStepCommittedBeforeADeathIsNoRecovery(t *testing.T) {
	s := tally(
		steps(1, 1, 10, 1),
		fails("server/0", 10.95, 0, 10),
		steps(1, 11, 11, 11),   // committed at 10.9 s, by those that were alive then
		steps(1, 12, 13, 13.5), // the chain is complete again
	).Summary()
	if c := s.Failures[0]; c.RecoverySeconds != 2.55 || c.LostSteps != 0 || c.CaughtUpSeconds != 2.55 {
		t.Errorf("got %+v, want recovery after 2.55 s", c)
	}
}

func TestAStepCommittedWhileTheProcessWasDyingIsNoRecovery(t *testing.T) {
	s := tally(steps(1, 1, 10, 1), fails("server/0", 10.5, 11.2, 10), steps(1, 11, 11, 11.1), steps(1, 12, 12, 14)).Summary()
	if c := s.Failures[0]; c.RecoverySeconds != 3.5 {
		t.Errorf("recovery after %v s, want 3.5", c.RecoverySeconds)
	}
}

func TestARestoreTakesBackARecoveryThatWasNone(t *testing.T) {
	// A step was released before the survivors noticed, and then everything went back.
	s := tally(steps(1, 1, 10, 1), fails("server/0", 10.5, 0, 10), steps(1, 11, 11, 11), steps(2, 7, 12, 15)).Summary()
	if c := s.Failures[0]; c.RecoverySeconds != 4.5 || c.LostSteps != 5 || c.CaughtUpSeconds != 8.5 {
		t.Errorf("got %+v, want recovery after 4.5 s, 5 lost steps, caught up after 8.5 s", c)
	}
}

// The coordinator may have reacted to a death before the launcher has heard of it.
func TestALineIsChargedToTheDeathThatItAnswersAndNotToOneThatIsOver(t *testing.T) {
	for name, keeps := range map[string]uint64{"back to copies": 1, "back to a checkpoint": 0} {
		s := tally(
			steps(1, 1, 10, 1),
			fails("server/0", 10.2, 10.4, 10), // it headed nothing: steps go on
			steps(1, 11, 30, 11),
			[]Event{&View{At: At{30.3}, Line: 2, Keeps: keeps, RestoredStep: 28}},
			fails("server/1", 30.1, 30.4, 30),
			steps(2, 29, 35, 31),
		).Summary()
		if f := s.Failures[0]; f.RecoverySeconds != 0.8 || f.LostSteps != 0 || f.CaughtUpSeconds != 0.8 {
			t.Errorf("%s: the failure that was over: %+v", name, f)
		}
		if f := s.Failures[1]; f.RecoverySeconds != 0.9 || f.LostSteps != 2 || f.RestoredStep != 28 || f.CaughtUpSeconds != 1.9 {
			t.Errorf("%s: the failure that the line answers: %+v", name, f)
		}
		if s.OutageSeconds != 1.7 || s.ReworkSteps != 2 {
			t.Errorf("%s: outage %v s, %d steps again; want 1.7 and 2", name, s.OutageSeconds, s.ReworkSteps)
		}
	}
}

// A run that is resumed begins a line at its newest checkpoint. Failures that were over before cost
// what they had cost by then.
func TestARunThatIsResumedCostsNoFailureThatWasOver(t *testing.T) {
	before := slices.Concat(steps(1, 1, 10, 1), fails("server/1", 10.2, 10.4, 10), steps(1, 11, 14, 12))
	resumed := slices.Concat([]Event{&Header{At: At{16}, Resumed: true}, &View{At: At{20}, Line: 2, RestoredStep: 12}}, steps(2, 13, 16, 21))
	same := func(a, b FailureCost) bool { return fmt.Sprint(a) == fmt.Sprint(b) } // unknown costs are NaN
	ended, s := tally(before).Summary(), tally(before, resumed).Summary()
	if !same(s.Failures[0], ended.Failures[0]) || s.OutageSeconds != ended.OutageSeconds || s.ReworkSteps != 2 {
		t.Errorf("got  %+v, outage %v s, rework %d steps\nwant %+v, %v s, 2", s.Failures[0], s.OutageSeconds, s.ReworkSteps, ended.Failures[0], ended.OutageSeconds)
	}
	dies := slices.Concat(fails("server/0", 25, 25.1, 16), []Event{&View{At: At{26}, Line: 3, RestoredStep: 12}}, steps(3, 13, 18, 27))
	if s := tally(before, resumed, dies).Summary(); !same(s.Failures[0], ended.Failures[0]) || s.Failures[1].LostSteps != 4 {
		t.Errorf("after another death: %+v", s.Failures)
	}
}

func TestARestoreIsChargedToTheServerThatDied(t *testing.T) {
	s := tally(
		steps(1, 1, 10, 1),
		fails("worker/3", 10.2, 0, 10), fails("server/0", 10.5, 0, 10), fails("server/1", 10.6, 0, 10),
		steps(2, 7, 12, 15),
	).Summary()
	for i, want := range []uint64{0, 4, 0} {
		if s.Failures[i].LostSteps != want {
			t.Errorf("%s lost %d steps, want %d", s.Failures[i].Part, s.Failures[i].LostSteps, want)
		}
	}
	if s.ReworkSteps != 4 || s.OutageSeconds != 4.8 {
		t.Errorf("rework %d steps, outage %v s; want 4 and 4.8: failures at one time share their outage", s.ReworkSteps, s.OutageSeconds)
	}
}

func TestRecoveriesAreToldWhenStepsGoOnAndWhenTheyHaveCaughtUp(t *testing.T) {
	a := tally(steps(1, 1, 10, 1), fails("server/0", 10.5, 0, 10))
	var told []*Recovery
	var at []float64
	for _, e := range steps(2, 7, 12, 15) {
		for _, r := range a.Add(e) {
			told, at = append(told, r), append(at, r.Seconds)
		}
	}
	if !slices.Equal(at, []float64{15, 18}) {
		t.Fatalf("told at %v, want at 15 s and 18 s", at)
	}
	if told[0].CaughtUpSeconds.Known() || told[1].CaughtUpSeconds != 7.5 || told[1].LostSteps != 4 {
		t.Errorf("told %+v and %+v", told[0], told[1])
	}
}

func TestAFailureThatNothingFollowedHasNoRecovery(t *testing.T) {
	s := tally(steps(1, 1, 3, 1), fails("server/0", 4, 0, 3), []Event{&Note{At: At{9}}}).Summary()
	if s.Failures[0].RecoverySeconds.Known() || s.OutageSeconds != 5 {
		t.Errorf("recovery %v, outage %v s; want none and 5", s.Failures[0].RecoverySeconds, s.OutageSeconds)
	}
}

func TestSumsCountEveryReleasedStep(t *testing.T) {
	s := tally(steps(1, 1, 40, 1), []Event{
		&Checkpoint{Bytes: 7}, &Checkpoint{Bytes: 5}, &Checkpoint{Bytes: 99, Error: "disk full"},
		&Evaluation{Loss: 2, Accuracy: 0.5}, &Evaluation{Loss: 1.5, Accuracy: 0.75},
	}).Summary()
	if s.BytesPushed != 120 || s.BytesPulled != 80 || s.LateGradients != 40 || s.UsefulGradients == 0 || s.KeptGradients != 0 || s.CheckpointBytes != 12 || s.Checkpoints != 2 || s.FailedSaves != 1 {
		t.Errorf("sums: %+v", s)
	}
	if s.FinalLoss != 30.5 || s.FinalTestLoss != 1.5 || s.FinalAccuracy != 0.75 || s.SamplesPerSecond != 10 || s.WallSeconds != 40 {
		t.Errorf("final loss %v (mean of 21…40), on the test half %v, accuracy %v, %v samples/s, %v s; want 30.5, 1.5, 0.75, 10, 40",
			s.FinalLoss, s.FinalTestLoss, s.FinalAccuracy, s.SamplesPerSecond, s.WallSeconds)
	}
}

// What a codec has left out is lost with its worker, and with its line.
func TestResidualsAreLostWithTheirWorkerAndTheirLine(t *testing.T) {
	for _, c := range []struct {
		feedback bool
		want     int
	}{{false, 0}, {true, 1 + 4}} {
		s := tally([]Event{&Header{Workers: 4, Feedback: c.feedback}}, steps(1, 1, 10, 1), fails("worker/2", 11, 0, 10), fails("server/0", 12, 0, 10),
			[]Event{&View{At: At{14}, Line: 2, RestoredStep: 6}}, steps(2, 7, 12, 15)).Summary()
		if s.ResidualsLost != c.want {
			t.Errorf("feedback %v: %d residuals lost, want %d", c.feedback, s.ResidualsLost, c.want)
		}
	}
}

// The slow, obvious version keeps the history of the current line as a list, and cuts it at a
// restore.
func TestReworkIsWhatRestoresCutOffTheHistory(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		a := &Account{}
		var history []uint64
		line, now := uint64(1), 0.0
		cut, failures := uint64(0), 0
		for range 200 {
			now += rng.Float64()
			switch {
			case len(history) > 3 && rng.IntN(20) == 0:
				back := rng.IntN(min(len(history), 12))
				cut += uint64(back)
				history = history[:len(history)-back]
				line++
				failures++
				a.Add(&Failure{At: At{now}, Part: "server/0", Step: a.Newest()})
				now += rng.Float64()
				a.Add(&View{At: At{now}, Line: line, RestoredStep: uint64(len(history))})
			default:
				history = append(history, uint64(len(history)+1))
				a.Add(&Step{At: At{now}, Line: line, Step: history[len(history)-1]})
			}
		}
		s := a.Summary()
		charged := uint64(0)
		for _, c := range s.Failures {
			charged += c.LostSteps
			if c.RecoverySeconds.Known() && c.CaughtUpSeconds.Known() && c.CaughtUpSeconds < c.RecoverySeconds {
				t.Fatalf("seed %d: %+v caught up before it recovered", seed, c)
			}
		}
		if s.ReworkSteps != cut || charged != cut || s.Steps != uint64(len(history)) || len(s.Failures) != failures {
			t.Fatalf("seed %d: rework %d, charged %d, step %d, %d failures; want %d, %d, %d, %d",
				seed, s.ReworkSteps, charged, s.Steps, len(s.Failures), cut, cut, len(history), failures)
		}
	}
}

// The event of a step lists the staleness of each gradient that it counts, but only if one is not
// fresh.
func TestTheSummaryTellsHowOldTheCountedGradientsWere(t *testing.T) {
	if s := tally().Summary(); s.StalenessP50 != 0 || s.StalenessP99 != 0 {
		t.Errorf("without a step: %d and %d", s.StalenessP50, s.StalenessP99)
	}
	if s := tally(steps(1, 1, 10, 1)).Summary(); s.StalenessP50 != 0 || s.StalenessP99 != 0 {
		t.Errorf("of fresh gradients: %d and %d", s.StalenessP50, s.StalenessP99)
	}
	a := &Account{}
	for i := range uint64(100) { // stalenesses 0 to 99, two gradients in each step
		e := kintsugi.StepEvent{Line: 1, Step: kintsugi.Step(i + 200), Staleness: uint32(i)}
		for slot, tau := range []uint64{i, 99 - i} {
			e.Counted = append(e.Counted, kintsugi.PushID{Slot: kintsugi.Slot(slot), Version: kintsugi.Step(i + 199 - tau)})
		}
		a.Add(StepOf(e))
	}
	if s := a.Summary(); s.StalenessP50 != 49 || s.StalenessP99 != 98 {
		t.Errorf("half of the gradients were at most %d steps old, 99%% at most %d; want 49 and 98", s.StalenessP50, s.StalenessP99)
	}
}
