package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Format is the version of events.jsonl and summary.json that this package writes. Readers refuse
// later versions.
const Format = 1

// Number is a float64 that may be NaN or infinite. JSON cannot express these, so they are written
// as null, and read again as NaN.
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

// Format implements fmt.Formatter: an unknown number is a dash, whatever the verb.
func (n Number) Format(to fmt.State, verb rune) {
	if !n.Known() {
		_, _ = io.WriteString(to, "–") // as for other verbs, who writes knows of errors
		return
	}
	fmt.Fprintf(to, fmt.FormatString(to, verb), float64(n))
}

// Unknown returns the Number for a quantity that was not measured.
func Unknown() Number { return Number(math.NaN()) }

// At is the time of an event. Every event begins with it.
type At struct {
	// Seconds since the start of the run, by the clock of the launcher's machine. Between the end
	// of a run and its resumption no time passes.
	Seconds float64 `json:"seconds"`
}

func (a *At) at() *At { return a }

// Event is one line of events.jsonl: a pointer to one of the structs below.
type Event interface {
	kind() string
	at() *At
}

// Header (kind "run") describes the run. It is the first line, and appears again each time the run
// is resumed.
type Header struct {
	At
	Format      int       `json:"format"`
	Start       time.Time `json:"start"`
	Model       string    `json:"model"`
	Parameters  int       `json:"parameters"`
	Data        string    `json:"data"`
	LocalSteps  int       `json:"local_steps,omitempty"` // batches of a gradient; 0: a record that does not say, of one
	Consistency string    `json:"consistency"`
	Recovery    string    `json:"recovery"`
	Codec       string    `json:"codec"`
	Feedback    bool      `json:"error_feedback"` // workers keep the residual of the codec
	Device      string    `json:"device"`
	Servers     int       `json:"servers"`
	Workers     int       `json:"workers"`
	Replicas    int       `json:"replicas"`
	Steps       uint64    `json:"steps"`            // number of steps the run was started with
	Prices      string    `json:"prices,omitempty"` // hourly price of a node, in the format of package cost; "": not known
	Version     string    `json:"version"`
	Resumed     bool      `json:"resumed,omitempty"`
	WentOn      bool      `json:"went_on,omitempty"` // if resumed: the run did not stop meanwhile, only its record did
}

// Step (kind "step") is a released step.
type Step struct {
	At
	Line          uint64   `json:"line"`
	Step          uint64   `json:"step"`
	Loss          Number   `json:"loss"`    // mean loss of the counted gradients, weighted by examples
	Counted       []uint32 `json:"counted"` // slots, one for each counted gradient, ascending
	Workers       uint32   `json:"workers"` // number of members
	Quota         uint32   `json:"quota"`
	Reason        string   `json:"reason,omitempty"`            // for the quota, when it changed
	Staleness     uint32   `json:"staleness_steps"`             // largest among the counted gradients
	Stalenesses   []uint32 `json:"staleness_each,omitempty"`    // of each counted gradient; none: all are fresh
	Late          uint32   `json:"late_gradients"`              // refused since the previous step
	Kept          uint32   `json:"kept_gradients,omitempty"`    // computed while servers were away, and counted in this step
	Dropped       uint32   `json:"dropped_gradients,omitempty"` // computed while servers were away, and dropped since the previous step
	Examples      uint32   `json:"examples"`
	Norm          Number   `json:"gradient_norm"`               // of the mean gradient, as applied
	Clipped       uint32   `json:"clipped_gradients,omitempty"` // counted gradients that were clipped
	WaitSeconds   float64  `json:"wait_seconds"`                // from the previous release to the commit
	ApplySeconds  float64  `json:"apply_seconds"`               // from the commit to the release
	SavingSeconds float64  `json:"saving_seconds,omitempty"`    // how long the slowest shard waited for the checkpoint
	PushedBytes   uint64   `json:"pushed_bytes"`                // since the previous step
	PulledBytes   uint64   `json:"pulled_bytes"`                // since the previous step
	Times         []Took   `json:"times,omitempty"`
}

// Timeline (kind "timeline") says what the time of one step was spent on. It is recorded for some
// hundred steps of a run. Times are in seconds.
type Timeline struct {
	At
	Line         uint64   `json:"line"`
	Step         uint64   `json:"step"`
	WaitSeconds  float64  `json:"wait_seconds"`  // from the previous release to the commit
	ApplySeconds float64  `json:"apply_seconds"` // from the commit to the release
	Workers      []Round  `json:"workers"`
	Shards       []Stable `json:"shards"`
}

// Failure (kind "failure") is the death of a process, or its absence for another reason. Its time
// is that of its beginning: when the signal was sent, if a fault sent one or the death was
// announced, and otherwise when the death was noticed.
type Failure struct {
	At
	Part        string `json:"part"`  // such as "server/0"
	Cause       string `json:"cause"` // in words
	Incarnation int    `json:"incarnation"`
	Injected    bool   `json:"injected"`            // by a fault
	Announced   bool   `json:"announced,omitempty"` // the process had notice, and has handed over what others need

	// SeenSeconds is when the process was certainly gone. Between the signal and this moment it may
	// still have taken part in a step; such a step is no sign of recovery. Zero: at Seconds.
	SeenSeconds float64 `json:"seen_seconds,omitempty"`

	// Step is the newest released step at that time. A Recorder fills it in.
	Step uint64 `json:"step"`
}

// Recovery (kind "recovery") says what a failure cost. It is recorded when steps go on, and again,
// if steps were lost, when they have been repeated. A Recorder adds it.
type Recovery struct {
	At
	Part            string  `json:"part"`
	FailureSeconds  float64 `json:"failure_seconds"` // start of the failure
	RecoverySeconds float64 `json:"recovery_seconds"`
	RestoredStep    uint64  `json:"restored_step"`
	LostSteps       uint64  `json:"lost_steps"`
	CaughtUpSeconds Number  `json:"caught_up_seconds"` // null: not yet caught up
}

// View (kind "view") is a new configuration of the servers.
type View struct {
	At
	Number       uint64   `json:"number"`
	Line         uint64   `json:"line"`
	Fence        uint64   `json:"fence"`
	Servers      []string `json:"servers"` // by place, such as "server/0 incarnation 2"
	Conductor    uint32   `json:"conductor"`
	Heads        []uint32 `json:"heads,omitempty"`   // by shard: the server that heads it
	Keeps        uint64   `json:"keeps,omitempty"`   // the line continues from the state that servers have in memory of lines from this one on
	Restore      string   `json:"restore,omitempty"` // manifest that the line starts from
	RestoredStep uint64   `json:"restored_step"`
	Reason       string   `json:"reason"`
}

// Checkpoint (kind "checkpoint") is one of three: a published run manifest, chunks of one shard
// that were saved in the running checkpoint, or a save that failed.
type Checkpoint struct {
	At
	Line        uint64  `json:"line"`
	Step        uint64  `json:"step"`
	Running     bool    `json:"running,omitempty"`  // in the running checkpoint
	Shard       uint32  `json:"shard,omitempty"`    // if running
	Chunks      uint32  `json:"chunks,omitempty"`   // if running
	Distance    Number  `json:"distance,omitempty"` // if running: ‖x − saved‖² of the shard after the save
	Manifest    string  `json:"manifest"`
	Bytes       uint64  `json:"bytes"`
	TookSeconds float64 `json:"took_seconds"`
	Error       string  `json:"error,omitempty"`
}

// Partial (kind "partial") is a partial recovery: lost chunks came back with older values, from the
// running checkpoint or from a copy on another replica, while the others stayed. So no step was
// lost, but some progress was. Part is the process that had these chunks.
type Partial struct {
	At
	Part        string `json:"part"`
	Shard       uint32 `json:"shard"`
	Line        uint64 `json:"line"`         // the line that begins with it
	AdoptedStep uint64 `json:"adopted_step"` // step at which the line begins
	Chunks      int    `json:"chunks"`       // number of restored chunks
	OldestStep  uint64 `json:"oldest_step"`
	MeanAge     Number `json:"mean_age_steps"` // of the chunks; null: there are none
	Distance    Number `json:"distance"`       // ‖x − saved‖² of the shard at its last save; null: not known
	ReworkSteps Number `json:"rework_steps"`   // estimate; null: none
}

// Exposure (kind "exposure") says what the loss of each server would cost now. It is recorded every
// few seconds.
type Exposure struct {
	At
	Line        uint64       `json:"line"`
	Step        uint64       `json:"step"`
	Calibration float64      `json:"calibration"` // factor of the predictions
	Failures    int          `json:"failures"`    // number of failures that the calibration is based on
	Servers     []ServerCost `json:"servers"`

	// AgeSeconds and AgeSteps are the age of the newest full checkpoint, or of the run if there is
	// none.
	AgeSeconds Number `json:"checkpoint_age_seconds"`
	AgeSteps   Number `json:"checkpoint_age_steps"`
}

// AtRisk returns how many steps the loss of one server would cost, of the one whose would cost most.
// It is not known if it is not known of some server, which may be that one.
func (e *Exposure) AtRisk() Number {
	worst := Number(0)
	for _, s := range e.Servers {
		if !s.Steps.Known() {
			return Unknown()
		}
		worst = max(worst, s.Steps)
	}
	return worst
}

// ServerCost is what the loss of one server would cost.
type ServerCost struct {
	Part     string `json:"part"`
	Steps    Number `json:"steps"`          // null: not known
	Seconds  Number `json:"seconds"`        // for those steps and the time until training goes on
	Distance Number `json:"distance"`       // ‖x − saved‖² of its shard; null: not known, or irrelevant
	MeanAge  Number `json:"mean_age_steps"` // of its chunks in the running checkpoint; null: there is none
	Why      string `json:"why"`
}

// Rework (kind "rework") says what a partial recovery has cost. It is recorded when enough steps
// have been released after it.
type Rework struct {
	At
	Part        string  `json:"part"`
	Step        uint64  `json:"step"`            // step at which the line began
	Predicted   Number  `json:"predicted_steps"` // null: not predicted
	Measured    Number  `json:"measured_steps"`  // by how many steps the losses after it lag behind
	Deviation   Number  `json:"standard_error"`  // of Measured, in steps
	Calibration float64 `json:"calibration"`     // factor of the predictions from now on
	Failures    int     `json:"failures"`        // number of failures that the calibration is based on
}

// Presence (kind "presence") is a process that a monitor has found in its place. A launcher starts
// the processes itself and writes no such event. From it, a monitor that continues the record knows
// which processes were there before.
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
	PeakBytes    uint64  `json:"peak_bytes"` // peak memory, or nearly; 0: not known
	End          string  `json:"end"`        // how it ended, in words
}

// Evaluation (kind "evaluation") is an evaluation of a version on data that are not trained on.
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
	Fault  string `json:"fault"` // the fault in the syntax of --fault
	Error  string `json:"error,omitempty"`
}

// Note (kind "note") is anything else that readers of the report should know.
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

// kinds has an empty event of each kind. It must not be changed.
var kinds = []Event{&Step{}, &Header{}, &Timeline{}, &Failure{}, &Recovery{}, &View{}, &Checkpoint{}, &Partial{}, &Exposure{}, &Rework{}, &Presence{}, &Life{}, &Evaluation{}, &Fault{}, &Note{}}

// newEvent returns an empty event of the kind, or nil if this version does not know the kind.
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
	b = append(b, text[1:]...) // every event has at least its seconds, so the comma is correct
	return append(b, '\n'), nil
}

// parseEvent parses one line. The event is nil if this version does not know its kind.
func parseEvent(line []byte) (Event, error) {
	var head struct {
		Kind string `json:"kind"`
	}
	const prefix = `{"kind":"`
	if end := bytes.IndexByte(line[min(len(prefix), len(line)):], '"'); bytes.HasPrefix(line, []byte(prefix)) && end >= 0 {
		head.Kind = string(line[len(prefix) : len(prefix)+end]) // the form in which we write it, so that the line need not be parsed twice
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
	if s, ok := e.(*Step); ok && s.Step == 0 { // the one before it would be 2⁶⁴ − 1
		return nil, errors.New("step event: steps are counted from 1")
	}
	return e, nil
}

// StepOf returns the event of a released step. The Recorder sets its time.
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
	if e.Staleness > 0 { // lines of a synchronous run leave it out
		s.Stalenesses = each
	}
	return s
}

// CheckpointOf returns the event of a checkpoint. The Recorder sets its time.
func CheckpointOf(e kintsugi.CheckpointEvent) *Checkpoint {
	return &Checkpoint{Line: uint64(e.Line), Step: uint64(e.Step), Manifest: e.Manifest, Bytes: e.Bytes,
		TookSeconds: round(e.Took.Seconds()), Error: e.Err, Running: e.Running, Shard: uint32(e.Shard), Chunks: e.Chunks, Distance: Number(e.Distance)}
}

// PartialOf returns the event of a shard that came back from the running checkpoint or a copy. The
// Recorder sets its time. With one replica, server i holds shard i.
func PartialOf(e kintsugi.PartialEvent) *Partial {
	return &Partial{Part: fmt.Sprintf("server/%d", e.Shard), Shard: uint32(e.Shard), Line: uint64(e.Line), AdoptedStep: uint64(e.Step), Chunks: int(e.Chunks),
		OldestStep: uint64(e.Oldest), MeanAge: Number(float64(e.Age) / float64(e.Chunks)), Distance: Unknown(), ReworkSteps: Unknown()}
}

// ViewOf returns the event of a view. The Recorder sets its time.
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

// round rounds a time in seconds to microseconds: more digits would be noise, and cost bytes in
// every line.
func round(seconds float64) float64 { return math.Round(seconds*1e6) / 1e6 }
