package cluster

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/internal/process"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/server"
)

// Question: does it matter in which state a process dies? Servers and workers are killed in every
// state, and the coordinator at random steps. The claim that could be false: every run makes all
// its steps, exits with 0, and ends with a loss that undisturbed runs with other seeds could have:
// within 3 standard deviations of their mean. A partial restore is not exact, which matters in a
// short run: there the claim is that no step is taken back, and the loss is only shown. If servers
// find their state outside their processes, or shards have other replicas, no step is taken back.
// Then a run ends with exactly the parameters of the undisturbed run with the same seed, to the
// last bit, unless a worker was killed.

// KillsConfig configures Kills.
type KillsConfig struct {
	Kills            int
	Seed             uint64 // for the choice of victims and moments
	Calm             int    // number of undisturbed runs, which show the usual losses
	Servers, Workers int
	Steps            int
	Binary           string
	Recovery         string   // value of train's --recovery
	Partial          bool     // it restores only lost chunks
	Exact            bool     // it takes no step back
	Joins            bool     // a server that comes back catches up with others, and is killed during that too
	Only             string   // kill only processes of this role; "": of all roles
	Loaded           bool     // while another program keeps all cores busy
	Flags            []string // for train, in addition to the above
	Progress         io.Writer
}

// KillsRow is one run with a kill.
type KillsRow struct {
	Name     string        `json:"name"`
	Seed     uint64        `json:"seed"`  // of the run
	Fault    string        `json:"fault"` // several faults are joined by "and"
	Part     string        `json:"part"`
	State    string        `json:"state"`
	Step     uint64        `json:"step"`             // newest released step when the process died
	Recovery record.Number `json:"recovery_seconds"` // to the next step; unknown if none followed
	Lost     uint64        `json:"lost_steps"`
	Steps    uint64        `json:"steps"`
	Loss     float64       `json:"final_loss"`
	Mean     float64       `json:"calm_mean"`
	Allowed  float64       `json:"allowed_deviation"` // 3 standard deviations of the calm runs

	// For partial recoveries: the number of shards that have survived a line, and how many of them
	// had changed, in any bit; and what the loss of a shard cost in steps, predicted and measured,
	// with the standard error.
	Kept      int           `json:"kept_shards"`
	Touched   int           `json:"touched_shards"`
	Predicted record.Number `json:"predicted_rework"`
	Measured  record.Number `json:"measured_rework"`
	Error     record.Number `json:"measured_error"`

	Damaged int `json:"damaged_places"` // in the published checkpoints at the end of the run

	Bits     string `json:"parameters"`      // checksum over all bits of the final parameters
	CalmBits string `json:"calm_parameters"` // of the calm run with the same seed; empty: none

	OK bool `json:"ok"`

	faults []string
}

// Kills makes the calm runs, then the others. A run that does not end in an orderly way is an
// error; if its loss is unusual, its row is not OK.
func Kills(ctx context.Context, cfg KillsConfig) ([]KillsRow, error) {
	if cfg.Loaded {
		end, err := process.KeepBusy(cfg.Binary)
		if err != nil {
			return nil, err
		}
		defer end()
	}
	var calm []float64
	var calmBits []string
	for seed := range cfg.Calm {
		c, err := cfg.run(ctx, uint64(seed+1), nil)
		if err != nil {
			return nil, err
		}
		calm, calmBits = append(calm, float64(c.summary.FinalLoss)), append(calmBits, c.bits)
		fmt.Fprintf(cfg.Progress, "calm run %d of %d: loss %.5f, parameters %s\n", seed+1, cfg.Calm, calm[seed], c.bits)
	}
	mean, deviation := bench.MeanDeviation(calm)
	var rows []KillsRow
	for i, row := range cfg.victims() {
		row.Mean, row.Allowed = mean, 3*float64(deviation)
		k, err := cfg.run(ctx, row.Seed, row.faults)
		if err != nil {
			return rows, fmt.Errorf("%s, seed %d: %w", row.Fault, row.Seed, err)
		}
		s := k.summary
		row.Steps, row.Loss = s.Steps, float64(s.FinalLoss)
		for _, f := range s.Failures {
			row.Step, row.Recovery, row.Lost = f.Step, f.RecoverySeconds, f.LostSteps
			row.Predicted, row.Measured, row.Error = f.PartialRework, f.MeasuredRework, f.MeasuredError
		}
		row.OK = row.Steps == uint64(cfg.Steps) && len(s.Failures) >= len(row.faults)
		if cfg.Partial || cfg.Exact {
			row.OK = row.OK && row.Lost == 0
		}
		row.Kept, row.Touched, row.Bits, row.Damaged = k.kept, k.touched, k.bits, k.damaged
		row.OK = row.OK && row.Touched == 0 && row.Damaged == 0
		if cfg.Exact && !strings.HasPrefix(row.Part, "worker/") {
			row.CalmBits = calmBits[row.Seed-1]
			row.OK = row.OK && row.Bits == row.CalmBits
		} else if !cfg.Partial {
			row.OK = row.OK && row.Loss >= mean-row.Allowed && row.Loss <= mean+row.Allowed
		}
		fmt.Fprintf(cfg.Progress, "%d of %d, seed %d: %s: at step %d, next step after %.2f s, loss %.5f, ok %v\n",
			i+1, cfg.Kills, row.Seed, row.Fault, row.Step, row.Recovery, row.Loss, row.OK)
		rows = append(rows, row)
	}
	return rows, nil
}

// Recoveries returns two quantiles of the seconds from a kill to the next step, and the longest:
// half of the kills took at most p50. Kills after the last step are left out. If there are no
// others, they are unknown.
func Recoveries(rows []KillsRow) (p50, p99, longest record.Number) {
	var took []float64
	for _, r := range rows {
		if r.Recovery.Known() {
			took = append(took, float64(r.Recovery))
		}
	}
	if len(took) == 0 {
		return record.Unknown(), record.Unknown(), record.Unknown()
	}
	slices.Sort(took)
	at := func(percent int) record.Number { return record.Number(took[max(0, (len(took)*percent+99)/100-1)]) }
	return at(50), at(99), at(100)
}

// victims goes through all states of servers and workers in turn, and the coordinator, and draws
// the victim and the moment. All faults of one row kill a process.
func (cfg *KillsConfig) victims() []KillsRow {
	rng := rand.New(rand.NewPCG(cfg.Seed, 1))
	type target struct {
		role  launch.Role
		state string
	}
	var targets []target
	for _, s := range launch.ServerStates() {
		if s == string(server.Joining) && !cfg.Joins {
			continue
		}
		targets = append(targets, target{launch.Server, s})
	}
	for _, s := range launch.WorkerStates() {
		targets = append(targets, target{launch.Worker, s})
	}
	targets = append(targets, target{role: launch.Coordinator})
	if cfg.Exact {
		targets = append(targets, target{role: launch.Server}) // at any moment, in any state
	}
	targets = slices.DeleteFunc(targets, func(t target) bool { return cfg.Only != "" && t.role.String() != cfg.Only })
	var rows []KillsRow
	for i := range cfg.Kills {
		t := targets[i%len(targets)]
		f := launch.Fault{Kind: launch.Kill, Part: launch.Part{Role: t.role}}
		switch t.role {
		case launch.Server:
			f.Part.Index = rng.IntN(cfg.Servers)
		case launch.Worker:
			f.Part.Index = rng.IntN(cfg.Workers)
		}
		row := KillsRow{Name: "kills", Seed: 1000 + cfg.Seed*10_000 + uint64(i), State: t.state}
		switch t.state {
		case "":
			f.At.Step = kintsugi.Step(1 + rng.IntN(cfg.Steps*3/4))
			if row.State = "any"; t.role == launch.Coordinator {
				row.State = "idle"
			}
		case string(server.Joining): // only a server that was killed before joins; it must be back before the end
			before := f
			before.At.Step = kintsugi.Step(1 + rng.IntN(cfg.Steps/8))
			row.faults = append(row.faults, before.String())
			f.At.State, f.At.Times = t.state, 1
		case "saving":
			f.At.State, f.At.Times = t.state, 1+rng.IntN(4)
		case "naming":
			f.Part.Index = 0 // only the conductor names checkpoints
			f.At.State, f.At.Times = t.state, 1+rng.IntN(4)
		default:
			f.At.State, f.At.Times = t.state, 1+rng.IntN(cfg.Steps*3/4)
		}
		if cfg.Exact {
			row.Seed = 1 + uint64(i%cfg.Calm)
		}
		row.faults = append(row.faults, f.String())
		row.Fault, row.Part = strings.Join(row.faults, " and "), f.Part.String()
		rows = append(rows, row)
	}
	return rows
}

// killed is the result of a run.
type killed struct {
	summary       record.Summary
	kept, touched int // number of shards, see KillsRow
	damaged       int // number of places
	bits          string
}

func (cfg *KillsConfig) run(ctx context.Context, seed uint64, faults []string) (k killed, err error) {
	args := append([]string{"--seed", strconv.FormatUint(seed, 10), "--steps", strconv.Itoa(cfg.Steps),
		"--servers", strconv.Itoa(cfg.Servers), "--workers", strconv.Itoa(cfg.Workers), "--eval-every", strconv.Itoa(2 * cfg.Steps),
		"--recovery", cfg.Recovery}, cfg.Flags...)
	for _, f := range faults {
		args = append(args, "--fault", f)
	}
	if cfg.Partial {
		args = append(args, "--log-level", "info")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, process.StuckAfter, process.ErrStuck)
	defer cancel()
	run, err := process.TrainAnd(ctx, cfg.Binary, args, func(dir string, _ *os.ProcessState) (err error) {
		if k.kept, k.touched, err = Survivors(dir); err != nil {
			return err
		}
		k.bits, k.damaged, err = process.LastSaved(ctx, vfs.OS{}, filepath.Join(dir, record.Checkpoints))
		return err
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if err != nil {
		return k, err
	}
	k.summary = run.Summary
	return k, nil
}

// Foretold returns the number of runs with a partial recovery, how many of them had a predicted and
// how many a measured cost; and, for runs with both, the means and the standard error of the
// measurement.
func Foretold(rows []KillsRow) (runs, foretold, told int, predicted, measured, deviation float64) {
	both := 0.0
	for _, r := range rows {
		if r.Kept == 0 {
			continue
		}
		runs++
		if r.Predicted.Known() {
			foretold++
		}
		if r.Measured.Known() {
			told++
		}
		if r.Predicted.Known() && r.Measured.Known() {
			both++
			predicted, measured, deviation = predicted+float64(r.Predicted), measured+float64(r.Measured), math.Hypot(deviation, float64(r.Error))
		}
	}
	return runs, foretold, told, predicted / both, measured / both, deviation / both
}

// States says how often each state was hit, in the order of the table.
func States(rows []KillsRow) string {
	var states []string
	n := make(map[string]int)
	for _, r := range rows {
		role, _, _ := strings.Cut(r.Part, "/")
		state := role + " " + r.State
		if n[state]++; n[state] == 1 {
			states = append(states, state)
		}
	}
	for i, s := range states {
		states[i] = fmt.Sprintf("%s %d", s, n[s])
	}
	return strings.Join(states, ", ")
}
