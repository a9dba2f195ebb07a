package bench

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

	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Question: how much of the work of a run that nothing happens to is left when servers die at
// random, for each way to recover? Goodput is the useful steps per second, over the steps per
// second of the run of the same round that has no protection and that nothing happens to. Useful
// are steps that stayed, less those by which shards that came back alone have thrown the run back.
// The claims that could be false: the default has the greatest goodput of the ways that need no
// second copy of the model on other servers, at each rate; and where nothing fails no way takes
// more than 3 %.
//
// All runs have as many servers, and those of one round and rate the same deaths. They are compared
// over the same stretch of their own clocks: deaths begin and end with it, and the run goes on
// behind it until the last one is mended, so that what it takes back is known.

// GoodputConfig says what Goodput measures.
type GoodputConfig struct {
	Model            string
	Recoveries       []GoodputRecovery
	Losses           []string        // kill, lose
	MTBF             []time.Duration // mean times between failures of all that die together; 0: nothing fails, which gives the tax
	Down             time.Duration   // how long the place of the dead stays empty
	WarmUp, Stretch  time.Duration   // before deaths may come, and while
	Tail             time.Duration   // behind that, when the last of the dead is back: longer than any recovery takes
	Rounds           int
	Seed             uint64
	Servers, Workers int
	KillWorkers      bool // as well
	Binary           string
	Flags            []string           // for train, besides the ones above
	Round            func([]GoodputRow) // is told what there is after each round; nil: nobody is
	Progress         io.Writer
}

// GoodputRecovery is a way to recover.
type GoodputRecovery struct {
	Name    string   // as it was asked for, such as chain:3
	Flags   []string // of train
	Outside bool     // it leaves something in the memory of the host, so kill and lose are two things
}

// GoodputFlags returns the flags of train that a word for a way to recover stands for: chain:R and
// gold:R have R replicas, checkpoint:N has N steps between two checkpoints, and what else there may
// be is train's --recovery.
func GoodputFlags(word string) []string {
	name, replicas := replicated(word)
	if replicas > 0 {
		return []string{"--recovery", name, "--replicas", strconv.Itoa(replicas)}
	}
	if every, ok := strings.CutPrefix(word, "checkpoint:"); ok {
		return []string{"--recovery", "checkpoint", "--checkpoint-every", every}
	}
	return []string{"--recovery", word}
}

// GoodputRow is one way to recover at one rate of failures. Ratios and rates are medians over the
// rounds; what is counted is of all rounds together.
type GoodputRow struct {
	Name     string        `json:"name"`
	Model    string        `json:"model"`
	Recovery string        `json:"recovery"`
	Loss     string        `json:"loss"`         // kill, lose, or either: it makes no difference; none
	MTBF     float64       `json:"mtbf_seconds"` // 0: nothing fails
	Servers  int           `json:"servers"`
	Rounds   int           `json:"rounds"`
	Kills    int           `json:"kills"`
	Useful   record.Number `json:"useful_steps_per_s"`
	Goodput  record.Number `json:"goodput"`
	Min      record.Number `json:"goodput_min"`
	Max      record.Number `json:"goodput_max"`
	Tax      record.Number `json:"steady_tax"` // of the steps per second of the run without protection, where nothing fails

	Lost      float64       `json:"lost_steps"`
	Shards    int           `json:"shards_back_alone"`
	Predicted int           `json:"predicted_of_them"`
	Behind    float64       `json:"fell_behind_steps"` // by those shards; where it was not predicted, by as much as they were old
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

	Trials []GoodputTrial `json:"trials"`
}

// GoodputTrial is one run.
type GoodputTrial struct {
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

// goodputEnds is about how long a run takes to start, to end and to be read, to say beforehand how long all take.
const goodputEnds = time.Second

// Takes returns about how long all runs take.
func (cfg *GoodputConfig) Takes() time.Duration {
	return time.Duration(cfg.Rounds*len(cfg.rows())) * (cfg.WarmUp + cfg.Stretch + cfg.Down + cfg.Tail + goodputEnds)
}

// Goodput makes all runs, round by round. A run that does not come to its end makes no row worse:
// it is missing, and the error says so when all are done.
func Goodput(ctx context.Context, cfg GoodputConfig) ([]GoodputRow, error) {
	rows := cfg.rows()
	var failed []error
	count := newCountdown(cfg.Progress, cfg.Rounds*len(rows))
	for round := range cfg.Rounds {
		for i := range rows {
			if round%2 == 1 { // forward and backward in turn: a machine that slows down slows all of them
				i = len(rows) - 1 - i
			}
			r := &rows[i]
			t, err := cfg.trial(ctx, r, round)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if _, no := errors.AsType[refused](err); no { // and so would all others be
				return nil, err
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("%s, round %d: %w", r.Name, round+1, err))
				count.ended(fmt.Sprintf("round %d of %d, %s: failed", round+1, cfg.Rounds, r.what()))
				continue
			}
			r.Trials = append(r.Trials, t)
			count.ended(fmt.Sprintf("round %d of %d, %s: %.1f useful steps/s, %d killed, %d steps lost", round+1, cfg.Rounds, r.what(), t.Useful, t.Kills, t.Lost))
		}
		fillGoodput(rows)
		if cfg.Round != nil {
			cfg.Round(rows)
		}
	}
	return rows, errors.Join(failed...)
}

// rows returns what is to be measured: the run without protection and without failures first, which
// the others are compared with.
func (cfg *GoodputConfig) rows() (rows []GoodputRow) {
	add := func(recovery, loss string, mtbf time.Duration) {
		name := fmt.Sprintf("goodput/%s/%s", cfg.Model, recovery)
		if mtbf > 0 {
			name += fmt.Sprintf("/%s/every-%v", loss, mtbf)
		}
		if !slices.ContainsFunc(rows, func(r GoodputRow) bool { return r.Name == name }) {
			rows = append(rows, GoodputRow{Name: name, Model: cfg.Model, Recovery: recovery, Loss: loss, MTBF: mtbf.Seconds(), Servers: cfg.Servers})
		}
	}
	add("none", "none", 0)
	for _, recovery := range cfg.Recoveries {
		for _, mtbf := range cfg.MTBF {
			switch {
			case mtbf == 0:
				add(recovery.Name, "none", 0)
			case recovery.Name == "none": // it would begin anew at each failure
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

// what names a row in a sentence.
func (r *GoodputRow) what() string {
	switch {
	case r.MTBF == 0:
		return r.Recovery + ", undisturbed"
	case r.Loss == "either":
		return fmt.Sprintf("%s, one dies every %v s", r.Recovery, r.MTBF)
	}
	return fmt.Sprintf("%s, one dies every %v s (%s)", r.Recovery, r.MTBF, r.Loss)
}

// faults returns the deaths of a run: those of one round and rate are the same whatever the recovery.
func (cfg *GoodputConfig) faults(r *GoodputRow, round int) []launch.Fault {
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
func (cfg *GoodputConfig) trial(ctx context.Context, r *GoodputRow, round int) (t GoodputTrial, err error) {
	t.Round = round + 1
	flags := []string{"--model", cfg.Model, "--seed", strconv.Itoa(round + 1), "--servers", strconv.Itoa(cfg.Servers), "--workers", strconv.Itoa(cfg.Workers), "--decay", "constant"}
	flags = append(flags, GoodputFlags(r.Recovery)...)
	for _, f := range cfg.faults(r, round) {
		t.Faults = append(t.Faults, f.String())
		flags = append(flags, "--fault", f.String())
	}
	run, err := runFor(ctx, cfg.Binary, cfg.WarmUp+cfg.Stretch+cfg.Down+cfg.Tail, append(flags, cfg.Flags...))
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

// fill takes from a run what is asked for.
func (t *GoodputTrial) fill(run *record.Run, w stretch) {
	seconds := w.to - w.from
	t.Next, t.Unplanned = nextSteps(run, w)
	t.Kills, t.Lost, t.Lag = len(t.Next), lostIn(run, w), lagIn(run, w)
	t.Stayed = stayed(run, w)
	t.Useful, t.Goodput = (t.Stayed-t.Lag.Steps)/seconds, record.Unknown()
	t.Saved, t.TrainLoss = savedIn(run, w)/seconds/1e6, lossAt(run, w.to)
	t.TestLoss, t.Accuracy = run.Summary.FinalTestLoss, run.Summary.FinalAccuracy
}

// fillGoodput fills rows in from their trials and those of the first row, which is what they are compared with.
func fillGoodput(rows []GoodputRow) {
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

// fill sums the trials of a row up.
func (r *GoodputRow) fill() {
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
	middle := func(of func(*GoodputTrial) float64) record.Number {
		var list []float64
		for i := range r.Trials {
			if v := of(&r.Trials[i]); !math.IsNaN(v) {
				list = append(list, v)
			}
		}
		return medianOf(list)
	}
	r.Useful = middle(func(t *GoodputTrial) float64 { return t.Useful })
	r.Saved = middle(func(t *GoodputTrial) float64 { return t.Saved })
	r.TrainLoss = middle(func(t *GoodputTrial) float64 { return float64(t.TrainLoss) })
	r.TestLoss = middle(func(t *GoodputTrial) float64 { return float64(t.TestLoss) })
	r.Accuracy = middle(func(t *GoodputTrial) float64 { return float64(t.Accuracy) })
	r.Next, r.NextMax = medianOf(next), record.Unknown()
	r.Goodput, r.Min, r.Max = medianOf(goodputs), record.Unknown(), record.Unknown()
	if len(next) > 0 {
		r.NextMax = record.Number(slices.Max(next))
	}
	if len(goodputs) > 0 {
		r.Min, r.Max = record.Number(slices.Min(goodputs)), record.Number(slices.Max(goodputs))
	}
}

// medianOf returns the median, unknown where there is nothing.
func medianOf(x []float64) record.Number {
	if len(x) == 0 {
		return record.Unknown()
	}
	return record.Number(median(x))
}
