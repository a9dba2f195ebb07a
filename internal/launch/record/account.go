package record

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi/internal/cost"
)

// FailureCost is what one failure cost.
type FailureCost struct {
	Part     string  `json:"part"`
	Cause    string  `json:"cause"`
	Injected bool    `json:"injected"`
	Seconds  float64 `json:"seconds"` // when it began
	Step     uint64  `json:"step"`    // newest released step at that time

	// Announced says that the process left in an orderly way after a notice. RecoverySeconds is
	// then the longest time between two steps around the departure.
	Announced bool `json:"announced,omitempty"`

	// RecoverySeconds is the time from the failure to the release of the first step that was also
	// committed after it. A step that was committed before may be released in between, but does not
	// show that the failed process was replaced. Null: no step followed.
	RecoverySeconds Number `json:"recovery_seconds"`

	// LostSteps is the number of released steps that a restore took back. All are charged to the
	// first server failure that had not recovered, so that the costs of all failures add up to the
	// run's rework.
	LostSteps    uint64 `json:"lost_steps"`
	RestoredStep uint64 `json:"restored_step"` // step that the restore went back to; 0 if there was none

	// CaughtUpSeconds is the time from the failure until the newest step before it was released
	// again. It equals RecoverySeconds if no step was lost. Null: not reached.
	CaughtUpSeconds Number `json:"caught_up_seconds"`

	// PartialChunks, PartialAge and PartialRework describe a partial recovery: the number of chunks
	// that came back older than the others, their mean age in steps, and the estimated number of
	// steps to make up for it (null: none, or not estimated).
	PartialChunks int     `json:"partial_chunks"`
	PartialAge    float64 `json:"partial_age_steps"`
	PartialRework Number  `json:"partial_rework_steps"`

	// Moved says which shards other servers have taken over because the server stayed away, such as
	// "shard 1 to server/2"; empty: none.
	Moved string `json:"moved,omitempty"`

	// MeasuredRework is by how many steps the losses after a partial recovery lag behind those
	// before it, and MeasuredError is its standard error. Null: not measured.
	MeasuredRework Number `json:"measured_rework_steps"`
	MeasuredError  Number `json:"measured_rework_error"`
}

// Restore is a full restore: a new line that began at the newest released step or before it.
type Restore struct {
	Seconds      float64 `json:"seconds"`
	Line         uint64  `json:"line"` // the new line
	RestoredStep uint64  `json:"restored_step"`
	LostSteps    uint64  `json:"lost_steps"`
}

// Summary is the content of summary.json: the totals of a run.
type Summary struct {
	Format int    `json:"format"`
	Reason string `json:"reason"` // why the run ended; empty: its launcher died, or it is still running

	Steps            uint64  `json:"steps"`           // newest released step
	FinalLoss        Number  `json:"final_loss"`      // mean over the last 20 released steps
	FinalTestLoss    Number  `json:"final_test_loss"` // of the last evaluation, mean over the labels of the test half; null if there was none
	FinalAccuracy    Number  `json:"final_accuracy"`  // of the last evaluation, in [0, 1]; null if there was none
	WallSeconds      float64 `json:"wall_seconds"`
	SamplesPerSecond float64 `json:"samples_per_second"` // examples of all released steps, including repeated steps

	Failures        []FailureCost `json:"failures"`
	RecoverySeconds []Number      `json:"recovery_seconds"` // one for each failure
	Restores        []Restore     `json:"restores"`
	ReworkSteps     uint64        `json:"rework_steps"`   // number of steps released again, over all restores
	ReworkSeconds   float64       `json:"rework_seconds"` // time spent on these: each from the release before it, except the first step of a line
	OutageSeconds   float64       `json:"outage_seconds"` // total time in which at least one failure waited for recovery

	// CountedGradients is the number of pushes that steps have counted. UsefulGradients are those
	// whose steps were not taken back. KeptGradients were computed while servers were away, and
	// counted later; one push may be the mean of many. DroppedGradients were also computed while
	// servers were away, but came too late or would have raised the loss.
	CountedGradients uint64 `json:"counted_gradients"`
	UsefulGradients  uint64 `json:"useful_gradients"`
	KeptGradients    uint64 `json:"kept_gradients"`
	DroppedGradients uint64 `json:"dropped_gradients"`

	LateGradients    uint64 `json:"late_gradients"`
	ClippedGradients uint64 `json:"clipped_gradients,omitempty"` // counted gradients that were clipped
	StalenessP50     uint64 `json:"staleness_p50"`               // median staleness of the counted gradients, in steps
	StalenessP99     uint64 `json:"staleness_p99"`
	BytesPushed      uint64 `json:"bytes_pushed"`
	BytesPulled      uint64 `json:"bytes_pulled"`
	Checkpoints      int    `json:"checkpoints"`
	CheckpointBytes  uint64 `json:"checkpoint_bytes"`
	RunningSaves     int    `json:"running_saves"` // of some chunks of one shard
	FailedSaves      int    `json:"failed_saves"`

	// ResidualsLost is the number of residuals lost: that of each worker that died, and those of
	// all workers at a full restore, since they belong to parameters that no longer exist.
	ResidualsLost int `json:"residuals_lost"`

	PeakBytes uint64 `json:"peak_bytes"` // of memory: the peak of any process in each place, summed over the places; 0: not recorded

	Cost *cost.Bill `json:"cost,omitempty"`

	Config string `json:"config"` // content of config.yaml
}

// finalLossSteps is the number of steps that final_loss is averaged over: the loss of one batch is
// mostly noise.
const finalLossSteps = 20

// Account computes the costs of a run from its events. It is pure: events in, in the order in which
// they were recorded, numbers out. The zero Account is ready to use. It is not safe for concurrent
// use.
type Account struct {
	costs    []FailureCost
	seen     []float64 // by failure: when the process was certainly gone
	closed   int       // the first so many failures wait for no step any more
	debts    []debt
	charges  []charge // of lines on which no step has been released yet
	restores []Restore

	heads        []uint32  // by shard: the server that heads it in the newest view
	line, newest uint64    // of the newest released step
	highest      uint64    // highest step ever released, on any line
	released     float64   // time of the newest release; negative: none on this line yet
	seconds      float64   // time of the last event
	losses       []float64 // of the last steps
	accuracy     Number
	testLoss     Number
	evaluated    bool
	examples     uint64
	staleness    map[uint32]uint64 // counted gradients by staleness
	outageFrom   float64           // start of the current outage
	out          bool
	resumed      float64 // when the run was last resumed; 0: never
	residuals    int     // number of residuals that the workers keep: none, or one each
	total        Summary // the totals
	usage        usage
}

// debt is rework in progress: until the line has reached step again.
type debt struct {
	step uint64
	cost int // index of the failure that it is charged to
}

// charge is the cost of a new line, to be charged to a failure. Which failure is decided when a
// step follows, as the view may be recorded before the death that caused it.
type charge struct {
	seconds  float64
	since    float64 // time of the restore before: earlier failures are over
	back     bool
	lost     uint64 // number of steps back to restored
	restored uint64
	newest   uint64 // newest step before it
}

// Add processes an event. It returns the recoveries that the event completes, to be recorded after
// it. Recovery events themselves change nothing.
func (a *Account) Add(e Event) []*Recovery {
	a.seconds = max(a.seconds, e.at().Seconds)
	switch e := e.(type) {
	case *Header:
		if e.Resumed && !e.WentOn {
			a.resumed = e.Seconds
		}
		a.residuals = 0
		if e.Feedback {
			a.residuals = e.Workers
		}
		a.usage.header(e)
	case *Life:
		a.usage.life(e)
	case *Step:
		return a.step(e)
	case *Failure:
		a.failure(e)
	case *View:
		a.moves(e)
		if e.Line > a.line && a.line > 0 {
			if e.Keeps != 0 {
				a.goOn(e.Seconds, e.Line)
				break
			}
			a.restore(e.Seconds, e.Line, e.RestoredStep)
		}
	case *Checkpoint:
		if e.Error != "" {
			a.total.FailedSaves++
			break
		}
		a.total.CheckpointBytes += e.Bytes
		if e.Running {
			a.total.RunningSaves++
		} else {
			a.total.Checkpoints++
		}
	case *Evaluation:
		a.testLoss, a.accuracy, a.evaluated = e.Loss, e.Accuracy, true
	case *Partial:
		a.partial(e)
	case *Rework:
		for i, c := range slices.Backward(a.costs) {
			if c.Part == e.Part && c.PartialChunks > 0 {
				a.costs[i].MeasuredRework, a.costs[i].MeasuredError = e.Measured, e.Deviation
				break
			}
		}
	}
	return nil
}

// Newest returns the newest released step, or 0 before the first.
func (a *Account) Newest() uint64 { return a.newest }

func (a *Account) failure(e *Failure) {
	if !a.out && !e.Announced {
		a.out, a.outageFrom = true, e.Seconds
	}
	a.costs = append(a.costs, FailureCost{Part: e.Part, Cause: e.Cause, Injected: e.Injected, Seconds: e.Seconds, Step: e.Step, Announced: e.Announced,
		RecoverySeconds: Unknown(), CaughtUpSeconds: Unknown(), PartialRework: Unknown(), MeasuredRework: Unknown(), MeasuredError: Unknown()})
	a.seen = append(a.seen, max(e.Seconds, e.SeenSeconds))
	if a.residuals > 0 && strings.HasPrefix(e.Part, "worker/") {
		a.total.ResidualsLost++
	}
}

// moves notes the shards, with one replica, that a different server heads than before. A shard that
// returns to the server that had it does not count.
func (a *Account) moves(e *View) {
	before := a.heads
	if a.heads = e.Heads; a.usage.replicas > 1 || len(before) != len(e.Heads) {
		return
	}
	for shard, head := range e.Heads {
		if head == before[shard] || int(head) == shard {
			continue
		}
		part := fmt.Sprintf("server/%d", before[shard])
		for i, c := range slices.Backward(a.costs) {
			if c.Part == part {
				a.costs[i].Moved = strings.TrimPrefix(fmt.Sprintf("%s, shard %d to server/%d", c.Moved, shard, head), ", ")
				break
			}
		}
	}
}

// restore notes that a line began at the restored step, with the parameters of a checkpoint.
func (a *Account) restore(seconds float64, line, restored uint64) {
	a.total.ResidualsLost += a.residuals
	a.back(seconds, line, restored)
}

// back notes that a line began at the newest released step or before it.
func (a *Account) back(seconds float64, line, restored uint64) {
	lost := uint64(0)
	if a.newest > restored {
		lost = a.newest - restored
	}
	a.restores = append(a.restores, Restore{Seconds: seconds, Line: line, RestoredStep: restored, LostSteps: lost})
	a.total.ReworkSteps += lost
	a.usage.restore(restored)
	a.charges = append(a.charges, charge{seconds: seconds, since: a.restoreBefore(), back: true, lost: lost, restored: restored, newest: a.newest})
	a.line, a.newest, a.released = line, restored, -1
}

// goOn notes a line that begins where the line before ended: no step is lost.
func (a *Account) goOn(seconds float64, line uint64) {
	a.charges = append(a.charges, charge{seconds: seconds, since: a.restoreBefore()})
	a.line, a.released = line, -1
}

// restoreBefore returns the time of the restore before the newest one, or the time when the run was
// resumed if that is later; 0 if there is neither. Resuming a run also begins a line, but that line
// follows the end of the run and no failure that had already recovered.
func (a *Account) restoreBefore() float64 {
	if n := len(a.restores); n > 1 {
		return max(a.resumed, a.restores[n-2].Seconds)
	}
	return a.resumed
}

// settle charges new lines to failures. If a step was committed before the process was certainly
// gone, the line shows that this step was no recovery.
func (a *Account) settle() {
	for _, ch := range a.charges {
		i := a.culprit(ch.since)
		if i < 0 {
			continue
		}
		c := &a.costs[i]
		if c.RecoverySeconds.Known() {
			c.RecoverySeconds, c.CaughtUpSeconds = Unknown(), Unknown()
			a.closed = min(a.closed, i)
			if !a.out && !c.Announced {
				a.out, a.outageFrom = true, ch.seconds
			}
		}
		if !ch.back {
			continue
		}
		c.LostSteps += ch.lost
		c.RestoredStep = ch.restored
		if ch.lost > 0 {
			a.debts = append(a.debts, debt{step: ch.newest, cost: i})
		}
	}
	a.charges = nil
}

// culprit returns the index of the failure that a new line is charged to: the first server failure
// that waits for recovery, or else any failure that waits, or else the newest server failure since
// the given time, or else -1.
func (a *Account) culprit(since float64) int {
	waits := func(c FailureCost) bool { return !c.RecoverySeconds.Known() }
	isServer := func(c FailureCost) bool { return strings.HasPrefix(c.Part, "server/") }
	if i := slices.IndexFunc(a.costs, func(c FailureCost) bool { return waits(c) && isServer(c) }); i >= 0 {
		return i
	}
	if i := slices.IndexFunc(a.costs, waits); i >= 0 {
		return i
	}
	for i, c := range slices.Backward(a.costs) {
		if isServer(c) && c.Seconds >= since {
			return i
		}
	}
	return -1
}

func (a *Account) partial(e *Partial) {
	for i, c := range slices.Backward(a.costs) {
		if c.Part == e.Part {
			if e.MeanAge.Known() && e.Chunks > 0 {
				all := c.PartialAge*float64(c.PartialChunks) + float64(e.MeanAge)*float64(e.Chunks)
				a.costs[i].PartialAge = math.Round(all/float64(c.PartialChunks+e.Chunks)*1e3) / 1e3
			}
			a.costs[i].PartialChunks += e.Chunks
			if e.ReworkSteps.Known() {
				a.costs[i].PartialRework = e.ReworkSteps
			}
			return
		}
	}
}

func (a *Account) step(e *Step) (done []*Recovery) {
	switch {
	case e.Line < a.line:
		return nil // a late step of a line that a restore has ended: its steps no longer exist
	case e.Line > a.line && a.line > 0:
		a.restore(e.Seconds, e.Line, e.Step-1) // the view is missing, but the step of its line is enough
	case e.Step <= a.newest && a.released < 0: // the line keeps the one before, but all shards went back to copies
		a.back(e.Seconds, e.Line, e.Step-1)
	}
	a.settle()
	if e.Step <= a.highest && a.released >= 0 {
		a.total.ReworkSeconds += e.Seconds - a.released
	}
	a.line, a.newest, a.released = e.Line, max(a.newest, e.Step), e.Seconds
	a.highest = max(a.highest, e.Step)
	a.usage.released(e.Seconds)
	a.sum(e)

	committed := e.Seconds - e.ApplySeconds
	waiting := 0
	for i := a.closed; i < len(a.costs); i++ {
		c := &a.costs[i]
		if c.RecoverySeconds.Known() {
			if a.closed == i {
				a.closed++
			}
			continue
		}
		if committed < a.seen[i] {
			if !c.Announced {
				waiting++
			}
			continue
		}
		c.RecoverySeconds = Number(round(e.Seconds - c.Seconds))
		if c.Announced {
			c.RecoverySeconds = Number(round(a.usage.longest(c.Seconds)))
			a.usage.handing += max(0, float64(c.RecoverySeconds)-a.usage.usual(c.Seconds))
		}
		if c.LostSteps == 0 {
			c.CaughtUpSeconds = c.RecoverySeconds
		}
		done = append(done, a.recovery(e.Seconds, c))
	}
	if a.out && waiting == 0 {
		a.out = false
		a.total.OutageSeconds += e.Seconds - a.outageFrom
	}
	return append(done, a.repay(e)...)
}

// repay ends the rework that e completes, and returns the recoveries.
func (a *Account) repay(e *Step) (done []*Recovery) {
	a.debts = slices.DeleteFunc(a.debts, func(d debt) bool {
		if e.Step < d.step {
			return false
		}
		c := &a.costs[d.cost]
		c.CaughtUpSeconds = Number(round(e.Seconds - c.Seconds))
		done = append(done, a.recovery(e.Seconds, c))
		return true
	})
	return done
}

func (a *Account) recovery(seconds float64, c *FailureCost) *Recovery {
	return &Recovery{At: At{seconds}, Part: c.Part, FailureSeconds: c.Seconds, RecoverySeconds: float64(c.RecoverySeconds),
		RestoredStep: c.RestoredStep, LostSteps: c.LostSteps, CaughtUpSeconds: c.CaughtUpSeconds}
}

func (a *Account) sum(e *Step) {
	if e.Loss.Known() {
		if len(a.losses) == finalLossSteps {
			a.losses = slices.Delete(a.losses, 0, 1)
		}
		a.losses = append(a.losses, float64(e.Loss))
	}
	a.examples += uint64(e.Examples)
	a.total.LateGradients += uint64(e.Late)
	a.total.ClippedGradients += uint64(e.Clipped)
	a.total.KeptGradients += uint64(e.Kept)
	a.total.DroppedGradients += uint64(e.Dropped)
	a.total.CountedGradients += uint64(len(e.Counted))
	a.usage.step(e)
	if a.staleness == nil {
		a.staleness = make(map[uint32]uint64)
	}
	for i := range e.Counted {
		tau := uint32(0)
		if i < len(e.Stalenesses) {
			tau = e.Stalenesses[i]
		}
		a.staleness[tau]++
	}
	a.total.BytesPushed += e.PushedBytes
	a.total.BytesPulled += e.PulledBytes
}

// Summary returns the totals up to the last event. The caller owns it, and fills in Format, Reason
// and Config.
func (a *Account) Summary() Summary {
	a.settle()
	s := a.total
	s.Steps = a.newest
	s.WallSeconds = round(a.seconds)
	s.FinalLoss, s.FinalTestLoss, s.FinalAccuracy = Unknown(), Unknown(), Unknown()
	if n := len(a.losses); n > 0 {
		sum := 0.0
		for _, l := range a.losses {
			sum += l
		}
		s.FinalLoss = Number(sum / float64(n))
	}
	if a.evaluated {
		s.FinalTestLoss, s.FinalAccuracy = a.testLoss, a.accuracy
	}
	if a.seconds > 0 {
		s.SamplesPerSecond = math.Round(float64(a.examples)/a.seconds*1e3) / 1e3
	}
	if a.out {
		s.OutageSeconds += a.seconds - a.outageFrom
	}
	s.UsefulGradients = s.CountedGradients - a.usage.lost
	s.PeakBytes = a.usage.peaks()
	s.StalenessP50, s.StalenessP99 = a.quantile(50), a.quantile(99)
	s.OutageSeconds, s.ReworkSeconds = round(s.OutageSeconds), round(s.ReworkSeconds)
	s.Failures = append([]FailureCost{}, a.costs...) // empty in JSON, never null
	s.Restores = append([]Restore{}, a.restores...)
	s.RecoverySeconds = make([]Number, len(a.costs))
	for i, c := range a.costs {
		s.RecoverySeconds[i] = c.RecoverySeconds
	}
	s.Cost = a.usage.bill(&s)
	return s
}

// quantile returns the smallest staleness that percent of the counted gradients do not exceed; 0
// without gradients.
func (a *Account) quantile(percent uint64) uint64 {
	total := uint64(0)
	for _, n := range a.staleness {
		total += n
	}
	below := uint64(0)
	for _, tau := range slices.Sorted(maps.Keys(a.staleness)) {
		if below += a.staleness[tau]; below*100 >= total*percent {
			return uint64(tau)
		}
	}
	return 0
}
