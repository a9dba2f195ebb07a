package measure

import (
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/look"
	"github.com/kintsugi-ml/kintsugi/internal/cost"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/launch/report"
	"github.com/kintsugi-ml/kintsugi/internal/virtual"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

// simulation is the simulate command.
type simulation struct {
	workers              int
	consistency          string
	model                string
	optimizer            string
	rate, momentum       float64
	batch                int
	steps                uint64
	target               float64
	seed                 uint64
	times, trace         string
	mean, apply, rebirth time.Duration
	mtbf                 time.Duration
	slow                 []string
	outage               time.Duration
	lose                 float64
	older, seeds         uint64
	out                  string
	dataDir              string
	price                string
}

// SimulateCommand returns the command that trains in virtual time.
func SimulateCommand() *cobra.Command {
	s := &simulation{}
	cmd := &cobra.Command{
		Use: "simulate", Short: "Train in virtual time, with workers as slow as you choose", Args: cli.NoArgs,
		Example: "  kintsugi simulate --workers 16 --times exp:1 --consistency dbw\n" +
			"  kintsugi simulate --workers 10000 --consistency dbw:wait --mtbf 4h --slow \"x5 for half from 100s\"\n" +
			"  kintsugi simulate --workers 4 --consistency async --mean 25ms --outage 10m\n" +
			"  kintsugi simulate --workers 4 --consistency async --model digits --mean 100ms --outage 20s --lose 0.33",
		RunE: func(cmd *cobra.Command, _ []string) error { return s.command(cmd) },
	}
	f := cmd.Flags()
	f.IntVar(&s.workers, "workers", 16, "workers")
	f.StringVar(&s.consistency, "consistency", "dbw", "which gradients a step counts, as for train")
	f.StringVar(&s.model, "model", "noisy", "what to train: noisy (a quadratic, for any number of workers), digits or mnist (softmax regression on images of 7x7)")
	f.StringVar(&s.optimizer, "optimizer", "sgd", "sgd, momentum, nesterov, adam, adamw, lazyadam or adagrad")
	f.Float64Var(&s.rate, "learning-rate", 0.2, "learning rate")
	f.Float64Var(&s.momentum, "momentum", 0.9, "momentum, where the optimizer has one")
	f.IntVar(&s.batch, "batch", 16, "examples of one gradient of digits and mnist")
	f.Uint64Var(&s.steps, "steps", 1000, "steps of the run")
	f.Float64Var(&s.target, "target", 0, "end the run when the loss is this small; 0: go on to the last step")
	f.Uint64Var(&s.seed, "seed", 1, "seed of everything random")
	f.StringVar(&s.times, "times", "exp:0.5", "how the time of a gradient is distributed: constant, exp:ALPHA (1 - ALPHA + ALPHA times an exponential), pareto:SHAPE or lognormal:SIGMA")
	f.StringVar(&s.trace, "trace", "", "recorded times instead: the folder of a run, or a file with a JSON object with \"slot\" and \"seconds\" in each line")
	f.DurationVar(&s.mean, "mean", time.Second, "mean time of a gradient")
	f.DurationVar(&s.apply, "apply", 10*time.Millisecond, "time of a step on the servers")
	f.DurationVar(&s.mtbf, "mtbf", 0, "mean time until a worker dies; 0: none does")
	f.DurationVar(&s.rebirth, "rebirth", 30*time.Second, "time until a worker that died is back")
	f.StringArrayVar(&s.slow, "slow", nil, "some are slower for a while, such as \"x5 for half from 100s until 200s\"; may be given more than once")
	f.DurationVar(&s.outage, "outage", 0, "instead of training, let all servers be away for so long in the middle of a run of the real protocol, and say what workers have kept, by each rule")
	f.Float64Var(&s.lose, "lose", 0, "with --outage: this part of the parameters comes back older, as after a partial restore, and what workers have learnt meanwhile with real gradients is worth what the table says")
	f.Uint64Var(&s.older, "older", 32, "with --lose: by how many steps it is older")
	f.Uint64Var(&s.seeds, "seeds", 5, "with --lose: runs of each row")
	f.StringVar(&s.out, "out", "", "a folder for events.jsonl, summary.json and report.html; empty: none")
	f.StringVar(&s.price, "price", "", "what nodes cost, to say what the run would: "+cost.Forms)
	f.StringVar(&s.dataDir, "data-dir", "", "folder of the data sets (default $KINTSUGI_DATA)")
	return cmd
}

// checked returns a usage error for settings that cannot be simulated.
func (s *simulation) checked() error {
	for _, r := range []struct {
		bad    bool
		reason string
	}{
		{s.workers < 1 || s.workers > 100_000, fmt.Sprintf("--workers %d: use 1 to 100000", s.workers)},
		{s.steps < 1, "--steps 0: a run needs at least one"},
		{s.batch < 1, fmt.Sprintf("--batch %d: a gradient needs at least one example", s.batch)},
		{!(s.rate > 0) || math.IsInf(s.rate, 0), fmt.Sprintf("--learning-rate %v must be positive, and a number", s.rate)},
		{!(s.momentum >= 0 && s.momentum < 1), fmt.Sprintf("--momentum %v must be from 0 to below 1", s.momentum)},
		{!(s.target >= 0), fmt.Sprintf("--target %v must be a number that is not negative", s.target)},
		{s.apply < 0, fmt.Sprintf("--apply %v must not be negative", s.apply)},
		{s.mtbf < 0, fmt.Sprintf("--mtbf %v must not be negative", s.mtbf)},
		{s.rebirth <= 0, fmt.Sprintf("--rebirth %v must be positive", s.rebirth)},
		{s.outage < 0, fmt.Sprintf("--outage %v must not be negative", s.outage)},
		{!(s.lose >= 0 && s.lose <= 1), fmt.Sprintf("--lose %v must be a part of the parameters, from 0 to 1", s.lose)},
		{s.lose != 0 && s.outage == 0, "--lose says what comes back after an outage; say how long that is with --outage"},
	} {
		if r.bad {
			return fmt.Errorf("%w: %s", kintsugi.ErrUsage, r.reason)
		}
	}
	return nil
}

// training returns the training that the flags describe.
func (s *simulation) training() (virtual.Training, error) {
	c := virtual.Training{
		Seed: s.seed, Workers: s.workers, Steps: kintsugi.Step(s.steps), Apply: s.apply.Seconds(), Ask: 0.05 * s.mean.Seconds(),
		Lifetime: s.mtbf.Seconds(), Rebirth: s.rebirth.Seconds(),
	}
	var err error
	if c.Consistency, err = agg.Preset(s.consistency); err != nil {
		return c, err
	}
	if err := c.Consistency.Check(s.workers); err != nil {
		return c, err
	}
	rule, err := kintsugi.ParseRule(s.optimizer)
	if err != nil {
		return c, err
	}
	c.Schedule = conductor.Schedule{Rule: rule, LearningRate: s.rate, Momentum: s.momentum}
	if c.Times, err = s.workerTimes(); err != nil {
		return c, err
	}
	for _, text := range s.slow {
		slow, err := virtual.ParseSlowdown(text, s.workers)
		if err != nil {
			return c, err
		}
		c.Slow = append(c.Slow, slow)
	}
	c.Problem, err = s.problem()
	return c, err
}

func (s *simulation) workerTimes() (virtual.Times, error) {
	if s.trace == "" {
		return virtual.ParseTimes(s.times, s.mean.Seconds())
	}
	info, err := os.Stat(s.trace)
	if err != nil {
		return virtual.Times{}, fmt.Errorf("%w: --trace: %w", kintsugi.ErrUsage, err)
	}
	if info.IsDir() {
		run, err := record.ReadRun(s.trace)
		if err != nil {
			return virtual.Times{}, err
		}
		return timesOf(run)
	}
	f, err := os.Open(s.trace)
	if err != nil {
		return virtual.Times{}, fmt.Errorf("%w: --trace: %w", kintsugi.ErrUsage, err)
	}
	defer f.Close()
	times, err := virtual.ReadTimes(f)
	if err != nil {
		return times, fmt.Errorf("--trace %s: %w", s.trace, err)
	}
	return times, nil
}

// timesOf returns the times of gradients in a run. Slots without a finished gradient are left out,
// and the numbers of later slots decrease.
func timesOf(run *record.Run) (virtual.Times, error) {
	bySlot := make(map[uint32][]virtual.Sample)
	for _, step := range run.Steps {
		for _, t := range step.Times {
			if seconds := t.Seconds(); seconds > 0 {
				bySlot[t.Slot] = append(bySlot[t.Slot], virtual.Sample{Seconds: seconds, GivenUp: t.Fate == kintsugi.GivenUp})
			}
		}
	}
	if len(bySlot) == 0 {
		return virtual.Times{}, fmt.Errorf("%w: --trace: the run in %s has not recorded what gradients took", kintsugi.ErrUsage, run.Dir)
	}
	var samples []virtual.Sample
	for i, slot := range slices.Sorted(maps.Keys(bySlot)) {
		for _, s := range bySlot[slot] {
			s.Slot = i
			samples = append(samples, s)
		}
	}
	return virtual.Recorded(samples)
}

func (s *simulation) problem() (virtual.Problem, error) {
	if s.model == "noisy" {
		return virtual.NewNoisy(16, 0.3), nil
	}
	if s.model != "digits" && s.model != "mnist" {
		return nil, fmt.Errorf("%w: --model %q is unknown; use noisy, digits or mnist", kintsugi.ErrUsage, s.model)
	}
	dir := s.dataDir
	if dir == "" {
		dir = os.Getenv("KINTSUGI_DATA")
	}
	set, err := data.Open(s.model, dir)
	if err != nil {
		return nil, err
	}
	return virtual.NewSoftmax(set, 2000, 4, s.batch)
}

func (s *simulation) command(cmd *cobra.Command) error {
	if err := s.checked(); err != nil {
		return err
	}
	switch {
	case s.outage > 0 && s.lose > 0:
		return s.loseInOutage(cmd.Context(), cmd.OutOrStdout())
	case s.outage > 0:
		return s.spendOutage(cmd.OutOrStdout())
	}
	cfg, err := s.training()
	if err != nil {
		return err
	}
	if _, _, err := cost.Parse(s.price); err != nil {
		return err
	}
	rec, err := s.recorder()
	if err != nil {
		return err
	}
	var account record.Account
	h := s.header()
	account.Add(&h)
	quotas, started := 0.0, time.Now()
	loss := 0.0
	var last time.Time
	cfg.Each = func(e kintsugi.StepEvent, params []float32) bool {
		quotas += float64(e.Quota)
		last = e.Time
		step := record.StepOf(e)
		step.Seconds = e.Time.Sub(virtual.Epoch()).Seconds()
		account.Add(step)
		if rec != nil {
			rec.Step(e)
		}
		if s.target > 0 || e.Step == cfg.Steps {
			loss = cfg.Problem.Loss(params)
		}
		return cmd.Context().Err() == nil && (s.target == 0 || loss > s.target)
	}
	r, err := virtual.Train(cfg)
	if err != nil {
		return err
	}
	if err := cmd.Context().Err(); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s, %d workers, times %v: %d steps in %.1f virtual seconds, loss %.4g, mean quota %.1f, %d gradients counted, %d late, %d deaths (%.1f s)\n",
		s.consistency, s.workers, cfg.Times, r.Steps, r.Seconds, loss, quotas/max(1, float64(r.Steps)), r.Counted, r.Late, r.Deaths, time.Since(started).Seconds())
	if b := account.Summary().Cost; b.OnDemand != nil {
		fmt.Fprintln(cmd.OutOrStdout(), look.InMoney(b))
	}
	if rec == nil {
		return nil
	}
	return s.finish(cmd.OutOrStdout(), rec, last)
}

// recorder creates the run directory, if one is wanted. Virtual time begins at the epoch of the
// simulator.
func (s *simulation) recorder() (*record.Recorder, error) {
	if s.out == "" {
		return nil, nil
	}
	config := "simulated: true\nseed: " + strconv.FormatUint(s.seed, 10) + "\n"
	return record.Create(s.out, []byte(config), s.header())
}

// header describes the simulated run: one server, and workers that are paid for even while they are
// dead.
func (s *simulation) header() record.Header {
	return record.Header{
		Start: virtual.Epoch(), Model: s.model, Data: s.model, Consistency: s.consistency, Recovery: "none", Codec: "fp32", Device: "virtual time",
		Servers: 1, Workers: s.workers, Replicas: 1, Steps: s.steps, Prices: s.price, Version: job.Version().Release,
	}
}

func (s *simulation) finish(w io.Writer, rec *record.Recorder, at time.Time) error {
	run, err := rec.Finish(at, "simulated")
	if err != nil {
		return err
	}
	page, err := report.DrawRun(run)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "report: %s\n", page)
	return err
}
