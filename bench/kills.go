package bench

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
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
	"github.com/kintsugi-ml/kintsugi/server"
)

// Question: does it matter where a process dies? Every state of a server and of a worker is hit,
// and the coordinator at random steps. The claim that could be false: every run makes all its
// steps, exits with 0, and ends with a loss that undisturbed runs of other seeds would end with:
// mean ± 3 standard deviations. A partial restore is no exact one, and a short run feels it: there
// the claim is that no step is taken back, and the loss is shown. Where servers find their state
// outside of themselves, or shards have other replicas, no step is taken back, and whoever is
// killed but a worker, the run ends with the very parameters of the calm one with its seed, to the
// last bit.

// KillsConfig says what Kills measures.
type KillsConfig struct {
	Kills            int
	Seed             uint64 // of the choice of victims and occasions
	Calm             int    // undisturbed runs that say what is usual
	Servers, Workers int
	Steps            int
	Binary           string
	Recovery         string   // train's --recovery
	Partial          bool     // it restores only what was lost
	Exact            bool     // it takes nothing back
	Joins            bool     // a server that comes back catches up with others, and is killed at that too
	Only             string   // kill processes of this role only; "": of all
	Loaded           bool     // beside a process of a stranger that keeps all cores busy
	Flags            []string // for train, besides the ones above
	Progress         io.Writer
}

// KillsRow is one run with a kill.
type KillsRow struct {
	Name     string  `json:"name"`
	Seed     uint64  `json:"seed"`  // of the run
	Fault    string  `json:"fault"` // several are joined by "and"
	Part     string  `json:"part"`
	State    string  `json:"state"`
	Step     uint64  `json:"step"`             // newest released step when it died
	Recovery float64 `json:"recovery_seconds"` // until the next step
	Lost     uint64  `json:"lost_steps"`
	Steps    uint64  `json:"steps"`
	Loss     float64 `json:"final_loss"`
	Mean     float64 `json:"calm_mean"`
	Allowed  float64 `json:"allowed_deviation"` // 3 standard deviations of the calm runs

	// Of partial recoveries: shards that have outlived a line, and how many of them were not what
	// they were, to the bit; and what the loss cost in steps, as predicted and measured, with its
	// standard error.
	Kept      int           `json:"kept_shards"`
	Touched   int           `json:"touched_shards"`
	Predicted record.Number `json:"predicted_rework"`
	Measured  record.Number `json:"measured_rework"`
	Error     record.Number `json:"measured_error"`

	Damaged int `json:"damaged_places"` // in what was published, when the run has ended

	Bits     string `json:"parameters"`      // a sum over all bits of the final parameters
	CalmBits string `json:"calm_parameters"` // of the calm run with its seed; empty: there is none

	OK bool `json:"ok"`

	faults []string
}

// Kills runs the calm runs, then the others. A run that does not end in order is an error, one whose loss
// is unusual a row that is not OK.
func Kills(ctx context.Context, cfg KillsConfig) ([]KillsRow, error) {
	if cfg.Loaded {
		end, err := foreign(cfg.Binary)
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
	mean, deviation := meanDeviation(calm)
	var rows []KillsRow
	for i, row := range cfg.victims() {
		row.Mean, row.Allowed = mean, 3*deviation
		k, err := cfg.run(ctx, row.Seed, row.faults)
		if err != nil {
			return rows, fmt.Errorf("%s, seed %d: %w", row.Fault, row.Seed, err)
		}
		s := k.summary
		row.Steps, row.Loss = s.Steps, float64(s.FinalLoss)
		for _, f := range s.Failures {
			row.Step, row.Recovery, row.Lost = f.Step, float64(f.RecoverySeconds), f.LostSteps
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
// half of the kills took at most p50. Kills after the last step do not count; NaN: there are no
// others.
func Recoveries(rows []KillsRow) (p50, p99, longest float64) {
	var took []float64
	for _, r := range rows {
		if !math.IsNaN(r.Recovery) {
			took = append(took, r.Recovery)
		}
	}
	if len(took) == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	slices.Sort(took)
	at := func(percent int) float64 { return took[max(0, (len(took)*percent+99)/100-1)] }
	return at(50), at(99), took[len(took)-1]
}

// victims goes through all states of servers and workers in turn, and the coordinator, and draws who is
// hit and on which occasion. Every fault of a row is one of a process that dies.
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
		targets = append(targets, target{role: launch.Server}) // at any moment, whatever it does
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
		case string(server.Joining): // only who was killed before joins anything; it has to be back before the end
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

// stuckAfter is how long a run may take, where an undisturbed one takes a few seconds: one that has
// not ended by then never will.
const stuckAfter = 5 * time.Minute

var errStuck = fmt.Errorf("the run is stuck: it has not ended within %v", stuckAfter)

// killed is what a run came to.
type killed struct {
	summary       record.Summary
	kept, touched int // shards, see KillsRow
	damaged       int // places
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
	ctx, cancel := context.WithTimeoutCause(ctx, stuckAfter, errStuck)
	defer cancel()
	run, err := runTrainAnd(ctx, cfg.Binary, args, func(dir string, _ *os.ProcessState) (err error) {
		if k.kept, k.touched, err = Survivors(dir); err != nil {
			return err
		}
		report, err := ckpt.Verify(ctx, vfs.OS{}, filepath.Join(dir, "checkpoints"), nil)
		if err != nil {
			return err
		}
		k.damaged = len(report.Damage)
		_, k.bits, err = finalBits(ctx, dir)
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

// Foretold returns in how many runs with a partial recovery its cost was predicted, and in how many
// measured; and where it was both, the mean of each, and the standard error of what was measured.
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
