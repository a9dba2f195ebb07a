package launch

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// costsAfter returns the ledger of a run whose loss falls by a hundredth in each step, and what it
// has reported.
func costsAfter(t *testing.T, way Way, steps int, loss func(step int) float64) (*Costs, []record.Event) {
	t.Helper()
	c := NewCosts(2, way, 10)
	var told []record.Event
	for i := 1; i <= steps; i++ {
		told = append(told, c.Step(kintsugi.StepEvent{Line: 1, Step: kintsugi.Step(i), Loss: loss(i), Norm: 1, Wait: 100 * time.Millisecond, Time: time.Unix(0, 0).Add(time.Duration(i) * 100 * time.Millisecond)})...)
	}
	return c, told
}

func falling(step int) float64 { return 3 * math.Exp(-float64(step)/100) }

func TestGoingBackToACheckpointCostsItsAge(t *testing.T) {
	c, told := costsAfter(t, BackToCheckpoint, 200, falling)
	c.Checkpoint(kintsugi.CheckpointEvent{Step: 150}, time.Time{})
	c.Checkpoint(kintsugi.CheckpointEvent{Step: 180, Err: "no space left"}, time.Time{})
	c.Checkpoint(kintsugi.CheckpointEvent{Step: 190, Running: true}, time.Time{})
	c.Recovered(2)
	c.Recovered(4)
	worst, ok := c.Worst()
	if !ok || worst.Steps != 50 || math.Abs(float64(worst.Seconds)-8) > 1e-6 {
		t.Errorf("%+v, %v; want 50 steps of 0.1 s and an outage of 3 s", worst, ok)
	}
	if n := len(told); n < 8 || n > 11 {
		t.Errorf("%d events in 20 s, want one each 2 s", n)
	}
	if c.View(kintsugi.View{Line: 2, RestoreStep: 150}); c.cost(1).Steps != 0 {
		t.Errorf("everybody is back at the checkpoint: %+v", c.cost(1))
	}
	c.Step(kintsugi.StepEvent{Line: 2, Step: 151, Loss: 1, Norm: 1, Time: time.Unix(30, 0)})
	if c.View(kintsugi.View{Number: 9, Line: 2, RestoreStep: 150}); c.cost(1).Steps != 1 {
		t.Errorf("another view of that line takes nothing back: %+v", c.cost(1))
	}
	later := NewCosts(2, BackToCheckpoint, 10)
	later.GoOn(2, 170, 150, time.Unix(100, 0))
	later.View(kintsugi.View{Number: 9, Line: 2, RestoreStep: 50})
	if age, ok := later.Age(time.Unix(130, 0)); !ok || age != 30*time.Second || later.newest-later.full != 20 {
		t.Errorf("a ledger that goes on has a checkpoint that is %v old (%v), %d steps; want 30 s and 20 steps", age, ok, later.newest-later.full)
	}
	if c, _ := costsAfter(t, BackNowhere, 100, falling); c.cost(0).Steps != 0 {
		t.Errorf("with a replica nothing is lost: %+v", c.cost(0))
	}
	if c, _ := costsAfter(t, BackToCopy, 107, falling); c.cost(0).Steps != 7 {
		t.Errorf("the copy is of step 100: %+v", c.cost(0))
	}
	if c, _ := costsAfter(t, BackToStart, 100, falling); c.cost(0).Steps != 100 {
		t.Errorf("everything is lost: %+v", c.cost(0))
	}
}

// The cost of restoring a single shard is predicted and then measured, and the next prediction has
// learnt from that.
func TestAPartialRecoveryIsPredictedAndMeasured(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const failed, back = 200, 9
	c, _ := costsAfter(t, BackAlone, failed, falling)
	if _, ok := c.Worst(); ok {
		t.Error("nobody has measured anything, and a cost is known")
	}
	slope := falling(failed) / 100 // ⟨ḡ, x − saved⟩ of a shard that would cost 5 steps, and of one that costs none
	for range 20 {
		c.Exposed(kintsugi.ExposureEvent{Step: failed, Shards: []kintsugi.Exposure{{Squared: 1, Dot: -5 * slope, Chunks: 2, Age: 10}, {Squared: 1e-9, Chunks: 2, Age: 10}}})
	}
	worst, ok := c.Worst()
	if !ok || worst.Part != "server/0" || !(worst.Steps > 4 && worst.Steps < 6) || worst.MeanAge != 5 {
		t.Fatalf("%+v, %v; want about 5 steps for server/0", worst, ok)
	}
	p := &record.Partial{Part: "server/0", ReworkSteps: record.Unknown()}
	c.Partial(kintsugi.PartialEvent{Line: 2, Step: failed, Shard: 0}, p)
	if p.ReworkSteps != worst.Steps || p.Distance != 1 || c.cost(0).Steps != 0 {
		t.Errorf("%+v; want %v steps, and nothing more to lose", p, worst.Steps)
	}
	var measured *record.Rework
	for i := failed + 1; i <= failed+lossesAfter; i++ {
		loss := falling(i-back) * (1 + 1e-4*rng.NormFloat64())
		for _, e := range c.Step(kintsugi.StepEvent{Line: 2, Step: kintsugi.Step(i), Loss: loss, Norm: 1, Time: time.Unix(0, 0)}) {
			if r, ok := e.(*record.Rework); ok && i == failed+lossesAfter {
				measured = r
			} else if ok {
				t.Errorf("measured after %d steps", i-failed)
			}
		}
	}
	if measured == nil || math.Abs(float64(measured.Measured)-back) > 0.5 || measured.Predicted != worst.Steps || measured.Step != failed {
		t.Fatalf("%+v; the losses are %d steps behind", measured, back)
	}
	if want := (float64(measured.Measured) + float64(worst.Steps)) / (2 * float64(worst.Steps)); measured.Failures != 1 || math.Abs(measured.Calibration/want-1) > 0.05 {
		t.Errorf("calibrated by %v after %d failures, want %v after one", measured.Calibration, measured.Failures, want)
	}
}

// What was restored may be newer than what is saved. A prediction is never more than the age of
// what was restored.
func TestAPartialRecoveryCostsNoMoreThanWhatCameBackIsOld(t *testing.T) {
	for age, want := range map[uint64]float64{4: 2, 400: 5} { // steps of two chunks; the distances say 5
		c, _ := costsAfter(t, BackAlone, 200, falling)
		for range 20 {
			c.Exposed(kintsugi.ExposureEvent{Step: 200, Shards: []kintsugi.Exposure{{Squared: 1, Dot: -falling(200) / 20, Chunks: 2, Age: 10}}})
		}
		p := &record.Partial{Part: "server/0", ReworkSteps: record.Unknown()}
		c.Partial(kintsugi.PartialEvent{Line: 2, Step: 200, Chunks: 2, Age: age}, p)
		if math.Abs(float64(p.ReworkSteps)-want) > 0.2 {
			t.Errorf("chunks that are %d steps old are predicted to cost %v; want %v", age/2, p.ReworkSteps, want)
		}
	}
}

// Two failures in quick succession cannot be told apart.
func TestFailuresThatMeetAreNotMeasured(t *testing.T) {
	c, _ := costsAfter(t, BackAlone, 100, falling)
	c.Exposed(kintsugi.ExposureEvent{Shards: []kintsugi.Exposure{{Squared: 1, Dot: -1, Chunks: 1}, {Squared: 1, Dot: -1, Chunks: 1}}})
	for s := range kintsugi.ShardID(2) {
		c.Partial(kintsugi.PartialEvent{Step: 100, Shard: s}, &record.Partial{Part: "server"})
	}
	measured := 0
	for i := 101; i <= 140; i++ {
		for _, e := range c.Step(kintsugi.StepEvent{Step: kintsugi.Step(i), Loss: falling(i), Time: time.Unix(0, 0)}) {
			if _, ok := e.(*record.Rework); ok {
				measured++
			}
		}
	}
	if measured != 1 {
		t.Errorf("%d failures are measured; the second one has all steps behind it, the first none", measured)
	}
}

// On a plateau it is not known what a loss would cost, and no server is the worst.
func TestOnAPlateauNoServerIsTheWorst(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	c, _ := costsAfter(t, BackAlone, 300, func(int) float64 { return 1 + 0.1*rng.NormFloat64() })
	for range 20 {
		c.Exposed(kintsugi.ExposureEvent{Step: 300, Shards: []kintsugi.Exposure{{Squared: 1, Dot: -1, Chunks: 2, Age: 10}, {Squared: 1, Dot: 1, Chunks: 2, Age: 10}}})
	}
	if worst, ok := c.Worst(); ok || worst.Steps.Known() || worst.Why == "" {
		t.Errorf("%+v, %v", worst, ok)
	}
}

// A server that has taken over a shard would lose it with its process, unless the shard is also
// outside the process or on another server. A server that has handed its shard over has nothing to
// lose.
func TestWhoHasTakenOverAShardHasMoreToLose(t *testing.T) {
	for _, way := range []Way{BackNowhere, BackAlone} {
		c := NewCosts(3, way, 0)
		c.View(kintsugi.View{Line: 1, Replicas: 1, Chains: [][]kintsugi.ServerID{{0}, {2}, {2}}})
		if got := c.cost(1); got.Steps != 0 {
			t.Errorf("way %d: who holds nothing would lose %+v", way, got)
		}
		if got := c.cost(2); got.Steps.Known() {
			t.Errorf("way %d: nobody has measured what server 2 would lose: %+v", way, got)
		}
		c.Exposed(kintsugi.ExposureEvent{Shards: []kintsugi.Exposure{{Squared: 1, Chunks: 2, Age: 2}, {Squared: 4, Chunks: 2, Age: 8}, {Squared: 16, Chunks: 2, Age: 32}}})
		want := map[Way]record.Number{BackNowhere: 4, BackAlone: 20}[way]
		if got := c.cost(2); got.Distance != want {
			t.Errorf("way %d: server 2 would lose %+v, want a distance of %v", way, got, want)
		}
		c.View(kintsugi.View{Line: 1, Replicas: 1, Chains: [][]kintsugi.ServerID{{0}, {1}, {2}}})
		want = map[Way]record.Number{BackNowhere: record.Unknown(), BackAlone: 16}[way]
		if got := c.cost(2).Distance; got != want && (got.Known() || want.Known()) {
			t.Errorf("way %d: at home server 2 would lose a distance of %v, want %v", way, got, want)
		}
	}
}
