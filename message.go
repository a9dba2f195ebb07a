package kintsugi

import (
	"math"
	"time"
)

// The message types by direction. The interfaces are sealed, so that a type switch over one of them
// is complete.
type (
	// WorkerMessage goes from a worker to the conductor: Hello, Ticket.
	WorkerMessage interface{ workerMessage() }

	// ConductorMessage goes from the conductor to a worker: Admitted, Released, Refused, Done.
	ConductorMessage interface{ conductorMessage() }

	// ControlMessage goes from the conductor to a replica of a shard: Take, Listen, Adopt, Members, Commit,
	// Released, Done.
	ControlMessage interface{ controlMessage() }

	// ReplicaMessage goes from a replica to the conductor: Taken, MembersKnown, Stable, Saved.
	ReplicaMessage interface{ replicaMessage() }

	// ChainMessage goes from a replica to the next one in its chain: Snapshot, Joined, Take,
	// Update, Commit, Released.
	ChainMessage interface{ chainMessage() }

	// FollowerMessage goes from a replica to the previous one in its chain: Follow, Taken, Stable.
	FollowerMessage interface{ followerMessage() }

	// RunEvent goes from the conductor to every watcher of the run: StepEvent, CheckpointEvent,
	// PartialEvent, ExposureEvent, StandEvent, Done.
	RunEvent interface{ runEvent() }

	// HeadMessage goes from the head of a shard to a worker that pushes: Received, Refused.
	HeadMessage interface{ headMessage() }
)

func (Hello) workerMessage()  {}
func (Ticket) workerMessage() {}

func (Admitted) conductorMessage() {}
func (Released) conductorMessage() {}
func (Refused) conductorMessage()  {}
func (Done) conductorMessage()     {}

func (Take) controlMessage()     {}
func (Listen) controlMessage()   {}
func (Adopt) controlMessage()    {}
func (Members) controlMessage()  {}
func (Commit) controlMessage()   {}
func (Released) controlMessage() {}
func (Done) controlMessage()     {}

func (Taken) replicaMessage()        {}
func (MembersKnown) replicaMessage() {}
func (Stable) replicaMessage()       {}
func (Saved) replicaMessage()        {}

func (Snapshot) chainMessage() {}
func (Joined) chainMessage()   {}
func (Take) chainMessage()     {}
func (Update) chainMessage()   {}
func (Commit) chainMessage()   {}
func (Released) chainMessage() {}

func (Follow) followerMessage() {}
func (Taken) followerMessage()  {}
func (Stable) followerMessage() {}

func (StepEvent) runEvent()       {}
func (CheckpointEvent) runEvent() {}
func (PartialEvent) runEvent()    {}
func (ExposureEvent) runEvent()   {}
func (StandEvent) runEvent()      {}
func (Done) runEvent()            {}

func (Received) headMessage() {}
func (Refused) headMessage()  {}

// The messages of the control plane. Tensors never travel in them. A message names a push by its
// id; the bytes of the push go from the worker to the shards as frames (internal/transport).

// Hello is a worker's first message to the conductor.
type Hello struct {
	Protocol    uint32 // ProtocolVersion
	Model       uint64 // Layout.Agreement
	Line        Line
	View        ViewNumber // that the worker is in; a conductor of an earlier one refuses it
	Slot        Slot
	Incarnation Incarnation

	// Kept is the number of pushes that the worker kept in an outage and will offer now. It has had
	// a ticket for none of them, and none is on a version older than Oldest. 0: the worker begins
	// with the newest version, and Oldest means nothing.
	Kept   uint32
	Oldest Step
}

// Admitted answers Hello: the worker is a member from the commit after Step on.
type Admitted struct {
	Line Line
	Step Step // newest released version
}

// Ticket tells the conductor that every head holds the bytes of a push. A worker repeats its open
// ticket to each new conductor until the push is released or refused.
type Ticket struct {
	Push        PushID
	Views       []ViewNumber // by shard: the view in which its head acknowledged the push; none: it was thrown away
	Loss        float64      // mean over the batch, before the step
	Examples    uint32       // in the batch
	SquaredNorm float64      // of the decoded gradient
	Compute     time.Duration
	Transfer    time.Duration // after Compute: encode, send, and wait for all heads
	Spans       Spans
	Along       Along

	// Kept is the number of gradients, computed while servers were away, whose mean the push is. If
	// Views is empty, those gradients were dropped. 0: the push is an ordinary gradient.
	Kept uint32
}

// Spans says how a worker spent its time from its previous ticket to this one, beside
// Ticket.Compute and Ticket.Transfer. Wait and Pull come before the computation. Encode and Send
// are the beginning of the transfer; the rest of the transfer is waiting for the heads' answers.
type Spans struct {
	Wait   time.Duration // until it heard what became of the previous gradient, and newer parameters came
	Pull   time.Duration // to land the newer parameters
	Encode time.Duration // to encode the gradient, or to copy it to shared memory, with checksums
	Send   time.Duration // to hand the encoded gradient over to the transport
	Hidden time.Duration // encoding and sending within Compute: parts of the gradient that were done before the rest
}

// Along tells of the gradients of a worker whose messages are not its gradients. It says how they
// lie along d, the displacement of the parameters from the version before Push.Version to
// Push.Version. A worker fills it in if Pace.Along asks for it.
type Along struct {
	Known bool    // the worker has had both versions
	Dot   float64 // ⟨g, d⟩ with g the gradient of this push

	Earlier bool    // it has also computed a gradient g₋₁ on the version before
	Before  float64 // ⟨g₋₁, d⟩
	Own     float64 // ⟨g₋₁, m₋₁⟩ with m₋₁ the decoded message that it sent for g₋₁; 0: it sent none
}

// Weighted is a counted push and its weight in the step.
type Weighted struct {
	Push   PushID
	Weight float32 // examples × staleness weight × clipping
}

// Countable says which pushes of a slot may still be counted: those of Incarnation, on version
// Oldest or newer. Shards free and refuse all others.
type Countable struct {
	Slot        Slot
	Incarnation Incarnation
	Oldest      Step // Never: the slot has no member

	// Version and Next describe the newest push that a released step has counted: it is on Version,
	// and its sequence is Next − 1. Next is 0 if there is no such push. From them a conductor that
	// takes over learns what became of tickets whose steps nobody has records of any more.
	Version Step
	Next    uint32

	// Earlier lists, ascending, the counted pushes of Incarnation before that one that their worker
	// may still ask about: at most one less than its credit, and at most seven.
	Earlier []Counted
}

// Counted names a counted push of a known incarnation.
type Counted struct {
	Version  Step
	Sequence uint32
}

// Never is the oldest countable version of a slot of which no push counts.
const Never Step = math.MaxUint64

// Commit is the decision which pushes make a step. Shards apply exactly that set, in the order of
// Counted, which is ascending by PushID.Compare.
type Commit struct {
	Line      Line
	Fence     Fence // under which this copy is sent
	Decided   Fence // under which the step was decided: a higher one replaces an unreleased step
	Step      Step
	Counted   []Weighted
	Scale     float32 // multiplies the weighted sum: 1/Σexamples for a mean
	Optimizer Optimizer
	Countable []Countable // by slot: the membership after this step
	Want      Want        // by-products that the kernel computes
}

// Want says which by-products a commit asks for beyond ‖ḡ‖², which is always computed: the others
// cost memory traffic.
type Want uint8

// By-products on demand.
const (
	WantDotDisplacement     Want = 1 << iota // ⟨ḡ, d₋₁⟩ with d₋₁ the displacement of the step before
	WantSquaredDisplacement                  // ‖d‖² of this step
	WantSaved                                // SquaredSaved and DotSaved: how far the chunk is from its saved values
)

// Products are the by-products of a step on one chunk.
type Products struct {
	SquaredNorm         float64 // ‖ḡ‖² of the scaled sum
	DotDisplacement     float64
	SquaredDisplacement float64
	SquaredSaved        float64 // ‖x − saved‖² after the step
	DotSaved            float64 // ⟨ḡ, x − saved⟩ before the step; 0 in a commit that also wants ⟨ḡ, d₋₁⟩
	Touched             uint32  // number of values that gradients have named since SquaredSaved was last asked for
}

// Members tells a shard which pushes are countable from here on. It comes after every commit that
// was decided before it, on the same ordered stream, so that a shard never voids a push that a
// commit names. A new incarnation is admitted once all shards have answered.
type Members struct {
	Line      Line
	Fence     Fence
	Change    uint64 // numbers the changes under one fence, from 1
	Countable []Countable
}

// MembersKnown answers Members.
type MembersKnown struct {
	Shard  ShardID
	Fence  Fence
	Change uint64
}

// Take asks a shard to promise Fence and to report its state. A shard that has promised a higher
// fence refuses.
type Take struct {
	Line  Line
	View  ViewNumber
	Fence Fence
}

// Listen asks the replica after the head to send its Stable to the conductor too, and not only to the
// replica before it. So the conductor need not wait until that one has passed it on.
type Listen struct{}

// Taken answers Take and Adopt. If Standing is Lost, and in the answer to the Adopt that follows,
// Saved lists the versions that came back.
type Taken struct {
	Shard    ShardID
	Fence    Fence
	Applied  Step
	Released Step
	Records  []Commit // of the newest steps that are applied or open, ascending, at most three
	Standing Standing
	Saved    []Step // by chunk: its saved version in the running checkpoint; nil: there is none

	// Lacks lists the pushes that the open commit counts and that this shard does not hold. It is
	// empty as long as every worker keeps its word: a worker sends its ticket after every head has
	// acknowledged the push, and the commit comes after the ticket.
	Lacks []PushID
}

// Standing says where the state of a shard comes from when a line begins.
type Standing uint8

// The standings. On a line that begins with a partial restore (View.Keeps), a shard keeps what it
// has and waits for Adopt.
const (
	Settled Standing = iota // it stands at a step of the line
	Kept                    // it has outlived the line before, and stands where that line ended
	Lost                    // its chunks came back from the running checkpoint, each of its own version, or from a copy
)

// Adopt tells the shards at which step a line that begins with a partial restore starts: the newest
// step that every Kept shard has applied. A shard makes its values the version of that step, and
// answers as it answers Take.
type Adopt struct {
	Line  Line
	Fence Fence
	Step  Step
}

// Stable says that a replica has applied a step, and so have all replicas behind it, unless Waits is
// set.
type Stable struct {
	Shard    ShardID
	Fence    Fence // under which the commit was last sent
	Step     Step
	Decided  Fence      // of the commit
	Products []Products // by chunk of the shard
	Apply    time.Duration
	Pushed   uint64 // bytes of gradients received in this view so far
	Pulled   uint64 // bytes of parameters sent in this view so far

	// Waits says that the replica after the head has not answered yet. The shard is stable as soon as
	// it has, whether the conductor hears that from it (see Listen) or from the head.
	Waits bool

	// Publish is how long the shard's head was busy handing versions to readers since its previous
	// Stable.
	Publish time.Duration

	// Saving is how long steps have waited for the checkpoint since the previous Stable: to begin a
	// save, and for values that a save was making durable.
	Saving time.Duration

	// Ahead is how long the shard's head had already been making the step, from the pushes that had
	// arrived, when its commit came. 0: it had not begun.
	Ahead time.Duration
}

// Follow is the first message of a replica to the previous one in its chain. It says where the
// replica stands.
type Follow struct {
	Line     Line
	View     ViewNumber
	Shard    ShardID
	Server   ServerID
	Whole    bool // it has everything that was released; otherwise it needs a snapshot
	Released Step
	Applied  Step
	Decided  Fence  // of the applied step
	Attempt  uint64 // grows with each connection in a life of the server, so that a late message is known
}

// Snapshot gives a replica that is not whole the released version of the previous replica. Where
// replicas get copies in place of updates, it gives a version that the previous replica has
// applied. The values follow the message.
type Snapshot struct {
	Step    Step
	Records []Commit // of the released step, if it was made on this line
	Taken   []uint64 // by chunk of the shard, the optimizer steps it has taken; nil: Step of them, for each chunk
}

// Joined tells a replica that it has caught up: it is whole, and no step is released without it any
// more. Where replicas get copies, each copy is followed by a Joined, which says that the version
// of the copy was released.
type Joined struct{}

// Update is a commit with its scaled sum, which follows the message. Replicas that are not heads
// apply it.
type Update struct{ Commit Commit }

// Released says that a step is stable on every shard. Its version may be read, published and saved,
// and its pushes may be freed.
type Released struct {
	Line    Line
	Fence   Fence
	Step    Step
	Counted []PushID
	Save    bool // shards save this version to the checkpoint

	// Run lists the chunks whose values of this version go into the running checkpoint, counted
	// from the first chunk of this shard.
	Run []ChunkID

	// Want is what the commit of the next step will ask for, as far as that is known. A shard that
	// makes the step ahead of its commit uses it.
	Want Want
}

// Refused says that a push will never be counted, and why.
type Refused struct {
	Push   PushID
	Step   Step // the worker goes on with this version or a newer one; it is released or will be
	Reason string
}

// Received says that a shard's head holds the verified bytes of a push.
type Received struct {
	Push  PushID
	Shard ShardID
	View  ViewNumber
}

// Saved says that a shard's part of the checkpoint of a step is durable, or why it is not.
type Saved struct {
	Shard    ShardID
	Step     Step
	Running  bool   // some chunks for the running checkpoint, not all chunks for a full one
	Chunks   uint32 // number of chunks, if Running
	Manifest string // name of the shard manifest
	Bytes    uint64
	Took     time.Duration
	Err      string // empty: saved
}

// Done is the conductor's last message: the run is over.
type Done struct {
	Step   Step
	Reason string // AllSteps, or why it ended early
	Saved  bool   // a checkpoint of Step is published
}

// AllSteps is the Reason of a run that has done all its steps.
const AllSteps = "all steps are done"

// Ends reports whether d ends a run of the given number of steps. A run that had done all of fewer
// steps does not end: it was started again with more.
func (d Done) Ends(steps Step) bool { return d.Reason != AllSteps || d.Step >= steps }

// StepEvent tells a watcher of the run about a released step.
type StepEvent struct {
	Line      Line
	Step      Step
	Time      time.Time
	Loss      float64 // mean of the counted workers' losses, weighted by examples
	Counted   []PushID
	Workers   uint32 // number of members
	Quota     uint32
	Reason    string // why the quota changed, in words; empty if it did not
	Staleness uint32 // greatest staleness among the counted gradients
	Late      uint32 // gradients refused since the previous step
	Examples  uint32
	Norm      float64       // ‖ḡ‖ of the mean gradient, as it was applied
	Clipped   uint32        // number of counted gradients that were longer than the clipping norm
	Wait      time.Duration // from the previous release to the commit
	Apply     time.Duration // from the commit to the release
	Pushed    uint64        // bytes of gradients that all shards have received since the previous step
	Pulled    uint64        // bytes of parameters that all shards have sent since the previous step
	Saving    time.Duration // how long the slowest shard has waited for the checkpoint

	// Times lists the gradients that ended since the previous step, in the order in which the
	// conductor heard of them. A conductor that hears of very many at once leaves some out.
	Times []GradientTime

	// Timeline is set for some steps, at equal distances.
	Timeline *Timeline

	Kept    uint32 // gradients counted in this step that were kept in an outage
	Dropped uint32 // kept gradients dropped since the previous step: too stale, or against the loss's descent
}

// Timeline says how long the parts of one step took: of each gradient whose ticket came in time,
// and of each shard. Clocks of different machines are never compared. Each part measures its own
// durations, and the conductor adds when it heard of them.
type Timeline struct {
	Workers []WorkerTime
	Shards  []ShardTime
}

// WorkerTime is one round of a worker that ended with a ticket.
type WorkerTime struct {
	Slot     Slot
	Told     time.Duration // from the release of the previous step to the arrival of the ticket
	Compute  time.Duration
	Transfer time.Duration
	Spans    Spans
}

// ShardTime says what a shard did in a step.
type ShardTime struct {
	Shard   ShardID
	Told    time.Duration // from the release of the previous step to the arrival of Stable
	Apply   time.Duration // as in Stable
	Publish time.Duration
	Ahead   time.Duration
}

// GradientTime says how long a worker spent on one gradient.
type GradientTime struct {
	Slot     Slot
	Compute  time.Duration // until the gradient was ready, or given up
	Transfer time.Duration // as in Ticket; 0 if it was not pushed
	Fate     Fate
}

// Fate says what became of a gradient in the step for which it was computed. The values are sent
// between processes and stored in records: never renumber.
type Fate uint8

// The fates.
const (
	InTime  Fate = 0 // it was counted, or may still be
	Late    Fate = 1 // finished, then refused or thrown away: the step had enough others
	GivenUp Fate = 2 // not finished: it would have taken longer than Compute
)

// CheckpointEvent tells of a published run manifest. If Running, it tells of chunks of one shard
// that were saved for the running checkpoint. With Err, it tells of a save that failed.
type CheckpointEvent struct {
	Line     Line
	Step     Step
	Running  bool
	Shard    ShardID // if Running
	Chunks   uint32  // if Running
	Distance float64 // if Running: ‖x − saved‖² of the shard after this save; NaN: not known
	Manifest string
	Bytes    uint64
	Took     time.Duration
	Err      string
}

// PartialEvent tells of a shard that was lost. Its chunks came back from the running checkpoint, or
// from the copy of a replica, while the other shards kept theirs.
type PartialEvent struct {
	Line   Line // the line that begins with it
	Step   Step // the step at which the shard was adopted
	Shard  ShardID
	Chunks uint32
	Oldest Step   // version of the oldest chunk that came back
	Age    uint64 // steps between Step and the versions of the chunks, summed over the chunks
}

// StandEvent tells that no step has been made for at least a minute, or that the first one waits for
// workers.
type StandEvent struct {
	Line  Line
	Step  Step          // the newest that was released; 0: this conductor has released none
	Time  time.Time     // when the event was made
	Lasts time.Duration // since that step, or since this conductor began
	Waits string        // what the run waits for, in words
}

// ExposureEvent tells what the loss of each shard would take back at Step: how far the values of
// the shard are from their saved values in the running checkpoint.
type ExposureEvent struct {
	Line   Line
	Step   Step
	Shards []Exposure // by shard
}

// Exposure is the exposure of one shard. A shard without chunks has the zero Exposure.
type Exposure struct {
	Squared float64 // ‖x − saved‖² after Step
	Dot     float64 // ⟨ḡ, x − saved⟩ before Step
	Chunks  uint32
	Age     uint64 // steps between Step and the saved versions, summed over the chunks
}
