package role

import (
	"log/slog"
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/fade"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/ledger"
	"github.com/kintsugi-ml/kintsugi/recovery/scar"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// needed is the number of losses of shards after which a secondary running checkpoint is no longer
// assumed to be needed rarely. One loss may be chance.
const needed = 2

// planner plans the saves of the running checkpoint for the conductor of one view: one plan over
// the chunks of all shards. With an adaptive --recovery it also learns what saves and failures
// cost, and sets the fraction and the period.
type planner struct {
	*scar.Planner
	knobs job.ScarKnobs
	learn *learning // nil: fraction and period are fixed

	choose *chooser // nil: the number of replicas is fixed

	chunks int // number of chunks of the model
	blind  bool
	log    *slog.Logger
}

// Begin implements conductor.Planner. If some shard does not say what was saved of it, nothing is
// planned in this view: a bad answer must not kill the conductor.
func (p *planner) Begin(step kintsugi.Step, saved []kintsugi.Step) {
	if p.blind = len(saved) != p.chunks; p.blind {
		p.log.Error("no chunks are saved in this view: not every shard knows what is saved of it", "chunks", p.chunks, "known", len(saved))
		return
	}
	p.Planner.Begin(step, saved)
}

// Due implements conductor.Planner.
func (p *planner) Due(step kintsugi.Step) bool { return !p.blind && p.Planner.Due(step) }

// planner returns a function that makes the planner of a view, or nil if there is no running
// checkpoint.
func (p *Process) planner(l *kintsugi.Layout, self *announced) func(v kintsugi.View) (conductor.Planner, error) {
	knobs := p.Protects().Running
	if knobs == nil {
		return nil
	}
	var before *planner // of the last view that this process conducted; views come one after the other
	return func(v kintsugi.View) (conductor.Planner, error) {
		schedule, err := p.Schedule()
		if err != nil {
			return nil, err
		}
		x, err := newPlanner(*knobs, l, kernels.Rule(schedule.Rule), v, p.log)
		if err != nil {
			return nil, err
		}
		if err := x.goOn(before); err != nil {
			return nil, err
		}
		x.choose = p.chooser(l, schedule.Rule, v, self)
		before = x
		return x, nil
	}
}

func newPlanner(knobs job.ScarKnobs, l *kintsugi.Layout, rule kernels.Rule, v kintsugi.View, log *slog.Logger) (*planner, error) {
	if knobs.Behind && v.Keeps != 0 && v.Losses >= needed {
		knobs.Fraction, knobs.Period, knobs.Behind = job.ScarFraction, job.ScarPeriod, false
	}
	cfg := scar.Config{Period: knobs.Period, Fraction: knobs.Fraction, Choice: knobs.Choice, MaxAge: job.ScarAges * knobs.Period, Seed: uint64(v.Number)}
	total, whole := 0.0, 0.0
	for _, c := range l.Chunks {
		b := knobs.Bytes(c.Len(), rule.States())
		cfg.Bytes = append(cfg.Bytes, b)
		total += float64(b)
		whole += float64(4 * (1 + rule.States()) * c.Len())
	}
	// With increments, more chunks are saved in C steps, as many as have the bytes of the model.
	// Plans are due equally often.
	if period := max(1, kintsugi.Step(math.Ceil(float64(knobs.Period)*total/whole))); period < knobs.Period {
		knobs.Fraction, knobs.Period = min(1, knobs.Fraction*float64(knobs.Period)/float64(period)), period
		cfg.Period, cfg.Fraction = knobs.Period, knobs.Fraction
	}
	inner, err := scar.New(cfg)
	p := &planner{Planner: inner, knobs: knobs, chunks: len(l.Chunks), log: log}
	if knobs.Adaptive {
		p.learn = &learning{failures: float64(v.Losses), book: ledger.New(50), bytes: total, log: log}
		if knobs.Behind {
			p.learn.rare = hostEvery.Seconds()
		}
	}
	return p, err
}

// goOn takes over what the planner of an earlier view has learnt, if there is one. The times of
// saves and steps do not depend on the view, and if servers die every few seconds, no view is long
// enough to learn them.
func (p *planner) goOn(before *planner) error {
	if p.learn == nil || before == nil || before.learn == nil {
		return nil
	}
	l, b := p.learn, before.learn
	l.busy, l.idle, l.saving, l.store, l.share = b.busy, b.idle, b.saving, b.store, b.share
	if !b.enough() && p.knobs.Behind != before.knobs.Behind {
		return nil // begin with the assumptions
	}
	// The cost of a failure was measured with this period, so the two belong together.
	l.rework = b.rework
	return p.set(before.knobs.Period, before.knobs.Fraction)
}

// set changes the period and the fraction, and with the period the largest age of a saved chunk.
func (p *planner) set(period kintsugi.Step, fraction float64) error {
	if err := p.Set(period, fraction); err != nil {
		return err
	}
	p.SetMaxAge(job.ScarAges * period)
	p.knobs.Period, p.knobs.Fraction = period, fraction
	return nil
}

// Plan implements conductor.Planner.
func (p *planner) Plan(step kintsugi.Step, distances []float64) []kintsugi.ChunkID {
	if p.learn != nil && step >= p.learn.next {
		p.learn.next = step + p.knobs.Period
		p.adapt(step, distances)
	}
	plan := p.Planner.Plan(step, distances)
	if p.learn != nil && len(plan.Chunks) > 0 {
		p.learn.begin(len(plan.Chunks))
	}
	return plan.Chunks
}

// Done implements conductor.Planner.
func (p *planner) Done(step kintsugi.Step, chunks []kintsugi.ChunkID, durable bool) {
	bytes := int64(0)
	for _, c := range chunks {
		bytes += p.Bytes(c)
	}
	p.Planner.Done(scar.Plan{Step: step, Chunks: chunks, Bytes: bytes}, durable)
	if p.learn != nil {
		p.learn.end(len(chunks))
	}
}

// Age implements conductor.Planner.
func (p *planner) Age(step kintsugi.Step, c kintsugi.ChunkID) kintsugi.Step {
	if int(c) >= p.chunks {
		return 0
	}
	return step - min(step, p.SavedStep(c))
}

// Observe implements conductor.Planner.
func (p *planner) Observe(e kintsugi.RunEvent) {
	if p.learn == nil {
		return
	}
	p.learn.observe(e)
	if p.choose != nil {
		p.choose.observe(p.learn, e)
	}
}

// adapt sets the period and the fraction from the measurements so far.
func (p *planner) adapt(step kintsugi.Step, distances []float64) {
	c, ok := p.learn.conditions(step, p.knobs.Period, p.knobs.Fraction, p.Uneven(step, distances))
	if !ok {
		return
	}
	period, fraction, why := scar.Adapt(c, job.ScarLongest)
	before := p.knobs
	if err := p.set(period, fraction); err != nil {
		p.learn.log.Error("set how chunks are saved", "err", err)
		return
	}
	if period != before.Period || fraction != before.Fraction {
		p.learn.log.Info("chunks are saved by what failures and saves cost", "step", step, "fraction", fraction, "period_steps", period, "why", why)
	}
}

// learning is what a conductor has measured in its view.
type learning struct {
	failures float64 // of the run, before this view
	rare     float64 // assumed seconds without a failure at first, if more than believed; 0: not used
	book     *ledger.Ledger
	bytes    float64 // of the model, as it is saved
	log      *slog.Logger
	next     kintsugi.Step // the step from which fraction and period are set again

	flying     int         // number of chunks being saved
	busy, idle fade.Spread // seconds of a step while chunks are being saved, and while none are
	saving     fade.Mean   // duration of a plan's saves, in steps
	lasts      float64     // the same for the current plan, so far
	written    float64     // durable bytes of the current plan
	took       float64     // seconds until they were durable
	share      fade.Mean   // of the model that a plan saves
	store      fade.Line   // seconds until a plan is durable, by its bytes
	rework     fade.Mean   // cost of the loss of a shard, in steps
}

func (l *learning) begin(chunks int) { l.flying, l.lasts, l.written, l.took = chunks, 0, 0, 0 }

// end notes that chunks were saved, or failed to be.
func (l *learning) end(chunks int) { l.flying -= min(l.flying, chunks) }

func (l *learning) observe(e kintsugi.RunEvent) {
	switch e := e.(type) {
	case kintsugi.StepEvent:
		seconds := (e.Wait + e.Apply).Seconds()
		l.book.Observe(ledger.Step{Step: e.Step, Loss: e.Loss, Seconds: seconds, SquaredNorm: e.Norm * e.Norm})
		if l.flying > 0 {
			l.busy.Add(seconds)
			l.lasts++
		} else {
			l.idle.Add(seconds)
		}
	case kintsugi.CheckpointEvent:
		l.written, l.took = l.written+float64(e.Bytes), max(l.took, e.Took.Seconds())
		if l.flying == 0 && e.Running && e.Err == "" && l.took > 0 { // the last shard of a plan: all of them began together
			l.store.Add(l.written, l.took)
			l.share.Add(l.written / l.bytes)
			l.saving.Add(l.lasts)
		}
	case kintsugi.ExposureEvent:
		l.book.Exposed(e.Shards)
		for i := range e.Shards {
			back, _ := l.book.Back(i)
			if steps, ok := l.book.Rework(back); ok {
				l.rework.Add(steps)
			}
		}
	}
}

// believed is the assumed number of steps without a failure, before it has been measured.
const believed = 1000

// enough reports whether there are enough measurements to set fraction and period.
func (l *learning) enough() bool {
	return l.busy.Weight()+l.idle.Weight() >= 3 && l.rework.Weight() >= 3 && l.share.Weight() >= 3
}

// conditions returns the measurements at a step, while chunks were saved with the given period and
// fraction. ok is false if there are not enough.
func (l *learning) conditions(step, period kintsugi.Step, fraction, uneven float64) (c scar.Conditions, ok bool) {
	if !l.enough() {
		return c, false
	}
	idle := l.idle
	if idle.Weight() < 3 { // chunks are being saved all the time
		idle = l.busy
	}
	second := 1 / max(idle.Value(), 1e-9) // in steps
	latency, perByte := l.store.Fit()
	// The cost of saves for the steps: steps during a save take longer. A difference below the
	// standard error is raised to that error. Otherwise a measurement that shows no cost by chance
	// would make saves come as fast as the store permits. The part of the cost that depends on the
	// bytes is the same as that of the time of a save.
	fixed := latency / max(l.store.Mean(), 1e-9)
	cost := l.saving.Value() * max(l.busy.Value()-idle.Value(), math.Sqrt(l.busy.Uncertain()+idle.Uncertain())) * second
	return scar.Conditions{
		FailureEvery: (float64(step) + max(believed, l.rare*second)) / (l.failures + 1),
		ReworkPerAge: max(1e-3, l.rework.Value()) / (float64(period) * (1 - uneven + uneven*fraction)),
		Uneven:       uneven,
		ModelCost:    cost * (1 - fixed) / max(l.share.Value(), 1e-9),
		SaveCost:     cost * fixed,
		Bytes:        int64(l.bytes),
		BytesPerStep: 1 / (second * max(perByte, 1e-15)) / 2, // the store may have other users
		StepsPerSave: latency * second,
	}, true
}
