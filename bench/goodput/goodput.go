// Package goodput asks how much of the work of an undisturbed run is left when servers die at
// random, for each way to recover. Goodput is useful steps per second, over the steps per second of
// the run in the same round that has no protection and no failures. Useful steps are those that
// were not taken back, less the steps by which shards that came back alone have set the run back.
// The claims that could be false: among the ways without a second copy of the model on other
// servers, the default has the largest goodput at each rate of failures; and without failures no
// way costs more than 3 %.
//
// All runs have the same number of servers, and those of one round and rate have the same deaths.
// They are compared over the same stretch of their own time. Deaths happen only within it, and the
// run continues after it until the last failure is recovered from, so that it is known what that
// took back.
package goodput

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/internal/process"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Config configures Run.
type Config struct {
	Model            string
	Recoveries       []Recovery
	Losses           []string        // kill, lose
	MTBF             []time.Duration // mean times between failures, of all parts together; 0: no failures, which gives the tax
	Down             time.Duration   // how long the place of a dead process stays empty
	WarmUp, Stretch  time.Duration   // time before the first deaths, and time with deaths
	Tail             time.Duration   // time after that and Down; longer than any recovery
	Rounds           int
	Seed             uint64
	Servers, Workers int
	KillWorkers      bool // kill workers too
	Binary           string
	Flags            []string    // for train, in addition to the above
	Round            func([]Row) // called with the rows so far after each round; may be nil
	Progress         io.Writer
}

// Recovery is a way to recover.
type Recovery struct {
	Name    string   // as requested, such as chain:3
	Flags   []string // of train
	Outside bool     // it keeps something in the memory of the host, so that kill and lose differ
}

// Flags returns the flags of train for the name of a way to recover. chain:R and gold:R have
// R replicas, checkpoint:N has N steps between two checkpoints; other names are values of
// --recovery.
func Flags(word string) []string {
	name, replicas := process.Replicated(word)
	if replicas > 0 {
		return []string{"--recovery", name, "--replicas", strconv.Itoa(replicas)}
	}
	if every, ok := strings.CutPrefix(word, "checkpoint:"); ok {
		return []string{"--recovery", "checkpoint", "--checkpoint-every", every}
	}
	return []string{"--recovery", word}
}

// Row is one way to recover at one rate of failures. Ratios and rates are medians over the
// rounds; numbers are totals over all rounds.
type Row struct {
	Name     string        `json:"name"`
	Model    string        `json:"model"`
	Recovery string        `json:"recovery"`
	Loss     string        `json:"loss"`         // kill, lose, either if there is no difference, or none
	MTBF     float64       `json:"mtbf_seconds"` // 0: no failures
	Servers  int           `json:"servers"`
	Rounds   int           `json:"rounds"`
	Kills    int           `json:"kills"`
	Useful   record.Number `json:"useful_steps_per_s"`
	Goodput  record.Number `json:"goodput"`
	Min      record.Number `json:"goodput_min"`
	Max      record.Number `json:"goodput_max"`
	Tax      record.Number `json:"steady_tax"` // without failures: of the steps per second of the run without protection

	Lost      float64       `json:"lost_steps"`
	Shards    int           `json:"shards_back_alone"`
	Predicted int           `json:"predicted_of_them"`
	Behind    float64       `json:"fell_behind_steps"` // by those shards; if it was not predicted, their age
	Measured  float64       `json:"measured_behind_steps"`
	Error     float64       `json:"measured_behind_error"`
	Told      int           `json:"measured_of_them"`
	Next      record.Number `json:"next_step_p50_seconds"` // after a failure
	NextMax   record.Number `json:"next_step_max_seconds"`
	Saved     record.Number `json:"saved_mb_per_s"`
	TrainLoss record.Number `json:"train_loss"` // at the end of the stretch, mean over 50 steps
	TestLoss  record.Number `json:"test_loss"`  // at the end of the run
	Accuracy  record.Number `json:"accuracy"`
	Unplanned int           `json:"unplanned_failures"`

	Trials []Trial `json:"trials"`
}

// Trial is one run.
type Trial struct {
	Round     int           `json:"round"`
	Faults    []string      `json:"faults"`
	Kills     int           `json:"kills"`
	Stayed    float64       `json:"steps_that_stayed"`
	Useful    float64       `json:"useful_steps_per_s"`
	Goodput   record.Number `json:"goodput"`
	Lost      uint64        `json:"lost_steps"`
	Lag       lag           `json:"lag"`
	Next      []float64     `json:"next_step_seconds"`
	Saved     float64       `json:"saved_mb_per_s"`
	TrainLoss record.Number `json:"train_loss"`
	TestLoss  record.Number `json:"test_loss"`
	Accuracy  record.Number `json:"accuracy"`
	Unplanned int           `json:"unplanned_failures"`
}

// startAndEnd is the approximate time to start, end and read a run, for the estimate of the total
// time.
const startAndEnd = time.Second

// Takes returns the estimated time of all runs.
func (cfg *Config) Takes() time.Duration {
	return time.Duration(cfg.Rounds*len(cfg.rows())) * (cfg.WarmUp + cfg.Stretch + cfg.Down + cfg.Tail + startAndEnd)
}

// Run makes all runs, round by round. A failed run is left out of its row, and the error
// reports it when all runs are done.
func Run(ctx context.Context, cfg Config) ([]Row, error) {
	rows := cfg.rows()
	var failed []error
	count := bench.NewCountdown(cfg.Progress, cfg.Rounds*len(rows))
	for round := range cfg.Rounds {
		for i := range rows {
			if round%2 == 1 { // forward and backward in turn, so that a machine that slows down slows all of them
				i = len(rows) - 1 - i
			}
			r := &rows[i]
			t, err := cfg.trial(ctx, r, round)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if _, no := errors.AsType[process.Refused](err); no { // the others would be refused too
				return nil, err
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("%s, round %d: %w", r.Name, round+1, err))
				count.Ended(fmt.Sprintf("round %d of %d, %s: failed", round+1, cfg.Rounds, r.what()))
				continue
			}
			r.Trials = append(r.Trials, t)
			count.Ended(fmt.Sprintf("round %d of %d, %s: %.1f useful steps/s, %d killed, %d steps lost", round+1, cfg.Rounds, r.what(), t.Useful, t.Kills, t.Lost))
		}
		fillAll(rows)
		if cfg.Round != nil {
			cfg.Round(rows)
		}
	}
	return rows, errors.Join(failed...)
}

// rows returns the rows to measure. The run without protection and without failures, which the
// others are compared with, is first.
func (cfg *Config) rows() (rows []Row) {
	add := func(recovery, loss string, mtbf time.Duration) {
		name := fmt.Sprintf("goodput/%s/%s", cfg.Model, recovery)
		if mtbf > 0 {
			name += fmt.Sprintf("/%s/every-%v", loss, mtbf)
		}
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.Name == name }) {
			rows = append(rows, Row{Name: name, Model: cfg.Model, Recovery: recovery, Loss: loss, MTBF: mtbf.Seconds(), Servers: cfg.Servers})
		}
	}
	add("none", "none", 0)
	for _, recovery := range cfg.Recoveries {
		for _, mtbf := range cfg.MTBF {
			switch {
			case mtbf == 0:
				add(recovery.Name, "none", 0)
			case recovery.Name == "none": // it would start over at each failure
			case !recovery.Outside:
				add(recovery.Name, "either", mtbf)
			default:
				for _, loss := range cfg.Losses {
					add(recovery.Name, loss, mtbf)
				}
			}
		}
	}
	return rows
}

// what describes a row in a sentence.
func (r *Row) what() string {
	switch {
	case r.MTBF == 0:
		return r.Recovery + ", undisturbed"
	case r.Loss == "either":
		return fmt.Sprintf("%s, one dies every %v s", r.Recovery, r.MTBF)
	}
	return fmt.Sprintf("%s, one dies every %v s (%s)", r.Recovery, r.MTBF, r.Loss)
}

// faults returns the deaths in a run. They are the same for one round and rate, whatever the
// recovery.
func (cfg *Config) faults(r *Row, round int) []launch.Fault {
	if r.MTBF == 0 {
		return nil
	}
	workers := 0
	if cfg.KillWorkers {
		workers = cfg.Workers
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, uint64(round)))
	faults := deaths(rng, time.Duration(r.MTBF*float64(time.Second)), cfg.WarmUp, cfg.WarmUp+cfg.Stretch, cfg.Down, partsOf(cfg.Servers, workers))
	if r.Loss == "lose" {
		return losing(faults)
	}
	return faults
}

// trial makes one run.
func (cfg *Config) trial(ctx context.Context, r *Row, round int) (t Trial, err error) {
	t.Round = round + 1
	flags := []string{"--model", cfg.Model, "--seed", strconv.Itoa(round + 1), "--servers", strconv.Itoa(cfg.Servers), "--workers", strconv.Itoa(cfg.Workers), "--decay", "constant"}
	flags = append(flags, Flags(r.Recovery)...)
	for _, f := range cfg.faults(r, round) {
		t.Faults = append(t.Faults, f.String())
		flags = append(flags, "--fault", f.String())
	}
	run, err := process.TrainFor(ctx, cfg.Binary, cfg.WarmUp+cfg.Stretch+cfg.Down+cfg.Tail, append(flags, cfg.Flags...))
	if err != nil {
		return t, err
	}
	w := stretch{cfg.WarmUp.Seconds(), (cfg.WarmUp + cfg.Stretch).Seconds()}
	if newestAt(run, w.from) == 0 {
		return t, fmt.Errorf("no step was released in the first %v, so there is nothing to begin with: give it more time, with --warm-up", cfg.WarmUp)
	}
	t.fill(run, w)
	return t, nil
}

// fill extracts the results from a run.
func (t *Trial) fill(run *record.Run, w stretch) {
	seconds := w.to - w.from
	t.Next, t.Unplanned = nextSteps(run, w)
	t.Kills, t.Lost, t.Lag = len(t.Next), lostIn(run, w), lagIn(run, w)
	t.Stayed = stayed(run, w)
	t.Useful, t.Goodput = (t.Stayed-t.Lag.Steps)/seconds, record.Unknown()
	t.Saved, t.TrainLoss = savedIn(run, w)/seconds/1e6, lossAt(run, w.to)
	t.TestLoss, t.Accuracy = run.Summary.FinalTestLoss, run.Summary.FinalAccuracy
}

// fillAll fills rows from their trials and those of the first row, with which they are
// compared.
func fillAll(rows []Row) {
	base := make(map[int]float64) // by round
	for _, t := range rows[0].Trials {
		base[t.Round] = t.Useful
	}
	taxes := make(map[string]record.Number)
	for i := range rows {
		r := &rows[i]
		for j := range r.Trials {
			t := &r.Trials[j]
			if per := base[t.Round]; per > 0 {
				t.Goodput = record.Number(t.Useful / per)
			}
		}
		r.fill()
		if r.MTBF == 0 {
			taxes[r.Recovery] = 1 - r.Goodput
		}
	}
	for i := range rows {
		tax, ok := taxes[rows[i].Recovery]
		if rows[i].Tax = tax; !ok {
			rows[i].Tax = record.Unknown()
		}
	}
}

// fill computes the results of a row from its trials.
func (r *Row) fill() {
	r.Rounds, r.Kills, r.Lost, r.Shards, r.Predicted, r.Told, r.Unplanned = len(r.Trials), 0, 0, 0, 0, 0, 0
	r.Behind, r.Measured, r.Error = 0, 0, 0
	var next, goodputs []float64
	for _, t := range r.Trials {
		r.Kills, r.Lost, r.Unplanned = r.Kills+t.Kills, r.Lost+float64(t.Lost), r.Unplanned+t.Unplanned
		r.Shards, r.Predicted, r.Told = r.Shards+t.Lag.Shards, r.Predicted+t.Lag.Predicted, r.Told+t.Lag.Told
		r.Behind, r.Measured, r.Error = r.Behind+t.Lag.Steps, r.Measured+t.Lag.Measured, math.Hypot(r.Error, t.Lag.Error)
		next = append(next, t.Next...)
		if t.Goodput.Known() {
			goodputs = append(goodputs, float64(t.Goodput))
		}
	}
	middle := func(of func(*Trial) float64) record.Number {
		var list []float64
		for i := range r.Trials {
			if v := of(&r.Trials[i]); !math.IsNaN(v) {
				list = append(list, v)
			}
		}
		return medianOf(list)
	}
	r.Useful = middle(func(t *Trial) float64 { return t.Useful })
	r.Saved = middle(func(t *Trial) float64 { return t.Saved })
	r.TrainLoss = middle(func(t *Trial) float64 { return float64(t.TrainLoss) })
	r.TestLoss = middle(func(t *Trial) float64 { return float64(t.TestLoss) })
	r.Accuracy = middle(func(t *Trial) float64 { return float64(t.Accuracy) })
	r.Next, r.NextMax = medianOf(next), record.Unknown()
	r.Goodput, r.Min, r.Max = medianOf(goodputs), record.Unknown(), record.Unknown()
	if len(next) > 0 {
		r.NextMax = record.Number(slices.Max(next))
	}
	if len(goodputs) > 0 {
		r.Min, r.Max = record.Number(slices.Min(goodputs)), record.Number(slices.Max(goodputs))
	}
}

// medianOf returns the median, or unknown if there are no values.
func medianOf(x []float64) record.Number {
	if len(x) == 0 {
		return record.Unknown()
	}
	return record.Number(bench.Median(x))
}
