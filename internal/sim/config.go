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
	Replicas                 int // of each shard; 0: 1
	Servers, Workers, Chunks int
	Steps, SaveEvery         kintsugi.Step
	SaveAfter                time.Duration // as conductor.Config.SaveAfter
	Learns                   bool          // how long that is, by what saves take and how often it would help
	RunEvery                 kintsugi.Step // steps between two saves for the running checkpoint; 0: none
	Partial                  bool          // as roster.Config.Partial
	Copies                   kintsugi.Step // steps between two copies that replicas get in place of updates; 0: they get updates
	NextAnswers              bool          // as roster.Config.NextAnswers
	Outside                  bool          // servers keep their shards outside of themselves
	MoveAfter                time.Duration // as roster.Config.MoveAfter
	Absence                  time.Duration // that every other server that dies is away for, as long as others are not; 0: as long as everybody else
	Choose                   time.Duration // mean time between two wishes for another number of replicas; 0: there are none
	Strange                  time.Duration // mean time between two times that servers do not reach each other, or say so; 0: they always do
	Consistency              agg.Config
	Codec                    string // of gradients, as compress.Parse reads it: one that sends float32, so that sums stay exact; "": none. Not with Consistency.Continue

	Faults     FaultSet
	FaultEvery time.Duration // mean time between two of them
	Storm      time.Duration // faults happen until then

	// Outage is how long all servers are away together, from the middle of the run on; 0: there is no such outage.
	Outage time.Duration

	StopAfter time.Duration // the run is asked to stop then, with a last checkpoint; 0: never

	Jitter     time.Duration // mean time on the way of a message, beside 50 µs
	Compute    time.Duration // mean time of a gradient
	Straggler  int           // worker 0 takes this many times as long; 0 and 1: as the others
	Kernel     time.Duration // mean time of a step on a shard
	StartGrace time.Duration
	// RejoinGrace is StartGrace for every line but the first.
	RejoinGrace    time.Duration
	LeaveGrace     time.Duration
	Hold           time.Duration // as roster.Config.Hold
	LapsesForgiven bool

	Trace io.Writer // nil: none

	watch     *watched // what workers see is noted there; nil: nowhere
	plant     bug
	killEvery time.Duration // a server dies each so often, three in all or as many as kills says, from the first around the ring; 0: none
	kills     int
	forgets   float64 // how likely a worker forgets to push to one head, and says all the same that every head has its gradient
	first     int
	stay      bool // Absence is for every server that dies

	estrangeAt time.Duration // from then on the first server and the one after it never reach each other again; 0: they do

	rivals bool // a coordinator may stand still while another one comes, in place of its death

	meet      meeting       // deaths that meet, three times
	meetEvery time.Duration // time from one meeting to the next, about
	drawn     kintsugi.Step // what Draw was given
}

// bug is one that a test plants into the simulated shells, to see that a checker finds it.
type bug uint8

const (
	noBug            bug = iota
	forgottenFence       // a shard obeys whoever speaks
	unrepeatedTicket     // a worker that connects again does not repeat its ticket
	earlyFree            // a push's buffer is used again while the kernel reads it
	appliedTwice         // a repeated commit is applied again
	overwritePinned      // a version's buffer is used again while it is read
	mixedVersions        // a worker takes what it gets from each shard
	earlyRelease         // the first shard's answer counts for all
	touchedSurvivor      // a shard that is kept restores its chunks as well
	forgottenChain       // a replica obeys whoever was before it in an earlier view
	answersAlone         // a head answers for its shard without those behind it
	updatedTwice         // a repeated update is applied again
	halfWhole            // a replica that is catching up takes itself for whole
	keptAgain            // what an outage has merged into a push is computed again in the next one
	mergedIntoSent       // gradients are merged into a kept one of which some heads have the bytes
	otherLine            // a kept gradient is offered on the line that follows its own
	forgottenPush        // a session that begins forgets what has gone out in those before
	nextWhole            // whoever is behind the next is taken for whole
	movedWhole           // a path is taken onto a line as if nothing had come back older
	earlyFlip            // a shard gives up the version before outside of itself before every shard is stable
	ticketAlone          // of an encoded push only the ticket goes out again
	takenBack            // an encoded push that a conductor was told of is taken for dropped when its version is passed
)

// schedule is one of which every step has scalars of its own.
func (c Config) schedule() conductor.Schedule {
	return conductor.Schedule{Rule: kintsugi.RuleAdam, LearningRate: 0.1, Decay: conductor.Linear, Steps: c.Steps}
}

// pulses reports whether the coordinator feels the pulses of servers: where shards may have several replicas.
func (c Config) pulses() bool { return c.Replicas > 1 || c.Choose > 0 }

// chains reports whether somebody may follow the head of a shard.
func (c Config) chains() bool { return c.pulses() || c.MoveAfter > 0 }

// bare returns c without what watches it.
func (c Config) bare() Config {
	c.Trace, c.watch = nil, nil
	return c
}

// prefetches says whether workers ask for the next version before they know what became of their push.
func (c Config) prefetches() bool { return c.Consistency.Late == agg.Drop }

// patience is how long after the last fault a run may take to end.
func (c Config) patience() time.Duration {
	turn := (c.Compute*time.Duration(max(1, c.Straggler)) + 20*c.Jitter + 4*c.Kernel) * 4
	return time.Minute + c.Outage + c.Hold + c.StartGrace + c.RejoinGrace + time.Duration(c.Steps)*turn
}

// String says in a line what kind of run it is.
func (c Config) String() string {
	return fmt.Sprintf("%d servers, %d replicas, %d workers, %d chunks, %d steps, a checkpoint each %d or after %v (learnt: %v), %+v, partial restores %v, some chunks saved each %d, state outside servers %v, faults %v",
		c.Servers, max(1, c.Replicas), c.Workers, c.Chunks, c.Steps, c.SaveEvery, c.SaveAfter, c.Learns, c.Consistency, c.Partial, c.RunEvery, c.Outside, c.Faults)
}

// EveryFault is the first of the seeds whose runs meet every fault; the runs before meet some.
const EveryFault = 1 << 32

// Draw returns the run of a seed: its shape, its knobs and which faults it meets. steps 0 draws their number.
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
	if choose := rand.New(rand.NewPCG(seed, 0x646277)); c.Consistency.Late == agg.Drop && choose.IntN(2) == 0 { // a source of its own: the other draws stay what they were
		c.Consistency = agg.Config{Lead: kintsugi.Infinite, Controller: []string{"dbw", "dbw:joint", "dbw:paper", "bdbw", "adasync:1"}[choose.IntN(5)]}
	}
	if choose := rand.New(rand.NewPCG(seed, 0x73636172)); choose.IntN(3) == 0 { // a source of its own, again
		c.Partial, c.RunEvery = true, kintsugi.Step(choose.IntN(8))
	}
	if choose := rand.New(rand.NewPCG(seed, 0x636861696e)); choose.IntN(3) == 0 && c.Servers > 1 { // and again
		c.Replicas, c.Partial = 2+choose.IntN(c.Servers-1), false
	}
	if choose := rand.New(rand.NewPCG(seed, 0x6b657074)); c.Consistency.Pace().Staleness > 0 && choose.IntN(2) == 0 { // and again
		c.Consistency.Continue, c.Consistency.Keep = true, kintsugi.KeepRule(choose.IntN(4))
	}
	turn := c.Compute + 5*c.Jitter + 2*c.Kernel                                                               // of a step, about
	if choose := rand.New(rand.NewPCG(seed, 0x73686d)); !c.Partial && c.Replicas < 2 && choose.IntN(2) == 0 { // a source of its own, again
		c.Outside = true
	}
	c.Storm = time.Duration(c.Steps)*turn*time.Duration(pick(1, 4)) + time.Duration(pick(0, 10))*time.Second
	c.FaultEvery = time.Duration(float64(turn) * math.Exp(rng.Float64()*4) / 3) // about 0.05 to 3 in a step
	for f := range unannounced {
		if rng.IntN(3) > 0 { // a run that meets every fault never gets to the rare orders of a few
			c.Faults |= 1 << f
		}
	}
	if choose := rand.New(rand.NewPCG(seed, 0x6e6f74696365)); choose.IntN(2) == 0 { // a source of its own, again
		c.Faults |= FaultSet(choose.IntN(4)) << unannounced
	}
	if rng.IntN(6) == 0 {
		c.StopAfter = time.Duration(rng.Int64N(int64(c.Storm)))
	}
	if seed >= EveryFault {
		c.Faults = AllFaults
	}
	if c.Faults.Has(Twin) || rng.IntN(4) == 0 {
		c.Hold = leaseTime + time.Second // two lives of one place can run at once only where the next view waits
	}
	return c
}

// drawConsistency draws the knobs of counting.
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
