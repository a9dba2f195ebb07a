package sim

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// Config describes a run under virtual time. The same Config gives the same run, to the last event.
type Config struct {
	Seed                     uint64
	Replicas                 int // of each shard; 0 means 1
	Servers, Workers, Chunks int
	Steps, SaveEvery         kintsugi.Step
	SaveAfter                time.Duration // see conductor.Config.SaveAfter
	Learns                   bool          // SaveAfter is learnt from the times of saves and how often they would help
	RunEvery                 kintsugi.Step // steps between two saves in the running checkpoint; 0: none
	Partial                  bool          // see roster.Config.Partial
	Copies                   kintsugi.Step // steps between two copies that replicas get instead of updates; 0: they get updates
	NextAnswers              bool          // see roster.Config.NextAnswers
	Outside                  bool          // servers keep their shards outside their processes
	MoveAfter                time.Duration // see roster.Config.MoveAfter
	Absence                  time.Duration // how long every other server that dies stays away, unless another one is away; 0: as long as the others
	Choose                   time.Duration // mean time between two wishes for another number of replicas; 0: none
	Strange                  time.Duration // mean time between two periods in which servers do not reach each other, or say so; 0: none
	Consistency              agg.Config
	// Encoding of gradients, in the syntax of compress.Parse: one that sends float32, so that sums
	// stay exact; "": none. Not together with Consistency.Continue.
	Codec string
	Flows bool // gradients are pushed while they are computed, if the codec lets them

	Faults     FaultSet
	FaultEvery time.Duration // mean time between two faults
	Storm      time.Duration // faults happen until then

	// Outage is how long all servers are away together, beginning in the middle of the run; 0:
	// never.
	Outage time.Duration

	StopAfter time.Duration // when the run is asked to stop, with a last checkpoint; 0: never

	Jitter     time.Duration // mean transmission time of a message, in addition to 50 µs
	Compute    time.Duration // mean time of a gradient
	Straggler  int           // factor of the times of worker 0; 0 and 1: none
	Kernel     time.Duration // mean time of a step on a shard
	StartGrace time.Duration
	// RejoinGrace is StartGrace for all lines except the first.
	RejoinGrace    time.Duration
	LeaveGrace     time.Duration
	Hold           time.Duration // see roster.Config.Hold
	LapsesForgiven bool

	Trace io.Writer // nil: none

	watch     *watched // records what workers see; nil: not recorded
	plant     bug
	killEvery time.Duration // time between deaths of servers, in turn from the first, kills or three in all; 0: none
	kills     int
	forgets   float64 // probability that a worker does not push to one head but says that every head has its gradient
	first     int
	stay      bool // Absence applies to every server that dies

	estrangeAt time.Duration // from then on, the first two servers never reach each other again; 0: no such time

	rivals bool // instead of dying, a coordinator may stop for a while, and another one takes over

	meet      meeting       // kind of simultaneous deaths, three times
	meetEvery time.Duration // approximate time between two of them
	drawn     kintsugi.Step // argument of Draw
}

// bug is a bug that a test plants into the simulated shells, to see that a checker finds it.
type bug uint8

const (
	noBug            bug = iota
	forgottenFence       // a shard obeys whoever sends
	unrepeatedTicket     // a worker that connects again does not repeat its ticket
	earlyFree            // the buffer of a push is reused while the kernel reads it
	appliedTwice         // a repeated commit is applied again
	overwritePinned      // the buffer of a version is reused while it is read
	mixedVersions        // a worker combines different versions of shards
	earlyRelease         // the answer of the first shard counts for all
	touchedSurvivor      // a kept shard restores its chunks too
	forgottenChain       // a replica obeys the replica before it in an earlier view
	answersAlone         // a head answers for its shard without the replicas after it
	updatedTwice         // a repeated update is applied again
	halfWhole            // a replica that is catching up takes itself for whole
	keptAgain            // a gradient that was merged into a push in one outage is computed again in the next
	mergedIntoSent       // gradients are merged into a kept gradient although some heads have its bytes
	otherLine            // a kept gradient is offered on the line after its own
	forgottenPush        // a new session forgets what earlier ones have sent
	nextWhole            // replicas after the next one are taken for whole
	movedWhole           // a path is carried over to a line as if nothing had been restored
	earlyFlip            // a shard gives up the previous version outside its process before every shard is stable
	ticketAlone          // only the ticket of an encoded push is sent again
	takenBack            // an encoded push that a conductor was told of is taken for dropped when its version is passed
	onlyNewest           // a commit names only the newest counted push of a worker
	quietFlow            // that a gradient goes out while it is computed is not noted
	noView               // a worker does not say which view it is in when it joins
	staleOffer           // a version is still offered when a new conductor may replace it
	headAlone            // a conductor takes the word of a head that waits for the replica after it
	nextAlone            // a conductor takes the word of the replica after a head for that of the head
	hastyReader          // a worker uses a version before it has heard that it is released
	keptHalf             // what a gradient that is given up half way has taken of the residual does not come back
)

// schedule returns a schedule with different scalars in every step.
func (c Config) schedule() conductor.Schedule {
	return conductor.Schedule{Rule: kintsugi.RuleAdam, LearningRate: 0.1, Decay: conductor.Decay{Form: conductor.Linear}, Steps: c.Steps}
}

// pulses reports whether the coordinator observes the pulses of servers: when shards may have
// several replicas.
func (c Config) pulses() bool { return c.Replicas > 1 || c.Choose > 0 }

// chains reports whether there may be replicas after the head of a shard.
func (c Config) chains() bool { return c.pulses() || c.MoveAfter > 0 }

// bare returns c without trace and watch.
func (c Config) bare() Config {
	c.Trace, c.watch = nil, nil
	return c
}

// prefetches reports whether workers ask for the next version before they know the fate of their
// push.
func (c Config) prefetches() bool { return c.Consistency.Late == agg.Drop }

// patience returns how long after the last fault a run may take to end.
func (c Config) patience() time.Duration {
	turn := (c.Compute*time.Duration(max(1, c.Straggler)) + 20*c.Jitter + 4*c.Kernel) * 4
	return time.Minute + c.Outage + c.Hold + c.StartGrace + c.RejoinGrace + time.Duration(c.Steps)*turn
}

// String describes the run in one line.
func (c Config) String() string {
	return fmt.Sprintf("%d servers, %d replicas, %d workers, %d chunks, %d steps, a checkpoint each %d or after %v (learnt: %v), %+v, partial restores %v, some chunks saved each %d, state outside servers %v, faults %v",
		c.Servers, max(1, c.Replicas), c.Workers, c.Chunks, c.Steps, c.SaveEvery, c.SaveAfter, c.Learns, c.Consistency, c.Partial, c.RunEvery, c.Outside, c.Faults)
}

// EveryFault is the first of the seeds whose runs have all faults; runs of smaller seeds have some.
const EveryFault = 1 << 32

// Draw returns the run of a seed: its size, its settings, and its faults. With steps 0 the number
// of steps is drawn too.
func Draw(seed uint64, steps kintsugi.Step) Config {
	rng := rand.New(rand.NewPCG(seed, 0x647261))
	pick := func(lo, hi int) int { return lo + rng.IntN(hi-lo+1) }
	c := Config{
		Seed: seed, drawn: steps, Steps: steps,
		Servers: pick(1, 4), Workers: pick(1, 5), Chunks: pick(1, 6),
		SaveEvery:  kintsugi.Step(pick(0, 12)),
		Jitter:     time.Duration(math.Exp(rng.Float64()*5)*50) * time.Microsecond, // 50 µs to 7 ms
		Compute:    time.Duration(pick(1, 40)) * time.Millisecond,
		Straggler:  max(1, pick(-3, 6)),
		Kernel:     time.Duration(pick(100, 4000)) * time.Microsecond,
		StartGrace: 3 * time.Second, RejoinGrace: time.Second, LeaveGrace: time.Duration(pick(50, 1000)) * time.Millisecond,
		LapsesForgiven: rng.IntN(2) == 0,
	}
	if steps == 0 {
		c.Steps = kintsugi.Step(pick(5, 60))
	}
	c.Consistency = drawConsistency(rng, c.Workers)
	if choose := rand.New(rand.NewPCG(seed, 0x646277)); c.Consistency.Late == agg.Drop && choose.IntN(2) == 0 { // a separate source, so that the other draws stay the same
		c.Consistency = agg.Config{Lead: kintsugi.Infinite, Controller: []string{"dbw", "dbw:joint", "dbw:paper", "bdbw", "adasync:1"}[choose.IntN(5)]}
	}
	if choose := rand.New(rand.NewPCG(seed, 0x73636172)); choose.IntN(3) == 0 { // a separate source too
		c.Partial, c.RunEvery = true, kintsugi.Step(choose.IntN(8))
	}
	if choose := rand.New(rand.NewPCG(seed, 0x636861696e)); choose.IntN(3) == 0 && c.Servers > 1 { // a separate source too
		c.Replicas, c.Partial = 2+choose.IntN(c.Servers-1), false
	}
	if choose := rand.New(rand.NewPCG(seed, 0x6b657074)); c.Consistency.Pace().Staleness > 0 && choose.IntN(2) == 0 { // a separate source too
		c.Consistency.Continue, c.Consistency.Keep = true, kintsugi.KeepRule(choose.IntN(4))
	}
	turn := c.Compute + 5*c.Jitter + 2*c.Kernel                                                               // approximate time of a step
	if choose := rand.New(rand.NewPCG(seed, 0x73686d)); !c.Partial && c.Replicas < 2 && choose.IntN(2) == 0 { // a separate source too
		c.Outside = true
	}
	c.Storm = time.Duration(c.Steps)*turn*time.Duration(pick(1, 4)) + time.Duration(pick(0, 10))*time.Second
	c.FaultEvery = time.Duration(float64(turn) * math.Exp(rng.Float64()*4) / 3) // about 0.05 to 3 faults per step
	for f := range unannounced {
		if rng.IntN(3) > 0 { // a run with all faults never gets to the rare orders of a few of them
			c.Faults |= 1 << f
		}
	}
	if choose := rand.New(rand.NewPCG(seed, 0x6e6f74696365)); choose.IntN(2) == 0 { // a separate source too
		c.Faults |= FaultSet(choose.IntN(4)) << unannounced
	}
	if rng.IntN(6) == 0 {
		c.StopAfter = time.Duration(rng.Int64N(int64(c.Storm)))
	}
	if seed >= EveryFault {
		c.Faults = AllFaults
	}
	if c.Faults.Has(Twin) || rng.IntN(4) == 0 {
		c.Hold = leaseTime + time.Second // two lives of one place can run at once only if the next view waits
	}
	return c
}

// drawConsistency draws the settings of counting.
func drawConsistency(rng *rand.Rand, workers int) agg.Config {
	switch rng.IntN(6) {
	case 0, 1:
		return agg.Config{Lead: kintsugi.Infinite}
	case 2:
		return agg.Config{Quota: max(1, workers-1), Lead: kintsugi.Infinite}
	case 3:
		return agg.Config{Quota: 1, Late: agg.Apply, Staleness: kintsugi.Infinite, PerWorker: math.MaxInt, Lead: kintsugi.Infinite}
	case 4:
		return agg.Config{Quota: 1 + rng.IntN(workers), Late: agg.Apply, Staleness: uint32(1 + rng.IntN(4)), Discount: true, Lead: kintsugi.Infinite}
	default:
		return agg.Config{Quota: workers, Late: agg.Apply, Staleness: 1, Scale: agg.Sum, Lead: kintsugi.Infinite}
	}
}
