package failure

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi/bench/internal/process"
	"github.com/kintsugi-ml/kintsugi/internal/cost"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Trial is the result of one run of the grid.
type Trial struct {
	Model   string `json:"model"`
	Preset  string `json:"preset"`
	Async   bool   `json:"async"` // every gradient is a step
	Workers int    `json:"workers"`
	Kills   int    `json:"kills"`
	Seed    uint64 `json:"seed"`
	Args    string `json:"args"` // of train; a result with other arguments is not used

	Curve  []Point       `json:"curve"`
	Deaths []Death       `json:"deaths"`
	Final  record.Number `json:"final_accuracy"` // of the last version

	Seconds     float64       `json:"seconds"`        // from the first step to the last
	Counted     uint64        `json:"counted_pushes"` // by steps, including lost ones
	Computed    uint64        `json:"gradients"`      // computed by workers
	Kept        uint64        `json:"kept_gradients"` // computed while servers were away, and counted
	Dropped     uint64        `json:"dropped_gradients"`
	Redone      uint64        `json:"redone_steps"`
	Busy        record.Number `json:"busy_fraction"`           // of the workers' time
	BusyOutage  record.Number `json:"busy_fraction_in_outage"` // the same while no step was possible
	NodeSeconds float64       `json:"node_seconds"`            // of servers and workers
	Cost        *cost.Bill    `json:"cost"`                    // of the whole run, from its first process to its last
	ServerMB    record.Number `json:"server_megabytes"`        // peak memory of all servers together, including memory outside their processes
	WorkerMB    record.Number `json:"worker_megabytes"`
}

// Point is an evaluation, at the time when its version was released.
type Point struct {
	Counted  uint64  `json:"counted_pushes"` // until then, including those of lost steps
	Seconds  float64 `json:"seconds"`        // since the first step
	Accuracy float64 `json:"accuracy"`
}

// Death is a kill of one or several servers.
type Death struct {
	Counted uint64        `json:"counted_pushes"` // until then
	Seconds float64       `json:"seconds"`
	Before  record.Number `json:"accuracy_before"` // last evaluation before it
	After   record.Number `json:"accuracy_after"`  // first one after it
	Gap     record.Number `json:"gap_seconds"`     // from the kill to the next step
	Lost    uint64        `json:"lost_steps"`
	Pending uint64        `json:"pending_gradients"` // computed during the outage
}

// args returns the flags of train for a cell.
func (cfg *Config) args(c Cell) []string {
	consistency := "bsp"
	switch summed := c.Model == "cnn:relu-logits"; {
	case c.Preset.Async && summed:
		consistency = "async:constant"
	case c.Preset.Async:
		consistency = "async"
	case summed:
		consistency = "bsp:sum"
	}
	recovery := c.Preset.Recovery
	if c.Preset.Copies {
		recovery = fmt.Sprintf("%s,%d", recovery, c.steps(cfg.SaveEvery))
	}
	args := []string{"--model", c.Model, "--recovery", recovery, "--consistency", consistency, "--servers", strconv.Itoa(c.Preset.Servers),
		"--workers", strconv.Itoa(c.Workers), "--seed", strconv.FormatUint(c.Seed, 10), "--steps", strconv.Itoa(c.steps(cfg.Updates)),
		"--optimizer", "sgd", "--learning-rate", "0.01", "--decay", "constant", "--batch", "32",
		"--checkpoint-every", strconv.Itoa(c.steps(cfg.SaveEvery)), "--eval-every", strconv.Itoa(c.steps(max(1, cfg.Updates/20))),
		"--gradient-time", cfg.GradientTime.String()}
	args = append(append(args, c.Preset.Flags...), cfg.Flags...)
	if cfg.Outage >= 30*time.Second { // the question is what workers do until the servers are back
		args = append(args, "--move-after", "never")
	}
	for k := range c.Kills {
		first := 0
		if c.Preset.Copies { // the next server has taken over the heads of the last one
			first = k % c.Preset.Servers
		}
		for s := range max(1, c.Preset.Die) {
			args = append(args, "--fault", fmt.Sprintf("kill server/%d at step %d for %v", first+s, c.steps(cfg.KillAt[k]), cfg.Outage))
		}
	}
	return args
}

func (cfg *Config) file(name string) string {
	return filepath.Join(cfg.cellsDir(), name+".json")
}

// load returns the result of a cell from an earlier call with the same arguments, or nil.
func (cfg *Config) load(c Cell) *Trial {
	text, err := os.ReadFile(cfg.file(c.Name()))
	r := &Trial{}
	if err != nil || json.Unmarshal(text, r) != nil || r.Args != strings.Join(cfg.args(c), " ") {
		return nil
	}
	return r
}

func (cfg *Config) save(r *Trial) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	c := Cell{Model: r.Model, Preset: Preset{Name: r.Preset}, Workers: r.Workers, Kills: r.Kills, Seed: r.Seed}
	name := cfg.file(c.Name())
	if err := os.WriteFile(name+".new", append(text, '\n'), 0o666); err != nil {
		return fmt.Errorf("keep a result: %w", err)
	}
	return os.Rename(name+".new", name)
}

// run makes one run.
func (cfg *Config) run(ctx context.Context, c Cell) (*Trial, error) {
	dir, err := os.MkdirTemp("", "kintsugi-failure-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "run")
	expected := startSeconds + float64(c.steps(cfg.Updates))*(cfg.GradientTime.Seconds()+updateSeconds) + float64(c.Kills)*cfg.Outage.Seconds()
	ctx, cancel := context.WithTimeout(ctx, time.Minute+time.Duration(5*expected*float64(time.Second)))
	defer cancel()
	args := cfg.args(c)
	train, err := process.StartTrain(cfg.Binary, out, args)
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	watched := make(chan memory, 1)
	go func() { watched <- cfg.watch(watching, c, train.Cmd.Process.Pid, out) }()
	err = train.Wait(ctx)
	stop()
	most := <-watched
	if err == nil {
		err = most.err
	}
	if err != nil {
		return nil, fmt.Errorf("train %s: %w\n%s", strings.Join(args, " "), err, train.Printed.Bytes())
	}
	run, err := record.ReadRun(out)
	if err != nil {
		return nil, err
	}
	r := newTrial(run, c)
	r.Args, r.ServerMB, r.WorkerMB = strings.Join(args, " "), megabytes(most.servers), megabytes(most.workers)
	return r, nil
}

// newTrial extracts the results from a run.
func newTrial(run *record.Run, c Cell) *Trial {
	r := &Trial{Model: c.Model, Preset: c.Preset.Name, Async: c.Preset.Async, Workers: c.Workers, Kills: c.Kills, Seed: c.Seed, Final: record.Unknown(),
		Busy: record.Unknown(), BusyOutage: record.Unknown(), Kept: run.Summary.KeptGradients, Dropped: run.Summary.DroppedGradients, Redone: run.Summary.ReworkSteps,
		Cost: run.Summary.Cost}
	if len(run.Steps) == 0 {
		return r
	}
	begin, last := run.Steps[0].Seconds, run.Steps[len(run.Steps)-1]
	r.Seconds, r.Computed = last.Seconds-begin, r.Dropped
	r.NodeSeconds = r.Seconds * float64(c.Workers+c.Preset.Servers)
	type version struct{ line, step uint64 }
	released := make(map[version]Point)
	computing, timed := 0.0, 0
	for _, s := range run.Steps {
		r.Counted += uint64(len(s.Counted))
		r.Computed += uint64(len(s.Counted)) + uint64(s.Late)
		if s.Kept > 0 { // one of the counted pushes is their mean
			r.Computed += uint64(s.Kept) - 1
		}
		for _, t := range s.Times {
			if t.Compute > 0 {
				computing, timed = computing+t.Compute.Seconds(), timed+1
			}
		}
		released[version{s.Line, s.Step}] = Point{Counted: r.Counted, Seconds: s.Seconds - begin}
	}
	for _, e := range run.Evaluations {
		if p, ok := released[version{e.Line, e.Step}]; ok && e.Accuracy.Known() {
			p.Accuracy = float64(e.Accuracy)
			r.Curve = append(r.Curve, p)
			if e.Line == last.Line && e.Step == last.Step {
				r.Final = e.Accuracy
			}
		}
	}
	slices.SortStableFunc(r.Curve, func(a, b Point) int { return int(a.Counted) - int(b.Counted) })
	r.die(run, begin)
	if each := computing / float64(max(1, timed)); timed > 0 && r.Seconds > 0 {
		r.Busy = record.Number(min(1, (computing+float64(r.Kept+r.Dropped)*each)/(r.Seconds*float64(c.Workers))))
		away, kept := 0.0, 0.0
		for _, d := range r.Deaths {
			if d.Gap.Known() {
				away, kept = away+float64(d.Gap), kept+float64(d.Pending)*each
			}
		}
		if away > 0 {
			r.BusyOutage = record.Number(min(1, kept/(away*float64(c.Workers))))
		}
	}
	return r
}

// die adds the deaths. Servers that are killed within one second count as one kill.
func (r *Trial) die(run *record.Run, begin float64) {
	for _, f := range run.Summary.Failures {
		if !f.Injected || !strings.HasPrefix(f.Part, "server/") {
			continue
		}
		at := f.Seconds - begin
		if n := len(r.Deaths); n > 0 && at-r.Deaths[n-1].Seconds < 1 {
			d := &r.Deaths[n-1]
			d.Lost += f.LostSteps
			if f.RecoverySeconds.Known() {
				d.Gap = max(d.Gap, f.RecoverySeconds)
			}
			continue
		}
		r.Deaths = append(r.Deaths, Death{Seconds: at, Gap: f.RecoverySeconds, Lost: f.LostSteps, Before: record.Unknown(), After: record.Unknown()})
	}
	for i := range r.Deaths {
		d := &r.Deaths[i]
		end := math.Inf(1)
		if i+1 < len(r.Deaths) {
			end = r.Deaths[i+1].Seconds
		}
		for _, p := range r.Curve {
			switch {
			case p.Seconds <= d.Seconds:
				d.Before = record.Number(p.Accuracy)
			case p.Seconds < end && !d.After.Known():
				d.After = record.Number(p.Accuracy)
			}
		}
		for _, s := range run.Steps {
			switch at := s.Seconds - begin; {
			case at <= d.Seconds:
				d.Counted += uint64(len(s.Counted))
			case at < end:
				d.Pending += uint64(s.Kept) + uint64(s.Dropped)
			}
		}
	}
}
