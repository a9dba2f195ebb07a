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
	Period   kintsugi.Step // C: in C steps, as many bytes are saved as the model has
	Fraction float64       // r in (0, 1]: a plan is due every r·C steps
	Choice   Choice
	MaxAge   kintsugi.Step // of a saved chunk, in steps; 0: any
	Seed     uint64        // of Random and RecentlyUsed
	Sample   int           // RecentlyUsed looks at every Sample-th access; 0 is 2, as in CPR
}

// Limits, so that bytes times steps fit into an int64.
const (
	maxBytes  = 1 << 44
	maxPeriod = 1 << 17
)

// Planner makes the plans of one run. One goroutine at a time may use it.
type Planner struct {
	cfg     Config
	total   int64
	largest int64 // bytes of the largest chunk
	random  *rand.Rand

	// The bytes that may be spent, times Period, so that nothing is rounded. Invariant: at least 0
	// and at most most().
	credit int64
	last   kintsugi.Step // of the last plan

	saved    []kintsugi.Step // by chunk: when the saved values were current
	inFlight []bool          // chosen, and not known to be durable yet
	retry    []bool          // a save failed: it goes first

	cursor    int      // of RoundRobin and Threshold: where the next plan begins
	threshold float64  // of Threshold: distance per byte
	counts    []uint64 // of MostUsed: accesses since the chunk was last chosen
	used      usedList // of RecentlyUsed
	order     []int    // scratch
}

// Plan is a decision about one partial save.
type Plan struct {
	Step   kintsugi.Step // whose values are to be saved
	Chunks []kintsugi.ChunkID
	Bytes  int64
}

// New returns a planner of a run whose chunks are all saved with their values of step 0. Settings
// that make no sense are a kintsugi.ErrUsage.
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

// Set changes period and fraction from the next plan on. The bytes that were earned are kept.
// Values out of range are a kintsugi.ErrUsage.
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

// SetMaxAge changes how old a saved chunk may become, in steps; 0: any. A caller that wants a
// number of periods must call it whenever the period changes. If the maximum age is less than a
// period, all chunks become too old before it is their turn, and chunks that move most are saved no
// more often than the rest.
func (p *Planner) SetMaxAge(oldest kintsugi.Step) { p.cfg.MaxAge = oldest }

// Begin sets the planner to a run that stands at a step; saved has, by chunk, the step whose values
// are saved. No saves are under way, and no bytes were earned: a run that goes on after a failure
// does not make up at once for the saves that it missed. It panics unless saved has every chunk.
func (p *Planner) Begin(step kintsugi.Step, saved []kintsugi.Step) {
	if len(saved) != len(p.saved) {
		panic(fmt.Sprintf("scar: %d saved chunks of %d", len(saved), len(p.saved)))
	}
	copy(p.saved, saved)
	clear(p.inFlight)
	clear(p.retry)
	p.last, p.credit = step, 0
}

// most is the largest credit that is kept: the bytes of the model, and of one chunk that the
// planner waits for. If a store takes nothing for hours, one plan does not make up for that.
func (p *Planner) most() int64 { return (p.total + p.largest) * int64(p.cfg.Period) }

// earn adds to the credit.
func (p *Planner) earn(credit int64) { p.credit = min(p.most(), p.credit+credit) }

// Due reports whether a plan should be made at a step.
func (p *Planner) Due(step kintsugi.Step) bool {
	interval := p.cfg.Fraction * float64(p.cfg.Period)
	count := func(s kintsugi.Step) float64 { return math.Floor(float64(s)/interval + 1e-9) }
	return step > p.last && count(step) > count(p.last)
}

// Plan chooses the chunks to save of a step's values. distances are the squared distances of all
// chunks from their saved values, and finite; they may be nil for a Choice that does not need them
// (NeedsDistances). A chunk at distance 0 costs nothing, because its saved values are current. The
// chosen chunks are not chosen again before Done. Steps must ascend: if step is not after that of
// the last plan, the plan is empty.
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

// Done ends a plan: its chunks are durable, or the save failed. If it failed, the chunks go first
// in the next plan, and their bytes may be spent again.
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

// Bytes returns the bytes of a chunk when it is saved.
func (p *Planner) Bytes(c kintsugi.ChunkID) int64 { return p.cfg.Bytes[c] }

// SavedStep returns the step whose values of a chunk are saved.
func (p *Planner) SavedStep(c kintsugi.ChunkID) kintsugi.Step { return p.saved[c] }

// take puts a chunk into the plan, and reports whether there were enough bytes for it.
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

// takeOverdue takes the overdue chunks, oldest first, and reports whether it could take all of
// them.
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
