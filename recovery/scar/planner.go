package scar

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// Config says what is saved, how often, and how it is chosen.
type Config struct {
	Bytes    []int64       // of each chunk when it is saved; all positive
	Period   kintsugi.Step // C: every C steps as many bytes are saved as the model has
	Fraction float64       // r in (0, 1]: a plan is due every r·C steps
	Choice   Choice
	MaxAge   kintsugi.Step // of a saved chunk, in steps; 0: any
	Seed     uint64        // of Random and RecentlyUsed
	Sample   int           // RecentlyUsed looks at every so many accesses; 0 is 2, as in CPR
}

// Limits, so that bytes times steps fit into an int64.
const (
	maxBytes  = 1 << 44
	maxPeriod = 1 << 17
)

// Planner makes the plans of one run. One goroutine owns it.
type Planner struct {
	cfg     Config
	total   int64
	largest int64 // bytes of a chunk
	random  *rand.Rand

	// What may be spent, times Period, so that nothing is rounded. Invariant: at least 0 and at most most().
	credit int64
	last   kintsugi.Step // of the last plan

	saved    []kintsugi.Step // by chunk: when the saved values were current
	inFlight []bool          // chosen, and not yet known to be durable
	retry    []bool          // a save failed: it goes first

	cursor    int      // of RoundRobin and Threshold: where the next plan begins
	threshold float64  // of Threshold: distance per byte
	counts    []uint64 // of MostUsed: accesses since the chunk was last chosen
	used      usedList // of RecentlyUsed
	order     []int    // scratch
}

// Plan is a partial save that was decided.
type Plan struct {
	Step   kintsugi.Step // whose values are to be saved
	Chunks []kintsugi.ChunkID
	Bytes  int64
}

// New returns a planner of a run whose chunks are all saved with their values of step 0. A number that makes no sense
// is a kintsugi.ErrUsage.
func New(cfg Config) (*Planner, error) {
	p := &Planner{cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 0x5ca2))}
	n := len(cfg.Bytes)
	p.saved, p.inFlight, p.retry, p.counts = make([]kintsugi.Step, n), make([]bool, n), make([]bool, n), make([]uint64, n)
	for i, b := range cfg.Bytes {
		if b <= 0 || p.total >= maxBytes-b {
			return nil, fmt.Errorf("%w: partial checkpoints: chunk %d has %d bytes", kintsugi.ErrUsage, i, b)
		}
		p.total += b
		p.largest = max(p.largest, b)
	}
	if n == 0 || cfg.Choice >= choices || cfg.Sample < 0 {
		return nil, fmt.Errorf("%w: partial checkpoints: %d chunks, chosen by %v, every access in %d", kintsugi.ErrUsage, n, cfg.Choice, cfg.Sample)
	}
	if cfg.Sample == 0 {
		p.cfg.Sample = 2
	}
	p.used.member = make([]bool, n)
	return p, p.Set(cfg.Period, cfg.Fraction)
}

// Set changes period and fraction from the next plan on. What was earned is kept.
func (p *Planner) Set(period kintsugi.Step, fraction float64) error {
	if period < 1 || period > maxPeriod || !(fraction > 0 && fraction <= 1) {
		return fmt.Errorf("%w: partial checkpoints: fraction %g of the model, the whole in %d steps; want a fraction in (0, 1] and 1 to %d steps",
			kintsugi.ErrUsage, fraction, period, maxPeriod)
	}
	old := p.cfg.Period
	if old != period {
		p.credit = p.credit / int64(old) * int64(period) // whole bytes; less than one is forgotten
	}
	p.cfg.Period, p.cfg.Fraction = period, fraction
	return nil
}

// SetMaxAge changes how old a saved chunk may become, in steps; 0: any. A caller that means it in
// periods tells it whenever it changes these: where the oldest is younger than a period, all chunks
// are too old before it is their turn, and what moves most goes no more often than the rest.
func (p *Planner) SetMaxAge(oldest kintsugi.Step) { p.cfg.MaxAge = oldest }

// Begin makes the planner that of a run which stands at a step, with chunks that are saved with
// their values of the steps in saved. Nothing is on its way, and nothing was earned: a run that
// goes on after a failure does not save at once what it did not save meanwhile. It panics unless
// saved has every chunk.
func (p *Planner) Begin(step kintsugi.Step, saved []kintsugi.Step) {
	if len(saved) != len(p.saved) {
		panic(fmt.Sprintf("scar: %d saved chunks of %d", len(saved), len(p.saved)))
	}
	copy(p.saved, saved)
	clear(p.inFlight)
	clear(p.retry)
	p.last, p.credit = step, 0
}

// most is the credit that is kept: the bytes of the model, and of a chunk that is waited for. What
// a store did not take for hours is not made up for in one plan.
func (p *Planner) most() int64 { return (p.total + p.largest) * int64(p.cfg.Period) }

// earn adds to the credit.
func (p *Planner) earn(credit int64) { p.credit = min(p.most(), p.credit+credit) }

// Due reports whether a plan should be made at a step.
func (p *Planner) Due(step kintsugi.Step) bool {
	interval := p.cfg.Fraction * float64(p.cfg.Period)
	count := func(s kintsugi.Step) float64 { return math.Floor(float64(s)/interval + 1e-9) }
	return step > p.last && count(step) > count(p.last)
}

// Plan chooses what to save of a step's values. distances are those of all chunks to their saved
// values, squared, and finite; they may be nil for a Choice that does not ask for them
// (NeedsDistances). A chunk at distance 0 costs nothing: what is saved of it is current. The chosen
// chunks are not chosen again before Done. Steps ascend: for one that is not after the last plan's
// the plan is empty.
func (p *Planner) Plan(step kintsugi.Step, distances []float64) Plan {
	if n := len(p.cfg.Bytes); p.cfg.Choice.NeedsDistances() && len(distances) != n {
		panic(fmt.Sprintf("scar: %d distances of %d chunks", len(distances), n))
	}
	plan := Plan{Step: step}
	if step <= p.last {
		return plan
	}
	p.earn(p.total * int64(min(p.cfg.Period, step-p.last)))
	p.last = step
	if p.cfg.Choice.NeedsDistances() {
		for c, d := range distances {
			if d == 0 && !p.inFlight[c] && !p.retry[c] {
				p.saved[c] = step
			}
		}
	}
	if p.cfg.Choice == Threshold {
		p.scan(&plan, distances)
		return plan
	}
	if p.takeOverdue(&plan) {
		p.choose(&plan, distances)
	}
	return plan
}

// Done ends a plan: its chunks are durable, or the save failed. Then they go first in the next plan, and what
// they cost may be spent again.
func (p *Planner) Done(plan Plan, durable bool) {
	for _, c := range plan.Chunks {
		p.inFlight[c] = false
		p.retry[c] = !durable
		if durable {
			p.saved[c] = max(p.saved[c], plan.Step)
		}
	}
	if !durable {
		p.earn(plan.Bytes * int64(p.cfg.Period))
	}
}

// Bytes returns those of a chunk when it is saved.
func (p *Planner) Bytes(c kintsugi.ChunkID) int64 { return p.cfg.Bytes[c] }

// SavedStep returns the step whose values are saved of a chunk.
func (p *Planner) SavedStep(c kintsugi.ChunkID) kintsugi.Step { return p.saved[c] }

// take puts a chunk into the plan, and reports whether there were bytes for it.
func (p *Planner) take(plan *Plan, c int) bool {
	b := p.cfg.Bytes[c]
	if b*int64(p.cfg.Period) > p.credit {
		return false
	}
	p.credit -= b * int64(p.cfg.Period)
	p.inFlight[c], p.counts[c] = true, 0
	p.used.remove(c)
	plan.Chunks = append(plan.Chunks, kintsugi.ChunkID(c))
	plan.Bytes += b
	return true
}

func (p *Planner) overdue(c int, step kintsugi.Step) bool {
	return p.retry[c] || p.cfg.MaxAge > 0 && step-p.saved[c] >= p.cfg.MaxAge
}

// takeOverdue takes what is overdue, oldest first, and reports whether it came to an end.
func (p *Planner) takeOverdue(plan *Plan) bool {
	p.order = p.order[:0]
	for c := range p.saved {
		if !p.inFlight[c] && p.overdue(c, plan.Step) {
			p.order = append(p.order, c)
		}
	}
	slices.SortFunc(p.order, func(a, b int) int { return cmp.Or(cmp.Compare(p.saved[a], p.saved[b]), cmp.Compare(a, b)) })
	return p.takeAll(plan, p.order)
}

// takeAll takes chunks in order, until one does not fit.
func (p *Planner) takeAll(plan *Plan, order []int) bool {
	for _, c := range order {
		if !p.take(plan, c) {
			return false
		}
	}
	return true
}
