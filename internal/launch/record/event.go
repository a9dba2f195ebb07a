package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Format is the version of events.jsonl and summary.json that this package writes. Readers refuse
// later ones.
const Format = 1

// Number is a float64 that may be NaN or infinite: JSON has no word for those, so it is null there,
// and NaN when it is read again.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	if !n.Known() {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', -1, 64), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *Number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = Number(math.NaN())
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}

// Known reports whether n is a finite number.
func (n Number) Known() bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }

// Unknown is the Number of what was not measured.
func Unknown() Number { return Number(math.NaN()) }

// At is when something happened. Every event begins with it.
type At struct {
	// Seconds since the run started, by the clock of the launcher's machine. While a run that is
	// resumed did not run, no time passes.
	Seconds float64 `json:"seconds"`
}

func (a *At) at() *At { return a }

// Event is one line of events.jsonl: a pointer to one of the structs below.
type Event interface {
	kind() string
	at() *At
}

// Header (kind "run") says what is being trained. It is the first line, and appears again where a run
// is resumed.
type Header struct {
	At
	Format      int       `json:"format"`
	Start       time.Time `json:"start"`
	Model       string    `json:"model"`
	Parameters  int       `json:"parameters"`
	Data        string    `json:"data"`
	Consistency string    `json:"consistency"`
	Recovery    string    `json:"recovery"`
	Codec       string    `json:"codec"`
	Feedback    bool      `json:"error_feedback"` // the workers keep what the codec leaves out
	Device      string    `json:"device"`
	Servers     int       `json:"servers"`
	Workers     int       `json:"workers"`
	Replicas    int       `json:"replicas"`
	Steps       uint64    `json:"steps"`            // asked for
	Prices      string    `json:"prices,omitempty"` // of an hour of a node, as package cost reads them; "": not known
	Version     string    `json:"version"`
	Resumed     bool      `json:"resumed,omitempty"`
	WentOn      bool      `json:"went_on,omitempty"` // if resumed: the run did not stop meanwhile, its record did
}

// Step (kind "step") is a released step.
type Step struct {
	At
	Line          uint64   `json:"line"`
	Step          uint64   `json:"step"`
	Loss          Number   `json:"loss"`    // mean of the counted gradients' losses, weighted by examples
	Counted       []uint32 `json:"counted"` // slots, one per counted gradient, ascending
	Workers       uint32   `json:"workers"` // members
	Quota         uint32   `json:"quota"`
	Reason        string   `json:"reason,omitempty"`            // of the quota, when it changed
	Staleness     uint32   `json:"staleness_steps"`             // greatest among the counted
	Stalenesses   []uint32 `json:"staleness_each,omitempty"`    // of each counted gradient; none: all are fresh
	Late          uint32   `json:"late_gradients"`              // refused since the step before
	Kept          uint32   `json:"kept_gradients,omitempty"`    // computed while servers were away, and counted in this step
	Dropped       uint32   `json:"dropped_gradients,omitempty"` // such gradients that were dropped since the step before
	Examples      uint32   `json:"examples"`
	Norm          Number   `json:"gradient_norm"`               // of the mean gradient, as it was applied
	Clipped       uint32   `json:"clipped_gradients,omitempty"` // of the counted ones, those longer than they may count
	WaitSeconds   float64  `json:"wait_seconds"`                // from the release before to the commit
	ApplySeconds  float64  `json:"apply_seconds"`               // from the commit to the release
	SavingSeconds float64  `json:"saving_seconds,omitempty"`    // for how long the slowest shard has waited for the checkpoint
	PushedBytes   uint64   `json:"pushed_bytes"`                // since the step before
	PulledBytes   uint64   `json:"pulled_bytes"`                // since the step before
	Times         []Took   `json:"times,omitempty"`
}

// Timeline (kind "timeline") is where one step went; it is told of some hundred steps of a run. Times are in seconds.
type Timeline struct {
	At
	Line         uint64   `json:"line"`
	Step         uint64   `json:"step"`
	WaitSeconds  float64  `json:"wait_seconds"`  // from the release before to the commit
	ApplySeconds float64  `json:"apply_seconds"` // from the commit to the release
	Workers      []Round  `json:"workers"`
	Shards       []Stable `json:"shards"`
}

// Failure (kind "failure") is the death of a process, or its absence otherwise. Its time is when it
// began: when the signal was sent, if a fault sent one or it was announced, else when the death was seen.
type Failure struct {
	At
	Part        string `json:"part"`  // such as "server/0"
	Cause       string `json:"cause"` // in words
	Incarnation int    `json:"incarnation"`
	Injected    bool   `json:"injected"`            // a fault asked for it
	Announced   bool   `json:"announced,omitempty"` // the process had notice, and has handed over what others need

	// SeenSeconds is when the process was certainly gone. Between the signal and this moment it may
	// still have taken part in a step, which is then no sign of recovery. Zero: at Seconds.
	SeenSeconds float64 `json:"seen_seconds,omitempty"`

	// Step is the newest released step at that time; a Recorder fills it in.
	Step uint64 `json:"step"`
}

// Recovery (kind "recovery") says what a failure cost, twice: when steps go on, and again when the
// steps that were lost have been made up for, if any were. A Recorder adds it.
type Recovery struct {
	At
	Part            string  `json:"part"`
	FailureSeconds  float64 `json:"failure_seconds"` // when the failure began
	RecoverySeconds float64 `json:"recovery_seconds"`
	RestoredStep    uint64  `json:"restored_step"`
	LostSteps       uint64  `json:"lost_steps"`
	CaughtUpSeconds Number  `json:"caught_up_seconds"` // null: not yet
}

// View (kind "view") is a new configuration of the servers.
type View struct {
	At
	Number       uint64   `json:"number"`
	Line         uint64   `json:"line"`
	Fence        uint64   `json:"fence"`
	Servers      []string `json:"servers"` // by place: "server/0 incarnation 2"
	Conductor    uint32   `json:"conductor"`
	Heads        []uint32 `json:"heads,omitempty"`   // by shard, the server that heads it
	Keeps        uint64   `json:"keeps,omitempty"`   // the line goes on with what servers have in memory of lines from this one on
	Restore      string   `json:"restore,omitempty"` // manifest that the line starts from
	RestoredStep uint64   `json:"restored_step"`
	Reason       string   `json:"reason"`
}

// Checkpoint (kind "checkpoint") is a published run manifest, or chunks of one shard that were saved for the running
// checkpoint, or a save that went wrong.
type Checkpoint struct {
	At
	Line        uint64  `json:"line"`
	Step        uint64  `json:"step"`
	Running     bool    `json:"running,omitempty"`  // of the running checkpoint
	Shard       uint32  `json:"shard,omitempty"`    // if running
	Chunks      uint32  `json:"chunks,omitempty"`   // if running
	Distance    Number  `json:"distance,omitempty"` // if running: ‖x − saved‖² of the shard after it
	Manifest    string  `json:"manifest"`
	Bytes       uint64  `json:"bytes"`
	TookSeconds float64 `json:"took_seconds"`
	Error       string  `json:"error,omitempty"`
}

// Partial (kind "partial") is a partial recovery: lost chunks came back at an older value, from the
// running checkpoint or a copy of another replica, while the others stayed, so no step was lost but
// some progress was. Part is who had them.
type Partial struct {
	At
	Part        string `json:"part"`
	Shard       uint32 `json:"shard"`
	Line        uint64 `json:"line"`         // that begins with it
	AdoptedStep uint64 `json:"adopted_step"` // at which the line begins
	Chunks      int    `json:"chunks"`       // restored
	OldestStep  uint64 `json:"oldest_step"`
	MeanAge     Number `json:"mean_age_steps"` // of the chunks; null: there are none
	Distance    Number `json:"distance"`       // ‖x − saved‖² of the shard when it was saved last; null: not known
	ReworkSteps Number `json:"rework_steps"`   // estimated; null if not
}

// Exposure (kind "exposure") says what the loss of each server would cost now, every few seconds.
type Exposure struct {
	At
	Line        uint64       `json:"line"`
	Step        uint64       `json:"step"`
	Calibration float64      `json:"calibration"` // what predictions are multiplied by
	Failures    int          `json:"failures"`    // that it was learnt from
	Servers     []ServerCost `json:"servers"`

	// AgeSeconds and AgeSteps are those of the newest full checkpoint, or of the run while there is none.
	AgeSeconds Number `json:"checkpoint_age_seconds"`
	AgeSteps   Number `json:"checkpoint_age_steps"`
}

// ServerCost is what the loss of one server would cost.
type ServerCost struct {
	Part     string `json:"part"`
	Steps    Number `json:"steps"`          // null: not known
	Seconds  Number `json:"seconds"`        // of those steps, and until training goes on
	Distance Number `json:"distance"`       // ‖x − saved‖² of its shard; null: not known, or of no importance
	MeanAge  Number `json:"mean_age_steps"` // of its chunks in the running checkpoint; null: there is none
	Why      string `json:"why"`
}

// Rework (kind "rework") says what a partial recovery has cost, when enough steps have been released after it.
type Rework struct {
	At
	Part        string  `json:"part"`
	Step        uint64  `json:"step"`            // at which the line began
	Predicted   Number  `json:"predicted_steps"` // null: it was not
	Measured    Number  `json:"measured_steps"`  // by how many steps the losses after it lag behind
	Deviation   Number  `json:"standard_error"`  // of Measured, in steps
	Calibration float64 `json:"calibration"`     // of predictions, from now on
	Failures    int     `json:"failures"`        // that it was learnt from
}

// Presence (kind "presence") is a process that a monitor has found in its place. A launcher begins
// processes itself, and writes none: this is how a monitor that goes on with the record knows who
// was there when it was away.
type Presence struct {
	At
	Part        string `json:"part"`
	Incarnation int    `json:"incarnation"`
}

// Life (kind "life") is a process that has ended.
type Life struct {
	At
	Part         string  `json:"part"`
	Incarnation  int     `json:"incarnation"`
	BeganSeconds float64 `json:"began_seconds"`
	CPUSeconds   float64 `json:"cpu_seconds"`
	PeakBytes    uint64  `json:"peak_bytes"` // of memory that it had at once
	End          string  `json:"end"`        // in words
}

// Evaluation (kind "evaluation") measures a version on data that is not trained on.
type Evaluation struct {
	At
	Line     uint64 `json:"line"`
	Step     uint64 `json:"step"`
	Loss     Number `json:"loss"`
	Accuracy Number `json:"accuracy"` // in [0, 1]; null if the model has none
	Examples int    `json:"examples"`
}

// Fault (kind "fault") is an action of the fault injector.
type Fault struct {
	At
	Action string `json:"action"` // kill, start, pause, resume, slow, unslow
	Part   string `json:"part"`
	Fault  string `json:"fault"` // the fault that asked for it, as --fault takes it
	Error  string `json:"error,omitempty"`
}

// Note (kind "note") is anything else that a reader of the report should know.
type Note struct {
	At
	Level string `json:"level"` // info, warn, error
	Text  string `json:"text"`
}

func (*Header) kind() string     { return "run" }
func (*Step) kind() string       { return "step" }
func (*Timeline) kind() string   { return "timeline" }
func (*Failure) kind() string    { return "failure" }
func (*Recovery) kind() string   { return "recovery" }
func (*View) kind() string       { return "view" }
func (*Checkpoint) kind() string { return "checkpoint" }
func (*Partial) kind() string    { return "partial" }
func (*Exposure) kind() string   { return "exposure" }
func (*Rework) kind() string     { return "rework" }
func (*Presence) kind() string   { return "presence" }
func (*Life) kind() string       { return "life" }
func (*Evaluation) kind() string { return "evaluation" }
func (*Fault) kind() string      { return "fault" }
func (*Note) kind() string       { return "note" }

// kinds has an event of each kind, to be read alone.
var kinds = []Event{&Step{}, &Header{}, &Timeline{}, &Failure{}, &Recovery{}, &View{}, &Checkpoint{}, &Partial{}, &Exposure{}, &Rework{}, &Presence{}, &Life{}, &Evaluation{}, &Fault{}, &Note{}}

// newEvent returns an empty event of the kind, or nil if this version knows no such kind.
func newEvent(kind string) Event {
	for _, e := range kinds {
		if e.kind() == kind {
			return reflect.New(reflect.TypeOf(e).Elem()).Interface().(Event)
		}
	}
	return nil
}

// appendEvent appends the line of e, with its newline.
func appendEvent(b []byte, e Event) ([]byte, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return b, fmt.Errorf("encode %s event: %w", e.kind(), err)
	}
	b = append(b, `{"kind":"`...)
	b = append(b, e.kind()...)
	b = append(b, `",`...)
	b = append(b, text[1:]...) // every event has at least its seconds, so a comma is right
	return append(b, '\n'), nil
}

// parseEvent reads one line. The event is nil for a kind that this version does not know.
func parseEvent(line []byte) (Event, error) {
	var head struct {
		Kind string `json:"kind"`
	}
	const prefix = `{"kind":"`
	if end := bytes.IndexByte(line[min(len(prefix), len(line)):], '"'); bytes.HasPrefix(line, []byte(prefix)) && end >= 0 {
		head.Kind = string(line[len(prefix) : len(prefix)+end]) // as we write it: saves reading the line twice
	} else if err := json.Unmarshal(line, &head); err != nil {
		return nil, err
	}
	e := newEvent(head.Kind)
	if e == nil {
		return nil, nil
	}
	if err := json.Unmarshal(line, e); err != nil {
		return nil, fmt.Errorf("%s event: %w", head.Kind, err)
	}
	return e, nil
}

// StepOf returns the event of a released step. Its time is left to the Recorder.
func StepOf(e kintsugi.StepEvent) *Step {
	s := &Step{
		Line: uint64(e.Line), Step: uint64(e.Step), Loss: Number(e.Loss),
		Counted: make([]uint32, len(e.Counted)),
		Workers: e.Workers, Quota: e.Quota, Reason: e.Reason,
		Staleness: e.Staleness, Late: e.Late, Kept: e.Kept, Dropped: e.Dropped, Examples: e.Examples, Norm: Number(e.Norm), Clipped: e.Clipped,
		WaitSeconds: round(e.Wait.Seconds()), ApplySeconds: round(e.Apply.Seconds()), SavingSeconds: round(e.Saving.Seconds()),
		PushedBytes: e.Pushed, PulledBytes: e.Pulled, Times: tookOf(e.Times),
	}
	each := make([]uint32, len(e.Counted))
	for i, p := range e.Counted {
		s.Counted[i] = uint32(p.Slot)
		if p.Version < e.Step {
			each[i] = uint32(e.Step - 1 - p.Version)
		}
	}
	if e.Staleness > 0 { // a line of a synchronous run says nothing of it
		s.Stalenesses = each
	}
	return s
}

// CheckpointOf returns the event of a checkpoint. Its time is left to the Recorder.
func CheckpointOf(e kintsugi.CheckpointEvent) *Checkpoint {
	return &Checkpoint{Line: uint64(e.Line), Step: uint64(e.Step), Manifest: e.Manifest, Bytes: e.Bytes,
		TookSeconds: round(e.Took.Seconds()), Error: e.Err, Running: e.Running, Shard: uint32(e.Shard), Chunks: e.Chunks, Distance: Number(e.Distance)}
}

// PartialOf returns the event of a shard that came back from the running checkpoint or a copy. Its time is left to the
// Recorder. With one replica shard i is what server i holds.
func PartialOf(e kintsugi.PartialEvent) *Partial {
	return &Partial{Part: fmt.Sprintf("server/%d", e.Shard), Shard: uint32(e.Shard), Line: uint64(e.Line), AdoptedStep: uint64(e.Step), Chunks: int(e.Chunks),
		OldestStep: uint64(e.Oldest), MeanAge: Number(float64(e.Age) / float64(e.Chunks)), Distance: Unknown(), ReworkSteps: Unknown()}
}

// ViewOf returns the event of a view. Its time is left to the Recorder.
func ViewOf(v kintsugi.View) *View {
	e := &View{Number: uint64(v.Number), Line: uint64(v.Line), Fence: uint64(v.Fence), Servers: make([]string, len(v.Servers)),
		Conductor: uint32(v.Conductor), Keeps: uint64(v.Keeps), Restore: v.Restore, RestoredStep: uint64(v.RestoreStep), Reason: v.Reason}
	for _, chain := range v.Chains {
		e.Heads = append(e.Heads, uint32(chain[0]))
	}
	for i, m := range v.Servers {
		e.Servers[i] = fmt.Sprintf("server/%d incarnation %d", m.Server, m.Incarnation)
	}
	return e
}

// round cuts a time in seconds to microseconds: the rest is noise, and costs bytes in every line.
func round(seconds float64) float64 { return math.Round(seconds*1e6) / 1e6 }
