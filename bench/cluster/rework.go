package cluster

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/internal/process"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Question: what is partial recovery worth in real runs? The experiment of reproduce scar is in one
// process, where a save is complete as soon as it is decided. Here servers are processes, saves are
// writes to a disk, and a server is killed with SIGKILL. The claims that could be false: restoring
// only the lost shard costs fewer steps than going back to a checkpoint; extrapolated (coasting)
// saved values cost even fewer; and a replica costs none.
//
// Rework is the number of steps that are taken back, plus the number of steps by which the loss on
// the test set lags behind that of the undisturbed run with the same seed. Both runs have the same
// batches in the same steps. So they are compared step by step, and most of the noise of batches is
// in both: the lag is the mean difference, divided by the decrease per step of the undisturbed
// losses of all seeds. It may be negative, and nothing is clipped.

// ReworkConfig configures Rework.
type ReworkConfig struct {
	Models           []string
	Recoveries       []string // values of train's --recovery; the first is the baseline
	Seeds            int      // number of runs of each, besides an undisturbed one
	Period           int      // C: steps between two full checkpoints; a run has reworkPeriods of them
	Servers, Workers int
	Bytes            map[string]float64 // of each model and its optimizer's state
	Binary           string
	Flags            []string // for train, in addition to the above
	Progress         io.Writer
}

// The phases of a run, in periods: a server is killed half a period after reworkKill, when a full
// checkpoint has its mean age. Losses are compared from reworkFrom to the end.
const reworkKill, reworkFrom, reworkPeriods = 6, 8, 11

// reworkEvaluations is the number of evaluations in a period. A version that is not evaluated in
// both runs is compared with its neighbours, and then the noise of batches matters. More
// evaluations would not be finished in time, and would be skipped.
const reworkEvaluations = 4

// ReworkRow is one recovery of one model. Intervals are 95 % intervals of Student's t over the
// seeds.
type ReworkRow struct {
	Name     string `json:"name"`
	Model    string `json:"model"`
	Recovery string `json:"recovery"`
	Servers  int    `json:"servers"` // one of them is killed
	Period   int    `json:"period"`
	Seeds    int    `json:"seeds"`

	Rework    record.Number `json:"rework"` // mean, in steps
	Low       record.Number `json:"rework_low"`
	High      record.Number `json:"rework_high"`
	Saved     record.Number `json:"saved_steps"` // compared with the baseline, seed by seed
	SavedLow  record.Number `json:"saved_low"`
	SavedHigh record.Number `json:"saved_high"`
	Reduction record.Number `json:"reduction"` // 1 − Σrework/Σbaseline
	Worst     record.Number `json:"rework_max"`

	Lost      record.Number `json:"lost_steps"`        // steps taken back, mean
	Age       record.Number `json:"mean_age_steps"`    // of chunks that came back alone; null: none did
	Predicted record.Number `json:"predicted_rework"`  // by the uncalibrated ledger of the run, mean over runs where it was known
	Known     int           `json:"predicted_in_runs"` // number of runs where it was known
	Models    record.Number `json:"models_in_c_steps"` // number of models' worth of bytes saved per C steps until the kill, mean
	Outage    record.Number `json:"recovery_seconds"`  // from the kill to the next step, median

	Trials []ReworkTrial `json:"trials"`
}

// ReworkTrial is one run with a kill.
type ReworkTrial struct {
	Seed      uint64        `json:"seed"`
	Fault     string        `json:"fault"`
	Step      uint64        `json:"step"`       // newest released step when the server died
	Above     float64       `json:"loss_above"` // difference to the undisturbed run, mean over versions
	Rework    float64       `json:"rework"`
	Lost      uint64        `json:"lost_steps"`
	Age       record.Number `json:"mean_age_steps"`
	Predicted record.Number `json:"predicted_rework"`
	Models    float64       `json:"models_in_c_steps"`
	Outage    record.Number `json:"recovery_seconds"`
}

// Rework makes all runs, seed by seed, so that a machine that slows down slows all of them.
func Rework(ctx context.Context, cfg ReworkConfig) ([]ReworkRow, error) {
	var rows []ReworkRow
	for _, model := range cfg.Models {
		trials := make([][]ReworkTrial, len(cfg.Recoveries))
		var calms []losses
		for seed := range cfg.Seeds {
			calm, err := cfg.run(ctx, model, "none", seed, "")
			if err != nil {
				return rows, fmt.Errorf("%s, seed %d, undisturbed: %w", model, seed+1, err)
			}
			path := lossesOf(calm, uint64(reworkFrom*cfg.Period))
			calms = append(calms, path)
			for i, recovery := range cfg.Recoveries {
				t, err := cfg.trial(ctx, model, recovery, seed, path)
				if err != nil {
					return rows, fmt.Errorf("%s, %s, seed %d: %w", model, recovery, seed+1, err)
				}
				trials[i] = append(trials[i], t)
				fmt.Fprintf(cfg.Progress, "%s, seed %d of %d, %s: killed at step %d, %d steps taken back, loss above the undisturbed one by %.6f\n",
					model, seed+1, cfg.Seeds, recovery, t.Step, t.Lost, t.Above)
			}
		}
		perStep, ok := fall(calms)
		if !ok {
			return rows, fmt.Errorf("%s: without a failure the loss does not fall, by more than its noise, in the %d versions that were evaluated: there is nothing to be behind; take more seeds, or a smaller rate with -- --learning-rate",
				model, evaluated(calms))
		}
		for i, recovery := range cfg.Recoveries {
			for j := range trials[i] {
				t := &trials[i][j]
				t.Rework = float64(t.Lost) + t.Above/perStep
			}
			r := ReworkRow{Name: fmt.Sprintf("rework/%s/%s", model, recovery), Model: model, Recovery: recovery, Servers: cfg.Servers, Period: cfg.Period, Seeds: cfg.Seeds, Trials: trials[i]}
			r.fill(trials[0])
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// fault returns the fault of a run: the servers are killed in turn, each in the same step, when it
// is told to make that step.
func (cfg *ReworkConfig) fault(recovery string, seed int) string {
	times := reworkKill*cfg.Period + cfg.Period/2 + 1
	if recovery == "chain" {
		times *= 2 // each server makes the step for two replicas
	}
	return fmt.Sprintf("kill server/%d when committing %d", seed%cfg.Servers, times)
}

// run makes one run. All runs of one seed have the same batches in the same steps, so they are
// identical until the kill.
func (cfg *ReworkConfig) run(ctx context.Context, model, recovery string, seed int, fault string) (*record.Run, error) {
	steps := reworkPeriods * cfg.Period
	args := []string{"--model", model, "--recovery", recovery, "--seed", strconv.Itoa(seed + 1), "--steps", strconv.Itoa(steps), "--decay", "constant",
		"--servers", strconv.Itoa(cfg.Servers), "--workers", strconv.Itoa(cfg.Workers), "--eval-every", strconv.Itoa(max(1, cfg.Period/reworkEvaluations))}
	if recovery == "checkpoint" {
		args = append(args, "--checkpoint-every", strconv.Itoa(cfg.Period))
	} else { // other saves would count as those of the recovery
		args = append(args, "--checkpoint-every", strconv.Itoa(2*steps))
	}
	if fault != "" {
		args = append(args, "--fault", fault)
	}
	return process.Train(ctx, cfg.Binary, append(args, cfg.Flags...))
}

func (cfg *ReworkConfig) trial(ctx context.Context, model, recovery string, seed int, calm losses) (t ReworkTrial, err error) {
	t = ReworkTrial{Seed: uint64(seed + 1), Fault: cfg.fault(recovery, seed), Age: record.Unknown(), Predicted: record.Unknown(), Outage: record.Unknown()}
	run, err := cfg.run(ctx, model, recovery, seed, t.Fault)
	if err != nil {
		return t, err
	}
	if n := len(run.Summary.Failures); n != 1 {
		return t, fmt.Errorf("%q has made %d failures", t.Fault, n)
	}
	f := run.Summary.Failures[0]
	t.Step, t.Lost, t.Outage, t.Predicted = f.Step, f.LostSteps, f.RecoverySeconds, f.PartialRework
	if len(run.Partials) > 0 {
		t.Age = run.Partials[0].MeanAge
	}
	for _, c := range run.Checkpoints {
		if c.Error == "" && c.Seconds < f.Seconds {
			t.Models += float64(c.Bytes) / cfg.Bytes[model] / float64(f.Step) * float64(cfg.Period)
		}
	}
	t.Above, err = lossesOf(run, uint64(reworkFrom*cfg.Period)).above(calm)
	return t, err
}

// fill computes the results from the trials, and those of the baseline with the same seeds.
func (r *ReworkRow) fill(baseline []ReworkTrial) {
	var rework, saved, ages, predicted, outages []float64
	var models, lost, all, theirs float64
	for i, t := range r.Trials {
		rework, saved = append(rework, t.Rework), append(saved, baseline[i].Rework-t.Rework)
		all, theirs = all+t.Rework, theirs+baseline[i].Rework
		models, lost = models+t.Models/float64(len(r.Trials)), lost+float64(t.Lost)/float64(len(r.Trials))
		for list, x := range map[*[]float64]record.Number{&ages: t.Age, &predicted: t.Predicted, &outages: t.Outage} {
			if x.Known() {
				*list = append(*list, float64(x))
			}
		}
	}
	r.Rework, r.Low, r.High = studentInterval(rework)
	r.Saved, r.SavedLow, r.SavedHigh = studentInterval(saved)
	r.Reduction, r.Worst = record.Number(1-all/theirs), record.Number(slices.Max(rework))
	r.Models, r.Lost, r.Known = record.Number(models), record.Number(lost), len(predicted)
	r.Age, _, _ = studentInterval(ages)
	r.Predicted, _, _ = studentInterval(predicted)
	if r.Outage = record.Unknown(); len(outages) > 0 {
		r.Outage = record.Number(bench.Median(outages))
	}
}

// studentInterval returns the mean and its 95 % interval by Student's t, or unknown if there are
// too few values.
func studentInterval(x []float64) (mean, low, high record.Number) {
	if len(x) == 0 {
		return record.Unknown(), record.Unknown(), record.Unknown()
	}
	m, deviation := bench.MeanDeviation(x)
	if len(x) == 1 {
		return record.Number(m), record.Unknown(), record.Unknown()
	}
	half := distuv.StudentsT{Sigma: 1, Nu: float64(len(x) - 1)}.Quantile(0.975) * float64(deviation) / math.Sqrt(float64(len(x)))
	return record.Number(m), record.Number(m - half), record.Number(m + half)
}

// losses are the losses of a run's versions on the test set.
type losses map[uint64]float64

// lossesOf returns the losses from a step on. Repeated evaluations after a restore replace earlier
// ones.
func lossesOf(run *record.Run, from uint64) losses {
	l := make(losses)
	for _, e := range run.Evaluations {
		if e.Step >= from && e.Loss.Known() {
			l[e.Step] = float64(e.Loss)
		}
	}
	return l
}

// steps returns the versions in order, since sums of floats depend on the order.
func (l losses) steps() []uint64 { return slices.Sorted(maps.Keys(l)) }

// fall returns the decrease of the losses per step: the common slope of lines through the losses of
// each run, by least squares. A single run may stagnate by chance, as it has few evaluations. ok is
// false if even together the losses do not decrease significantly.
func fall(runs []losses) (perStep float64, ok bool) {
	var tt, ty, yy, free float64 // relative to the mean of each run
	for _, l := range runs {
		var n, t, y, tt1, ty1, yy1 float64
		for _, step := range l.steps() {
			x, loss := float64(step), l[step]
			n, t, y, tt1, ty1, yy1 = n+1, t+x, y+loss, tt1+x*x, ty1+x*loss, yy1+loss*loss
		}
		if n > 0 {
			tt, ty, yy, free = tt+tt1-t*t/n, ty+ty1-t*y/n, yy+yy1-y*y/n, free+n-1
		}
	}
	slope := ty / tt
	deviation := math.Sqrt(max(0, yy-slope*ty) / (free - 1) / tt)
	return -slope, evaluated(runs) >= reworkFewest*len(runs) && -slope > 3*deviation
}

// evaluated returns the total number of evaluated versions.
func evaluated(runs []losses) (n int) {
	for _, l := range runs {
		n += len(l)
	}
	return n
}

// reworkFewest is the required number of evaluated versions of a run.
const reworkFewest = 5

// at returns the loss of a version, interpolated between evaluated versions.
func (l losses) at(step uint64) (loss float64, ok bool) {
	if loss, ok = l[step]; ok {
		return loss, true
	}
	steps := l.steps()
	i, _ := slices.BinarySearch(steps, step)
	if i == 0 || i == len(steps) {
		return 0, false
	}
	before, after := steps[i-1], steps[i]
	share := float64(step-before) / float64(after-before)
	return l[before] + share*(l[after]-l[before]), true
}

// above returns the mean difference to other losses, over the evaluated versions.
func (l losses) above(calm losses) (float64, error) {
	sum, n := 0.0, 0
	for _, step := range l.steps() {
		if theirs, ok := calm.at(step); ok {
			sum, n = sum+l[step]-theirs, n+1
		}
	}
	if n < reworkFewest {
		return 0, fmt.Errorf("%d versions were evaluated, want %d: make steps slower, with -- --gradient-time 100ms", n, reworkFewest)
	}
	return sum / float64(n), nil
}
