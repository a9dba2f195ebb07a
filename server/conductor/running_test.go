package conductor_test

import (
	"cmp"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// farthest plans, after every second step, the two chunks that are furthest from their saved
// values.
type farthest struct {
	saved    []kintsugi.Step
	failed   []kintsugi.ChunkID
	last     kintsugi.Step
	observed []kintsugi.RunEvent
	touched  [5]uint64
	measured []float64 // the distances of the newest plan
}

func (f *farthest) Begin(step kintsugi.Step, saved []kintsugi.Step) { f.last, f.saved = step, saved }
func (f *farthest) Due(step kintsugi.Step) bool                     { return step >= f.last+2 }
func (f *farthest) Observe(e kintsugi.RunEvent)                     { f.observed = append(f.observed, e) }

func (f *farthest) Plan(step kintsugi.Step, distances []float64) []kintsugi.ChunkID {
	f.last, f.measured = step, distances
	order := []kintsugi.ChunkID{0, 1, 2, 3, 4}
	slices.SortStableFunc(order, func(a, b kintsugi.ChunkID) int { return cmp.Compare(distances[b], distances[a]) })
	return order[:2]
}

func (f *farthest) Done(step kintsugi.Step, chunks []kintsugi.ChunkID, durable bool) {
	for _, c := range chunks {
		if durable {
			f.saved[c] = step
		} else {
			f.failed = append(f.failed, c)
		}
	}
}

func (f *farthest) Accessed(c kintsugi.ChunkID, times uint64) { f.touched[c] += times }

func (f *farthest) Age(step kintsugi.Step, c kintsugi.ChunkID) kintsugi.Step {
	return step - f.saved[c]
}

// bare is a conductor of two shards, of 2 and 3 chunks, and of one worker. The test plays their
// shells.
type bare struct {
	t    *testing.T
	x    *conductor.Conductor
	f    *farthest
	now  time.Time
	step kintsugi.Step
	want kintsugi.Want            // of the newest commit
	next kintsugi.Want            // what the newest release says of the next commit
	asks []kintsugi.Step          // whose commits have asked for distances
	runs map[kintsugi.Step]string // what shards were told to save, as "shard:chunk shard:chunk"
	told []kintsugi.RunEvent
}

func newBare(t *testing.T, saveEvery kintsugi.Step) *bare {
	t.Helper()
	b := &bare{t: t, f: &farthest{}, now: time.Unix(0, 0), runs: make(map[kintsugi.Step]string)}
	var err error
	b.x, err = conductor.New(conductor.Config{Line: 1, View: 1, Fence: 5, Shards: 2, Slots: 1, Steps: 4000, SaveEvery: saveEvery, Running: b.f}, b.now)
	if err != nil {
		t.Fatal(err)
	}
	for s, saved := range [][]kintsugi.Step{{0, 0}, {0, 0, 0}} {
		b.x.ShardConnected(kintsugi.ShardID(s))
		b.x.HandleReplica(b.now, kintsugi.Taken{Shard: kintsugi.ShardID(s), Fence: 5, Saved: saved})
	}
	if err := b.x.HandleHello(b.now, kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Line: 1, Incarnation: 1}); err != nil {
		t.Fatal(err)
	}
	for s := range kintsugi.ShardID(2) {
		b.x.HandleReplica(b.now, kintsugi.MembersKnown{Shard: s, Fence: 5, Change: 1})
	}
	b.x.Ready()
	return b
}

// make makes a step after which chunk c is distances[c] from its saved value.
func (b *bare) make(distances ...float64) {
	b.t.Helper()
	b.x.HandleTicket(b.now, kintsugi.Ticket{Push: kintsugi.PushID{Line: 1, Incarnation: 1, Version: b.step}, Views: []kintsugi.ViewNumber{1, 1}, Examples: 1})
	b.step++
	b.read()
	for s, part := range [][]float64{distances[:2], distances[2:]} {
		m := kintsugi.Stable{Shard: kintsugi.ShardID(s), Fence: 5, Step: b.step}
		for i, d := range part {
			p := kintsugi.Products{SquaredNorm: 1}
			if b.want&kintsugi.WantSaved != 0 {
				p.SquaredSaved, p.DotSaved, p.Touched = d, -d/2, uint32(10*s+i)
			}
			m.Products = append(m.Products, p)
		}
		b.x.HandleReplica(b.now, m)
	}
	b.read()
}

func (b *bare) read() {
	ready := b.x.Ready()
	for _, m := range ready.ToShards {
		switch c := m.Message.(type) {
		case kintsugi.Commit:
			if b.want = c.Want; m.Shard == 0 && c.Want != 0 {
				b.asks = append(b.asks, c.Step)
			}
		case kintsugi.Released:
			b.next = c.Want
			for _, id := range c.Run {
				b.runs[c.Step] += string(rune('0'+m.Shard)) + ":" + string(rune('0'+id)) + " "
			}
		}
	}
	b.told = append(b.told, ready.Events...)
}

func (b *bare) saved(s kintsugi.ShardID, step kintsugi.Step, failure string) {
	b.x.HandleReplica(b.now, kintsugi.Saved{Shard: s, Step: step, Running: true, Chunks: 1, Bytes: 4, Err: failure})
	b.read()
}

// How many values gradients have named in each chunk reaches the planner before the plan, by the
// chunk's number in the model.
func TestAccessesReachThePlanner(t *testing.T) {
	b := newBare(t, 0)
	for range 4 { // in two of them, shards are asked
		b.make(1, 5, 2, 0, 7)
		b.saved(0, b.step, "")
		b.saved(1, b.step, "")
	}
	if want := [5]uint64{0, 2, 20, 22, 24}; b.f.touched != want {
		t.Errorf("accesses %v, want %v", b.f.touched, want)
	}
}

func TestAPlanIsOneChoiceOverAllShards(t *testing.T) {
	b := newBare(t, 0)
	b.make(9, 9, 9, 9, 9)
	if b.want != 0 || len(b.runs) > 0 {
		t.Errorf("at step 1 nothing is due; asked for %b, saved %v", b.want, b.runs)
	}
	b.make(1, 5, 2, 0, 7)
	if b.want != kintsugi.WantSaved || b.runs[2] != "0:1 1:2 " {
		t.Errorf("asked for %b, and shards save %q; the second chunk of the first and the last of the other are furthest away", b.want, b.runs[2])
	}
	want := kintsugi.ExposureEvent{Line: 1, Step: 2, Shards: []kintsugi.Exposure{{Squared: 6, Dot: -3, Chunks: 2, Age: 4}, {Squared: 9, Dot: -4.5, Chunks: 3, Age: 6}}}
	if !slices.ContainsFunc(b.told, func(e kintsugi.RunEvent) bool { return reflect.DeepEqual(e, kintsugi.RunEvent(want)) }) {
		t.Errorf("told %+v, want %+v", b.told, want)
	}
	b.make(9, 0, 0, 9, 0)
	b.make(9, 0, 0, 9, 0)
	b.saved(0, 2, "")
	b.make(9, 0, 0, 9, 0)
	if len(b.runs) != 1 || b.want != 0 {
		t.Errorf("a plan before the saves of the last one have ended: %v", b.runs)
	}
	b.told = nil
	b.saved(1, 2, "")
	if e := b.told[0].(kintsugi.CheckpointEvent); e.Distance != 2 || e.Shard != 1 {
		t.Errorf("%+v; the chunks of the shard that were not saved are at a distance of 2", e)
	}
	b.make(9, 0, 0, 4, 0)
	if b.runs[6] != "0:0 1:1 " || !slices.Equal(b.f.saved, []kintsugi.Step{0, 2, 0, 0, 2}) || len(b.f.failed) > 0 {
		t.Errorf("shards save %v; saved are %v, and failed %v", b.runs, b.f.saved, b.f.failed)
	}
	kinds := make(map[string]int)
	for _, e := range b.f.observed {
		kinds[reflect.TypeOf(e).Name()]++
	}
	if want := map[string]int{"StepEvent": 6, "ExposureEvent": 2, "CheckpointEvent": 2}; !maps.Equal(kinds, want) {
		t.Errorf("the planner is told of %v, want %v", kinds, want)
	}
}

// A plan may choose several chunks of one shard, and none of another.
func TestAPlanMayBeOfOneShard(t *testing.T) {
	b := newBare(t, 0)
	b.make(0, 0, 0, 0, 0)
	b.make(1, 2, 5, 7, 3)
	if b.runs[2] != "1:0 1:1 " {
		t.Errorf("shards save %q", b.runs[2])
	}
	b.told = nil
	b.saved(1, 2, "")
	if e := b.told[0].(kintsugi.CheckpointEvent); e.Distance != 3 {
		t.Errorf("the chunk that was not saved is 3 away, and the event says %v", e.Distance)
	}
}

// Parameters that have overflowed are as far away as can be, and a planner needs no rule for them.
func TestWhatHasOverflowedIsInfinitelyFarAway(t *testing.T) {
	b := newBare(t, 0)
	b.make(0, 0, 0, 0, 0)
	b.make(1, math.Inf(1), math.MaxFloat64, math.NaN(), 2)
	if want := []float64{1, math.MaxFloat64, math.MaxFloat64, math.MaxFloat64, 2}; !slices.Equal(b.f.measured, want) {
		t.Errorf("the planner sees %v, want %v", b.f.measured, want)
	}
}

// A shard makes a step ahead of its commit. So each release says what the next commit will ask for,
// unless a save ends in between.
func TestAReleaseSaysWhatTheNextStepIsAskedFor(t *testing.T) {
	b := newBare(t, 0)
	plan := kintsugi.Step(2) // of the newest plan, which is of the second shard alone
	for range 40 {
		said := b.next
		b.make(0, 1, 2, 3, 4)
		if b.want != said && b.step != 11 && b.step != 32 {
			t.Errorf("step %d is asked for %b, and the release before said %b", b.step, b.want, said)
		}
		if b.runs[b.step] != "" {
			plan = b.step
		}
		if b.step == 10 || b.step > 30 {
			b.saved(1, plan, "")
		}
	}
	if want := []kintsugi.Step{2, 11, 27, 32, 34, 36, 38, 40}; !slices.Equal(b.asks, want) {
		t.Errorf("distances are asked for at %v, want %v", b.asks, want)
	}
}

// If the stream of a shard breaks before it hears of its part of a plan, that part is given up at
// once. Otherwise the next plan would wait for it for ever.
func TestAPartThatItsShardDoesNotHearOfIsGivenUp(t *testing.T) {
	b := newBare(t, 0)
	b.make(0, 0, 0, 0, 0)
	b.x.HandleTicket(b.now, kintsugi.Ticket{Push: kintsugi.PushID{Line: 1, Incarnation: 1, Version: 1}, Views: []kintsugi.ViewNumber{1, 1}, Examples: 1})
	distances := []kintsugi.Products{{SquaredSaved: 3}, {SquaredSaved: 1}, {SquaredSaved: 2}}
	b.x.HandleReplica(b.now, kintsugi.Stable{Shard: 0, Fence: 5, Step: 2, Products: distances[:2]})
	b.x.ShardConnected(0)
	b.x.HandleReplica(b.now, kintsugi.Stable{Shard: 1, Fence: 5, Step: 2, Products: slices.Concat(distances[2:], make([]kintsugi.Products, 2))})
	b.read()
	if b.runs[2] != "1:0 " || !slices.Equal(b.f.failed, []kintsugi.ChunkID{0}) {
		t.Errorf("shards are told to save %q, and given up are %v; want the first chunk of each, one of them given up", b.runs[2], b.f.failed)
	}
}

func TestAStoreThatFailsIsAskedMoreAndMoreRarely(t *testing.T) {
	b := newBare(t, 0)
	var asked []kintsugi.Step
	for range kintsugi.Step(300) {
		b.make(1, 1, 0, 0, 0)
		if b.runs[b.step] != "" {
			asked = append(asked, b.step)
			failure, distance := "no space left", math.NaN()
			if 200 < b.step && b.step < 262 {
				failure, distance = "", 0
			}
			b.told = nil
			b.saved(0, b.step, failure)
			if e := b.told[0].(kintsugi.CheckpointEvent); math.Float64bits(e.Distance) != math.Float64bits(distance) {
				t.Errorf("step %d, %q: the rest is %v away from what is saved, want %v", b.step, failure, e.Distance, distance)
			}
		}
	}
	want := []kintsugi.Step{2, 4, 8, 16, 32, 64, 128, 256, 258, 260, 262, 264, 268, 276, 292}
	if !slices.Equal(asked, want) {
		t.Errorf("saves are asked for at %v; want %v: every other step as long as they succeed", asked, want)
	}
}

// A save whose answer is lost with a stream is given up. A later answer is ignored.
func TestASaveWhoseAnswerIsLostIsGivenUp(t *testing.T) {
	b := newBare(t, 0)
	b.make(0, 0, 0, 0, 0)
	b.make(3, 0, 2, 0, 0)
	b.x.ShardConnected(0)
	if !slices.Equal(b.f.failed, []kintsugi.ChunkID{0}) {
		t.Fatalf("given up are %v", b.f.failed)
	}
	b.told = nil
	b.saved(0, 2, "")
	if e := b.told[0].(kintsugi.CheckpointEvent); !math.IsNaN(e.Distance) || b.f.saved[0] != 0 {
		t.Errorf("%+v counts", e)
	}
	b.saved(1, 2, "")
	if b.f.saved[2] != 2 {
		t.Error("the save of the other shard does not count")
	}
}

// A full checkpoint is the newest save of every chunk, and no chunks are saved beside it.
func TestAFullCheckpointIsPartOfTheRunningOne(t *testing.T) {
	b := newBare(t, 2)
	for range 5 + 16 { // enough steps for distances to be measured although nothing is planned
		b.make(1, 1, 1, 1, 1)
	}
	if len(b.runs) > 0 {
		t.Errorf("chunks are saved beside a full checkpoint: %v", b.runs)
	}
	if want := []kintsugi.Step{2, 18}; !slices.Equal(b.asks, want) {
		t.Errorf("distances are asked for at %v, want %v", b.asks, want)
	}
	for s := range kintsugi.ShardID(2) {
		b.x.HandleReplica(b.now, kintsugi.Saved{Shard: s, Step: 2})
	}
	b.x.Published(b.now, kintsugi.CheckpointEvent{Step: 2})
	if !slices.Equal(b.f.saved, []kintsugi.Step{2, 2, 2, 2, 2}) {
		t.Errorf("versions %v are saved", b.f.saved)
	}
	b.read()
	b.make(1, 1, 1, 1, 1) // full again: it was due meanwhile
	for s := range kintsugi.ShardID(2) {
		b.x.HandleReplica(b.now, kintsugi.Saved{Shard: s, Step: 22})
	}
	b.x.Published(b.now, kintsugi.CheckpointEvent{Step: 22})
	b.make(1, 1, 1, 1, 1)
	if b.runs[23] == "" {
		t.Error("after it no chunks are saved")
	}
}
