package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/internal/process"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Question: what does each way to survive cost a run without failures? The same run with each way,
// in interleaved rounds; a row is compared with the unprotected run of its round with the same
// number of servers. The claim that could be false: two replicas of each shard cost at most 15 % of
// the steps per second of cnn, on two cores.
//
// On one machine, all processes share its cores. A second replica on a host of its own would
// compute at the same time as the first; here it takes CPU time from the others. So each row also
// has the CPU time per step: that of all processes of a run, less that of a run of a few steps,
// which is the cost of the start. The additional CPU time per step, shared by all cores, is the
// contention: an upper bound on the part of the tax that is due to the single machine. The rest is
// waiting, which would also occur on separate hosts.

// TaxConfig configures Tax.
type TaxConfig struct {
	Models           []string
	Recoveries       []string // values of train's --recovery; chain:R and gold:R stand for R replicas; none is always measured
	Servers, Workers int      // R replicas get R servers
	Steps, Rounds    int
	Processors       int // number of the machine's processors
	Binary           string
	Flags            []string // for train, in addition to the above
	Progress         io.Writer
}

// TaxRow is one way to survive: medians over the rounds.
type TaxRow struct {
	Name     string  `json:"name"`
	Model    string  `json:"model"`
	Recovery string  `json:"recovery"`
	Servers  int     `json:"servers"`
	Rounds   int     `json:"rounds"`
	Steps    float64 `json:"steps_per_s"`
	Ratio    float64 `json:"ratio"` // to the unprotected run of the same round
	RatioMin float64 `json:"ratio_min"`
	RatioMax float64 `json:"ratio_max"`

	// CPU is that of all processes, CPURatio its ratio to the unprotected run, and Cores the mean
	// number of busy cores. They are unknown if runs are so short that the start takes more.
	CPU      record.Number `json:"cpu_ms_per_step"`
	CPURatio record.Number `json:"cpu_ratio"`
	Cores    record.Number `json:"cores"`

	// Extra is how much longer a step takes than in the unprotected run. Contention is the fraction
	// of it that the additional CPU time alone would explain; it is unknown if the step does not
	// take longer. Apart is Ratio without that fraction.
	Extra      float64       `json:"extra_ms_per_step"`
	Contention record.Number `json:"contention_fraction"`
	Apart      record.Number `json:"ratio_without_contention"`

	OK bool `json:"ok"` // the claim holds, or there is none
}

// Check calls check with each recovery to measure, in the form that train accepts, and returns the
// first error.
func (cfg *TaxConfig) Check(check func(model, recovery string, servers int) error) error {
	for _, r := range cfg.rows() {
		recovery, _ := process.Replicated(r.Recovery)
		if err := check(r.Model, recovery, r.Servers); err != nil {
			return err
		}
	}
	return nil
}

// startSteps is the number of steps of the run that measures the cost of the start.
const startSteps = 10

// Tax makes all runs in turn.
func Tax(ctx context.Context, cfg TaxConfig) ([]TaxRow, error) {
	rows := cfg.rows()
	measured := make([][]TaxRow, len(rows)) // by row, then by round
	for round := range cfg.Rounds {
		for i := range rows {
			if round%2 == 1 { // forward and backward in turn, so that a machine that slows down slows all of them
				i = len(rows) - 1 - i
			}
			m, err := cfg.measure(ctx, rows[i], round)
			if err != nil {
				return nil, err
			}
			measured[i] = append(measured[i], m)
			fmt.Fprintf(cfg.Progress, "round %d of %d, %s: %.1f steps/s, %.2f ms of processors a step\n", round+1, cfg.Rounds, m.Name, m.Steps, m.CPU)
		}
	}
	for i := range rows {
		base := slices.IndexFunc(rows, func(b TaxRow) bool {
			return b.Model == rows[i].Model && b.Servers == rows[i].Servers && b.Recovery == "none"
		})
		rows[i].fill(measured[i], measured[base], cfg.Processors)
	}
	return rows, nil
}

// rows returns the rows to measure.
func (cfg *TaxConfig) rows() (rows []TaxRow) {
	for _, model := range cfg.Models {
		add := func(recovery string, servers int) {
			r := TaxRow{Name: fmt.Sprintf("tax/%s/%s/servers=%d", model, recovery, servers), Model: model, Recovery: recovery, Servers: servers}
			if !slices.ContainsFunc(rows, func(x TaxRow) bool { return x.Name == r.Name }) {
				rows = append(rows, r)
			}
		}
		for _, recovery := range cfg.Recoveries {
			servers := max(cfg.Servers, serversOf(recovery))
			add("none", servers)
			add(recovery, servers)
		}
	}
	return rows
}

// serversOf returns the number of servers that a recovery needs for its default number of replicas.
func serversOf(recovery string) int {
	if copied(recovery) || recovery == "chain:next" {
		return 3
	}
	_, replicas := process.Replicated(recovery)
	return replicas
}

func (cfg *TaxConfig) measure(ctx context.Context, r TaxRow, round int) (TaxRow, error) {
	_, start, err := cfg.run(ctx, r, round, startSteps)
	if err != nil {
		return r, err
	}
	run, all, err := cfg.run(ctx, r, round, cfg.Steps)
	if err != nil {
		return r, err
	}
	first := int(warmUp * float64(len(run.Steps)))
	if len(run.Steps)-first < 2 {
		return r, fmt.Errorf("a run of %d steps is too short to measure", len(run.Steps))
	}
	a, b := run.Steps[first], run.Steps[len(run.Steps)-1]
	r.Steps = float64(len(run.Steps)-1-first) / (b.Seconds - a.Seconds)
	if r.CPU = record.Unknown(); all > start {
		r.CPU = record.Number(1e3 * (all - start) / float64(cfg.Steps-startSteps))
	}
	return r, nil
}

// run trains, and returns the record of the run and the CPU seconds of its processes.
func (cfg *TaxConfig) run(ctx context.Context, r TaxRow, round, steps int) (run *record.Run, cpu float64, err error) {
	flags := []string{"--model", r.Model, "--seed", strconv.Itoa(round + 1), "--servers", strconv.Itoa(r.Servers),
		"--workers", strconv.Itoa(cfg.Workers), "--steps", strconv.Itoa(steps), "--eval-every", strconv.Itoa(2 * steps)}
	name, replicas := process.Replicated(r.Recovery)
	if flags = append(flags, "--recovery", name); replicas > 0 {
		flags = append(flags, "--replicas", strconv.Itoa(replicas))
	}
	run, err = process.TrainAnd(ctx, cfg.Binary, append(flags, cfg.Flags...), func(_ string, p *os.ProcessState) error {
		cpu = (p.UserTime() + p.SystemTime()).Seconds()
		return nil
	})
	return run, cpu, err
}

// fill computes a row from its rounds and those of the unprotected runs.
func (r *TaxRow) fill(rounds, base []TaxRow, processors int) {
	var steps, ratio, cpu, cpuRatio, cores []float64
	longer, shared := 0.0, 0.0 // milliseconds per step, summed over the rounds so that noise cancels
	for i, m := range rounds {
		longer += 1e3/m.Steps - 1e3/base[i].Steps
		steps, ratio = append(steps, m.Steps), append(ratio, m.Steps/base[i].Steps)
		of, without := float64(m.CPU), float64(base[i].CPU)
		shared += (of - without) / float64(processors)
		cpu, cpuRatio, cores = append(cpu, of), append(cpuRatio, of/without), append(cores, of*m.Steps/1e3)
	}
	r.Rounds, r.Steps = len(rounds), bench.Median(steps)
	if r.CPU, r.CPURatio, r.Cores = record.Unknown(), record.Unknown(), record.Unknown(); !math.IsNaN(shared) { // each round has them
		r.CPU, r.CPURatio, r.Cores = record.Number(bench.Median(cpu)), record.Number(bench.Median(cpuRatio)), record.Number(bench.Median(cores))
	}
	r.Ratio, r.RatioMin, r.RatioMax = bench.Median(ratio), slices.Min(ratio), slices.Max(ratio)
	r.Extra, r.Contention, r.Apart = longer/float64(len(rounds)), record.Unknown(), record.Unknown()
	if longer > 0 && !math.IsNaN(shared) {
		part := min(1, max(0, shared/longer))
		r.Contention, r.Apart = record.Number(part), record.Number(1/(1+(1/r.Ratio-1)*(1-part)))
	}
	r.OK = r.Model != "cnn" || r.Recovery != "chain:2" || r.Ratio >= taxClaim
}

// taxClaim is the least fraction of the steps per second of cnn that two replicas leave.
const taxClaim = 0.85

// CheckTax returns an error that lists the rows for which the claim does not hold.
func CheckTax(rows []TaxRow) error {
	var missed []error
	for _, r := range rows {
		if !r.OK {
			missed = append(missed, fmt.Errorf("%s: %.3f of the steps per second of a run without any recovery; the claim is at least %.2f", r.Name, r.Ratio, taxClaim))
		}
	}
	return errors.Join(missed...)
}
