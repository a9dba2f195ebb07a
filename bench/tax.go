package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Question: what does each way to survive take from a run that nothing happens to? The same run
// with each, in interleaved rounds; a row is compared with the run without any of its round that
// has as many servers. The claim that could be false: two replicas of each shard take at most 15 %
// of the steps per second of cnn, on two cores.
//
// On one machine all processes share its cores. What a second replica computes would be computed
// beside the first on a host of its own; here it is time that nobody else has. So each row has the
// processor time of a step as well: of all processes of a run, less that of a run of a few steps,
// which is what it takes to start. Shared by all cores, what a step takes of it more than without
// is the contention: the part of the tax that is due to one machine, at most. The rest is waiting,
// which hosts of their own would not take away.

// TaxConfig says what Tax measures.
type TaxConfig struct {
	Models           []string
	Recoveries       []string // train's --recovery; chain:R and gold:R stand for R replicas; none is measured always
	Servers, Workers int      // R replicas need R servers, and get them
	Steps, Rounds    int
	Processors       int // that the machine has
	Binary           string
	Flags            []string // for train, besides the ones above
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
	Ratio    float64 `json:"ratio"` // to the run without any of the same round
	RatioMin float64 `json:"ratio_min"`
	RatioMax float64 `json:"ratio_max"`
	CPU      float64 `json:"cpu_ms_per_step"` // of all processes
	CPURatio float64 `json:"cpu_ratio"`
	Cores    float64 `json:"cores"` // that were busy, on average

	// Extra is how much longer a step takes than without any, Contention which part of that the
	// processors would take alone if they shared what a step takes of them more; unknown where a
	// step does not take longer. Apart is Ratio without that part.
	Extra      float64       `json:"extra_ms_per_step"`
	Contention record.Number `json:"contention_fraction"`
	Apart      record.Number `json:"ratio_without_contention"`

	OK bool `json:"ok"` // the claim holds, where there is one
}

// Check hands everything that is to be measured to check, as train takes it, and returns the first error.
func (cfg *TaxConfig) Check(check func(model, recovery string, servers int) error) error {
	for _, r := range cfg.rows() {
		recovery, _ := replicated(r.Recovery)
		if err := check(r.Model, recovery, r.Servers); err != nil {
			return err
		}
	}
	return nil
}

// startSteps are the steps of a run that tells what it takes to start.
const startSteps = 10

// Tax runs all of them in turn.
func Tax(ctx context.Context, cfg TaxConfig) ([]TaxRow, error) {
	rows := cfg.rows()
	measured := make([][]TaxRow, len(rows)) // by row, then round
	for round := range cfg.Rounds {
		for i := range rows {
			if round%2 == 1 { // forward and backward in turn: a machine that slows down slows all of them
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

// rows returns what is to be measured.
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

// replicated returns what chain:R and gold:R stand for; of any other recovery the same, and 0.
func replicated(recovery string) (name string, replicas int) {
	name, option, _ := strings.Cut(recovery, ":")
	if n, err := strconv.Atoi(option); err == nil && n > 0 && (name == "chain" || name == "gold") {
		return name, n
	}
	return recovery, 0
}

// serversOf returns how many servers a recovery needs to have the replicas that it has by itself.
func serversOf(recovery string) int {
	if copied(recovery) || recovery == "chain:next" {
		return 3
	}
	_, replicas := replicated(recovery)
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
	r.CPU = 1e3 * (all - start) / float64(cfg.Steps-startSteps)
	return r, nil
}

// run trains and returns what the run recorded and the seconds of processors that its processes took.
func (cfg *TaxConfig) run(ctx context.Context, r TaxRow, round, steps int) (run *record.Run, cpu float64, err error) {
	flags := []string{"--model", r.Model, "--seed", strconv.Itoa(round + 1), "--servers", strconv.Itoa(r.Servers),
		"--workers", strconv.Itoa(cfg.Workers), "--steps", strconv.Itoa(steps), "--eval-every", strconv.Itoa(2 * steps)}
	name, replicas := replicated(r.Recovery)
	if flags = append(flags, "--recovery", name); replicas > 0 {
		flags = append(flags, "--replicas", strconv.Itoa(replicas))
	}
	run, err = runTrainAnd(ctx, cfg.Binary, append(flags, cfg.Flags...), func(_ string, p *os.ProcessState) error {
		cpu = (p.UserTime() + p.SystemTime()).Seconds()
		return nil
	})
	return run, cpu, err
}

// fill fills a row in from its rounds and those of the runs that it is compared with.
func (r *TaxRow) fill(rounds, base []TaxRow, processors int) {
	var steps, ratio, cpu, cpuRatio, cores []float64
	longer, shared := 0.0, 0.0 // milliseconds of a step, added up over the rounds: what is noise in one cancels
	for i, m := range rounds {
		longer += 1e3/m.Steps - 1e3/base[i].Steps
		shared += (m.CPU - base[i].CPU) / float64(processors)
		steps, ratio = append(steps, m.Steps), append(ratio, m.Steps/base[i].Steps)
		cpu, cpuRatio = append(cpu, m.CPU), append(cpuRatio, m.CPU/base[i].CPU)
		cores = append(cores, m.CPU*m.Steps/1e3)
	}
	r.Rounds, r.Steps, r.CPU, r.CPURatio, r.Cores = len(rounds), median(steps), median(cpu), median(cpuRatio), median(cores)
	r.Ratio, r.RatioMin, r.RatioMax = median(ratio), slices.Min(ratio), slices.Max(ratio)
	r.Extra, r.Contention, r.Apart = longer/float64(len(rounds)), record.Unknown(), record.Unknown()
	if longer > 0 {
		part := min(1, max(0, shared/longer))
		r.Contention, r.Apart = record.Number(part), record.Number(1/(1+(1/r.Ratio-1)*(1-part)))
	}
	r.OK = r.Model != "cnn" || r.Recovery != "chain:2" || r.Ratio >= taxClaim
}

// taxClaim is the part of the steps per second of cnn that two replicas leave at least.
const taxClaim = 0.85

// CheckTax returns an error that lists the rows of which the claim does not hold.
func CheckTax(rows []TaxRow) error {
	var missed []error
	for _, r := range rows {
		if !r.OK {
			missed = append(missed, fmt.Errorf("%s: %.3f of the steps per second of a run without any recovery; the claim is at least %.2f", r.Name, r.Ratio, taxClaim))
		}
	}
	return errors.Join(missed...)
}
