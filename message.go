package kintsugi

import (
	"math"
	"time"
)

// The message types by direction. The interfaces are sealed: a type switch over one of them is complete.
type (
	// WorkerMessage goes from a worker to the conductor: Hello, Ticket.
	WorkerMessage interface{ workerMessage() }

	// ConductorMessage goes from the conductor to a worker: Admitted, Released, Refused, Done.
	ConductorMessage interface{ conductorMessage() }

	// ControlMessage goes from the conductor to a shard's replica: Take, Adopt, Members, Commit, Released, Done.
	ControlMessage interface{ controlMessage() }

	// ReplicaMessage goes from a replica to the conductor: Taken, MembersKnown, Stable, Saved.
	ReplicaMessage interface{ replicaMessage() }

	// ChainMessage goes from a replica to the one after it in its chain: Snapshot, Joined, Take,
	// Update, Commit, Released.
	ChainMessage interface{ chainMessage() }

	// FollowerMessage goes from a replica to the one before it in its chain: Follow, Taken, Stable.
	FollowerMessage interface{ followerMessage() }

	// RunEvent goes from the conductor to whoever watches the run: StepEvent, CheckpointEvent,
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

// The messages of the control plane. Tensors never travel in them: a push is named by its id, its
// bytes go from the worker to the shards as frames (internal/transport).

// Hello is a worker's first message to the conductor.
type Hello struct {
	Protocol    uint32 // ProtocolVersion
	Model       uint64 // Layout.Fingerprint
	Line        Line
	Slot        Slot
	Incarnation Incarnation

	// Kept is how many pushes the worker will offer that it has kept in an outage, none of them on
	// an older version than Oldest, and none of which it has had a ticket for. 0: it begins with
	// the newest version, and Oldest means nothing.
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
	Views       []ViewNumber // by shard: the view in which its head acknowledged; none: the worker threw the gradient away
	Loss        float64      // mean over the batch, before the step
	Examples    uint32       // in the batch
	SquaredNorm float64      // of the decoded gradient
	Compute     time.Duration
	Transfer    time.Duration // after it: encode, send, and wait for all heads
	Spans       Spans
	Along       Along

	// Kept is how many gradients the push is the mean of, which were computed while servers were
	// away; without views they were dropped. 0: it is an ordinary one.
	Kept uint32
}

// Spans are what a worker did with its time from its ticket before to this one, beside
// Ticket.Compute and Ticket.Transfer: Wait and Pull come before the computation, Encode and Send
// are the beginning of the transfer, and the rest of it is the heads' answers.
type Spans struct {
	Wait   time.Duration // until it heard what became of the gradient before, and until newer parameters came
	Pull   time.Duration // to land them
	Encode time.Duration // to encode the gradient, or to copy it to shared memory, with checksums
	Send   time.Duration // to hand it over
	Hidden time.Duration // of encoding and sending within Compute: parts of the gradient that were done before the rest
}

// Along is what a worker whose messages are not its gradients tells of the gradients themselves:
// how they lie along d, the displacement of the parameters from the version before the push's to
// the push's. It is told where Pace.Along asks for it.
type Along struct {
	Known bool    // the worker has had both versions
	Dot   float64 // ⟨g, d⟩

	Earlier bool    // it has also computed a gradient g₋₁ on the version before
	Before  float64 // ⟨g₋₁, d⟩
	Own     float64 // ⟨g₋₁, m₋₁⟩, m₋₁ the message that it sent of that one, decoded; 0: it sent none
}

// Weighted is a counted push and its weight in the step.
type Weighted struct {
	Push   PushID
	Weight float32 // examples × staleness weight × clipping
}

// Countable says which pushes of a slot may still be counted: those of Incarnation on a version of at
// least Oldest. Shards free and refuse everything else.
type Countable struct {
	Slot        Slot
	Incarnation Incarnation
	Oldest      Step // Never: the slot has no member

	// Version and Next tell of the newest push that a released step has counted: it is the one
	// before sequence Next on that version. Next is 0 if there is none. A conductor that takes over
	// knows by them what has become of tickets whose steps nobody has records of any more.
	Version Step
	Next    uint32
}

// Never is the oldest version of a slot of which nothing counts.
const Never Step = math.MaxUint64

// Rule is what a step does with the scaled sum of its gradients. Values are stored in checkpoints and
// sent between processes: never renumber.
type Rule uint8

// The rules.
const (
	RuleSGD      Rule = 1
	RuleMomentum Rule = 2
	RuleNesterov Rule = 3
	RuleAdam     Rule = 4
	RuleAdamW    Rule = 5
	RuleAdd      Rule = 6 // parameters += sum: counts; exact codecs only
	RuleAssign   Rule = 7 // parameters = the pushed chunk of the last that names a value of it; else as they are
	RuleAdagrad  Rule = 8
)

// Optimizer holds the rule of a step and its scalars, all computed by the conductor and rounded to
// float32 once, so that every replica uses the same bits.
type Optimizer struct {
	Rule         Rule
	LearningRate float32
	Momentum     float32
	Beta1, Beta2 float32
	Epsilon      float32
	WeightDecay  float32
	Correction1  float32 // 1 − β₁ᵗ
	Correction2  float32 // 1 − β₂ᵗ

	// DecayMatrices: WeightDecay is for tensors of two dimensions and more alone. Biases and the
	// scales of norms, which have one, are not drawn to zero.
	DecayMatrices bool
}

// WeightDecayOf returns the weight decay of a tensor's values.
func (o Optimizer) WeightDecayOf(t Tensor) float32 {
	if o.DecayMatrices && len(t.Shape) < 2 {
		return 0
	}
	return o.WeightDecay
}

// Commit is the decision which pushes make a step. Shards apply exactly that set, in the order of
// Counted, which is ascending by PushID.Compare.
type Commit struct {
	Line      Line
	Fence     Fence // under which this copy is sent
	Decided   Fence // under which it was decided: a higher one replaces an unreleased step
	Step      Step
	Counted   []Weighted
	Scale     float32 // multiplies the weighted sum: 1/Σexamples for a mean
	Optimizer Optimizer
	Countable []Countable // by slot: the membership after this step
	Want      Want        // by-products asked of the kernel
}

// Want says which by-products a commit asks for beyond ‖ḡ‖²: the others cost memory traffic.
type Want uint8

// By-products on demand (PROTOCOL §9).
const (
	WantDotDisplacement     Want = 1 << iota // ⟨ḡ, d₋₁⟩ with d₋₁ the displacement of the step before
	WantSquaredDisplacement                  // ‖d‖² of this step
	WantSaved                                // how far it has got from what is saved of it in the running checkpoint
)

// Products are the by-products of a step on one chunk.
type Products struct {
	SquaredNorm         float64 // ‖ḡ‖² of the scaled sum
	DotDisplacement     float64
	SquaredDisplacement float64
	SquaredSaved        float64 // ‖x − saved‖² after the step
	DotSaved            float64 // ⟨ḡ, x − saved⟩ before it; 0 in a commit that wants ⟨ḡ, d₋₁⟩ as well
	Touched             uint32  // values that gradients named since SquaredSaved was asked for last
}

// Members tells a shard whose pushes are countable from here on. It follows, on the same ordered stream,
// every commit that was decided before it, so that a shard never voids a push that a commit names.
// A new incarnation is admitted once all shards have answered.
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

// Take asks a shard to promise Fence and to report its state. A shard that has promised a higher one refuses.
type Take struct {
	Line  Line
	View  ViewNumber
	Fence Fence
}

// Taken answers Take, and Adopt.
type Taken struct {
	Shard    ShardID
	Fence    Fence
	Applied  Step
	Released Step
	Records  []Commit // of the newest steps that are applied or open, ascending, at most three
	Standing Standing
	Saved    []Step // by chunk of the shard, the version that is in the running checkpoint; Lost, and in the answer to its Adopt: what came back; none: there is none

	// Lacks are the pushes that the open commit counts and that are not here. There are none as
	// long as every worker keeps its word: it sends its ticket when every head has said that it has
	// the push, and the commit comes after that.
	Lacks []PushID
}

// Standing is where a shard has its state from when a line begins.
type Standing uint8

// The standings. On a line that begins with a partial restore (View.Keeps) a shard waits for Adopt with what it has.
const (
	Settled Standing = iota // it stands at a step of the line
	Kept                    // it has outlived the line before, and stands where that one ended
	Lost                    // its chunks came back from the running checkpoint, of whatever steps, or from a copy
)

// Adopt tells the shards of a line that begins with a partial restore at which step it begins: the newest that every
// shard that was kept has applied. A shard makes what it has the version of that step, and answers as to Take.
type Adopt struct {
	Line  Line
	Fence Fence
	Step  Step
}

// Stable says that a step is applied on the whole chain of a shard.
type Stable struct {
	Shard    ShardID
	Fence    Fence // under which the commit was last sent
	Step     Step
	Decided  Fence      // of the commit
	Products []Products // by chunk of the shard
	Apply    time.Duration
	Pushed   uint64 // bytes of gradients received in this view so far
	Pulled   uint64 // bytes of parameters sent in this view so far

	// Publish is for how long the shard's head was busy with handing versions to readers since the answer before.
	Publish time.Duration

	// Saving is for how long steps have waited for the checkpoint since the answer before: to begin a save, and for
	// values that a save has made durable.
	Saving time.Duration

	// Ahead is for how long the shard's head had been making the step, of what had arrived, when
	// its commit came; 0: it had not begun.
	Ahead time.Duration
}

// Follow is the first word of a replica to the one before it in its chain: where it stands.
type Follow struct {
	Line     Line
	View     ViewNumber
	Shard    ShardID
	Server   ServerID
	Whole    bool // it has everything that was released; else it is to be sent a snapshot
	Released Step
	Applied  Step
	Decided  Fence  // of the applied step
	Attempt  uint64 // grows in a life of the server with each connection to one before it: what a broken stream brought, and is read late, has a smaller one
}

// Snapshot gives a replica that is not whole the released version of the one before it. Where
// replicas get copies in place of updates, it gives them a version that is applied there. Its
// values follow.
type Snapshot struct {
	Step    Step
	Records []Commit // of the released step, if it was made on this line
	Taken   []uint64 // by chunk of the shard, the optimizer steps it has taken; nil: Step, all of them
}

// Joined tells a replica that it has caught up: no step is released any more without it, and it is
// whole. Where replicas have copies it is said of each: that was released.
type Joined struct{}

// Update is a commit with its scaled sum, which follows: what a replica applies that is no head.
type Update struct{ Commit Commit }

// Released says that a step is stable on every shard: its version may be read, published and saved, and
// its pushes may be freed.
type Released struct {
	Line    Line
	Fence   Fence
	Step    Step
	Counted []PushID
	Save    bool // shards save this version to the checkpoint

	// Run are the chunks of this shard, counted from its first, whose values of this version the
	// running checkpoint takes.
	Run []ChunkID

	// Want is what the commit of the next step will ask for, as far as that is known: of use to a
	// shard that runs ahead of it.
	Want Want
}

// Refused says that a push will never be counted, and why.
type Refused struct {
	Push   PushID
	Step   Step // the worker goes on with a version at least as new, which is released or will be
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
	Running  bool   // some chunks for the running checkpoint, not all for a full one
	Chunks   uint32 // how many, if Running
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

// AllSteps is the reason of a run that has done what it was to do.
const AllSteps = "all steps are done"

// Ends reports whether the word ends a run of so many steps. One that had done all of fewer steps
// has been started again with more.
func (d Done) Ends(steps Step) bool { return d.Reason != AllSteps || d.Step >= steps }

// StepEvent is what a watcher of the run learns of a released step.
type StepEvent struct {
	Line      Line
	Step      Step
	Time      time.Time
	Loss      float64 // mean of the counted workers' losses, weighted by examples
	Counted   []PushID
	Workers   uint32 // members
	Quota     uint32
	Reason    string // of the quota, in words, when it changed
	Staleness uint32 // greatest among the counted
	Late      uint32 // gradients refused since the step before
	Examples  uint32
	Norm      float64       // ‖ḡ‖ of the mean gradient, as it was applied
	Clipped   uint32        // of the counted gradients, how many were longer than they may count
	Wait      time.Duration // from the release before to the commit
	Apply     time.Duration // from the commit to the release
	Pushed    uint64        // bytes of gradients that all shards have received since the step before
	Pulled    uint64        // bytes of parameters that all shards have sent since the step before
	Saving    time.Duration // for how long the slowest shard has waited for the checkpoint

	// Times are what gradients took that have ended since the step before, in the order in which the conductor heard of
	// them. A conductor that hears of very many at once leaves some out.
	Times []GradientTime

	// Timeline is told of some steps, at equal distances.
	Timeline *Timeline

	Kept    uint32 // gradients that were kept in an outage and are counted in this step
	Dropped uint32 // such gradients that were dropped since the step before: too old, or against the way the loss goes down
}

// Timeline is what the parts of one step took: of the gradients whose tickets came in time, and of
// each shard. Clocks of several machines are not compared: each part says how long it was at what,
// and the conductor when it heard of it.
type Timeline struct {
	Workers []WorkerTime
	Shards  []ShardTime
}

// WorkerTime is the round of a worker that ended with a ticket.
type WorkerTime struct {
	Slot     Slot
	Told     time.Duration // when its ticket came, after the release of the step before
	Compute  time.Duration
	Transfer time.Duration
	Spans    Spans
}

// ShardTime is what a shard did in a step.
type ShardTime struct {
	Shard   ShardID
	Told    time.Duration // when the conductor heard that it is stable, after the release of the step before
	Apply   time.Duration // as in Stable
	Publish time.Duration
	Ahead   time.Duration
}

// GradientTime is how long a worker was at one gradient.
type GradientTime struct {
	Slot     Slot
	Compute  time.Duration // until the gradient was there, or given up
	Transfer time.Duration // as in Ticket; 0 if it was not pushed
	Fate     Fate
}

// Fate is what became of a gradient in the step for which it was computed. Values are sent between processes and stored
// in records: never renumber.
type Fate uint8

// The fates.
const (
	InTime  Fate = 0 // it was counted, or may still be
	Late    Fate = 1 // finished, and then refused or thrown away: others were enough
	GivenUp Fate = 2 // not finished: it would have taken longer than it did
)

// CheckpointEvent tells of a run manifest that was published, or, if Running, of chunks of one shard that were saved
// for the running checkpoint; or of a save that went wrong.
type CheckpointEvent struct {
	Line     Line
	Step     Step
	Running  bool
	Shard    ShardID // if Running
	Chunks   uint32  // if Running
	Distance float64 // if Running: ‖x − saved‖² of the shard as far as this save has left it; NaN: not known
	Manifest string
	Bytes    uint64
	Took     time.Duration
	Err      string
}

// PartialEvent tells of a shard that was lost and whose chunks came back from the running
// checkpoint, or from the copy of a replica, while the other shards kept theirs.
type PartialEvent struct {
	Line   Line // that begins with it
	Step   Step // at which it was adopted
	Shard  ShardID
	Chunks uint32
	Oldest Step   // version of the oldest chunk that came back
	Age    uint64 // steps between Step and the versions of the chunks, summed up
}

// StandEvent tells that no step is taken, for a minute at least.
type StandEvent struct {
	Line  Line
	Step  Step          // the newest that was released; 0: none by this conductor
	Time  time.Time     // when this was so
	Lasts time.Duration // since that step, or since this conductor began
	Waits string        // for whom, in words
}

// ExposureEvent tells what the loss of each shard would take back at a step: how far its values are from what is saved
// of them in the running checkpoint.
type ExposureEvent struct {
	Line   Line
	Step   Step
	Shards []Exposure // by shard
}

// Exposure is that of one shard. A shard without chunks has none: the zero Exposure.
type Exposure struct {
	Squared float64 // ‖x − saved‖² after Step
	Dot     float64 // ⟨ḡ, x − saved⟩ before it
	Chunks  uint32
	Age     uint64 // steps between Step and the versions that are saved, summed up
}
