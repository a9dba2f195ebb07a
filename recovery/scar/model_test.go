package scar

import (
	"cmp"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// slow is a slow and obvious Planner: it counts in fractions of bytes, and looks at everything
// each time.
type slow struct {
	cfg    Config
	credit *big.Rat // bytes that may be spent
	last   kintsugi.Step
	saved  []kintsugi.Step
	going  map[int]bool // chosen, and not known to be durable
	failed map[int]bool
	next   int // of RoundRobin
}

func newSlow(cfg Config) *slow {
	return &slow{cfg: cfg, credit: new(big.Rat), saved: make([]kintsugi.Step, len(cfg.Bytes)), going: make(map[int]bool), failed: make(map[int]bool)}
}

func (l *slow) total() (sum, largest int64) {
	for _, b := range l.cfg.Bytes {
		sum, largest = sum+b, max(largest, b)
	}
	return sum, largest
}

func (l *slow) earn(bytes *big.Rat) {
	sum, largest := l.total()
	l.credit.Add(l.credit, bytes)
	if most := new(big.Rat).SetInt64(sum + largest); l.credit.Cmp(most) > 0 {
		l.credit.Set(most)
	}
}

// set changes the period. Less than a byte is forgotten then.
func (l *slow) set(period kintsugi.Step, fraction float64) {
	if period != l.cfg.Period {
		l.credit.SetInt(new(big.Int).Quo(l.credit.Num(), l.credit.Denom()))
	}
	l.cfg.Period, l.cfg.Fraction = period, fraction
}

func (l *slow) begin(step kintsugi.Step, saved []kintsugi.Step) {
	next := l.next
	*l = *newSlow(l.cfg)
	l.last, l.saved, l.next = step, slices.Clone(saved), next
}

// due looks for a multiple of the interval between the plan before and now.
func (l *slow) due(step kintsugi.Step) bool {
	interval := new(big.Rat).Mul(new(big.Rat).SetFloat64(l.cfg.Fraction), new(big.Rat).SetInt64(int64(l.cfg.Period)))
	for m := int64(0); ; m++ {
		switch at := new(big.Rat).Mul(interval, new(big.Rat).SetInt64(m)); {
		case at.Cmp(new(big.Rat).SetInt64(int64(step))) > 0:
			return false
		case at.Cmp(new(big.Rat).SetInt64(int64(l.last))) > 0:
			return true
		}
	}
}

func (l *slow) plan(step kintsugi.Step, distances []float64) (plan Plan) {
	plan.Step = step
	if step <= l.last {
		return plan
	}
	sum, _ := l.total()
	l.earn(big.NewRat(sum*int64(min(l.cfg.Period, step-l.last)), int64(l.cfg.Period)))
	l.last = step
	var late, others []int
	for c := range l.saved {
		switch {
		case l.going[c]:
			continue
		case l.cfg.Choice == Priority && distances[c] == 0 && !l.failed[c]:
			l.saved[c] = step
			continue // there is nothing to save
		}
		if l.failed[c] || l.cfg.MaxAge > 0 && step >= l.saved[c]+l.cfg.MaxAge {
			late = append(late, c)
		}
		if l.cfg.Choice == Priority && distances[c] > 0 {
			others = append(others, c)
		}
	}
	slices.SortStableFunc(late, func(a, b int) int { return cmp.Compare(l.saved[a], l.saved[b]) })
	slices.SortStableFunc(others, func(a, b int) int {
		return cmp.Or(cmp.Compare(distances[b]/float64(l.cfg.Bytes[b]), distances[a]/float64(l.cfg.Bytes[a])), cmp.Compare(l.saved[a], l.saved[b]))
	})
	take := func(c int) bool {
		cost := new(big.Rat).SetInt64(l.cfg.Bytes[c])
		if l.going[c] {
			return true // it was late, and is taken
		}
		if l.credit.Cmp(cost) < 0 {
			return false
		}
		l.credit.Sub(l.credit, cost)
		l.going[c] = true
		plan.Chunks, plan.Bytes = append(plan.Chunks, kintsugi.ChunkID(c)), plan.Bytes+l.cfg.Bytes[c]
		return true
	}
	for _, c := range late {
		if !take(c) {
			return plan // what is late comes before everything else
		}
	}
	for _, c := range others {
		if !take(c) {
			return plan
		}
	}
	for range len(l.saved) {
		if l.cfg.Choice != RoundRobin || !take(l.next) {
			return plan
		}
		l.next = (l.next + 1) % len(l.saved)
	}
	return plan
}

func (l *slow) done(plan Plan, durable bool) {
	for _, c := range plan.Chunks {
		delete(l.going, int(c))
		if l.failed[int(c)] = !durable; durable {
			l.saved[c] = max(l.saved[c], plan.Step)
		}
	}
	if !durable {
		l.earn(new(big.Rat).SetInt64(plan.Bytes))
	}
}

// Whatever happens to its plans, and however the settings change, a planner decides as the slow one.
func TestPlansAreThoseOfASlowPlanner(t *testing.T) {
	for seed := range uint64(100) {
		w := newWorld(seed)
		rng := w.rng
		cfg := Config{Bytes: w.bytes, Period: kintsugi.Step(1 + rng.IntN(30)), Fraction: float64(1+rng.IntN(8)) / 8, Choice: Choice(rng.IntN(2)), MaxAge: kintsugi.Step(rng.IntN(3) * 40)}
		p, l := planner(t, cfg), newSlow(cfg)
		var open []Plan
		planned := 0
		for step := kintsugi.Step(1); step < 300; step++ {
			if w.step(); rng.IntN(3) == 0 {
				w.distances[rng.IntN(len(w.distances))] = 0
			}
			if p.Due(step) != l.due(step) {
				t.Fatalf("seed %d, step %d: a plan is due: %v, after one at step %d with %g of %d steps", seed, step, p.Due(step), l.last, l.cfg.Fraction, l.cfg.Period)
			}
			if p.Due(step) || rng.IntN(20) == 0 {
				at := step - kintsugi.Step(rng.IntN(2)*rng.IntN(2)) // now and then of a step that may be over
				got, want := p.Plan(at, w.distances), l.plan(at, w.distances)
				if got.Step != want.Step || got.Bytes != want.Bytes || !slices.Equal(got.Chunks, want.Chunks) {
					t.Fatalf("seed %d (%v): the plan of step %d is %v, want %v", seed, cfg.Choice, at, got, want)
				}
				planned += len(got.Chunks)
				open = append(open, got)
			}
			for rng.IntN(3) == 0 && len(open) > 0 {
				i := rng.IntN(len(open))
				durable := rng.IntN(4) > 0
				p.Done(open[i], durable)
				l.done(open[i], durable)
				for _, c := range open[i].Chunks {
					if durable {
						w.distances[c] *= rng.Float64()
					}
				}
				open = slices.Delete(open, i, i+1)
			}
			switch rng.IntN(60) {
			case 0:
				period, fraction := kintsugi.Step(1+rng.IntN(30)), float64(1+rng.IntN(8))/8
				if err := p.Set(period, fraction); err != nil {
					t.Fatal(err)
				}
				l.set(period, fraction)
			case 1:
				l.cfg.MaxAge = kintsugi.Step(rng.IntN(60))
				p.SetMaxAge(l.cfg.MaxAge)
			case 2:
				saved := make([]kintsugi.Step, len(w.bytes))
				for c := range saved {
					saved[c] = step - kintsugi.Step(rng.IntN(int(step)))
				}
				p.Begin(step, saved)
				l.begin(step, saved)
				open = nil // a run that begins anew does not know them
			}
			for c, want := range l.saved {
				if got := p.SavedStep(kintsugi.ChunkID(c)); got != want {
					t.Fatalf("seed %d, step %d: chunk %d is saved as of step %d, want %d", seed, step, c, got, want)
				}
			}
		}
		if planned == 0 {
			t.Errorf("seed %d: nothing was ever saved", seed)
		}
	}
}

// A threshold follows the distances: when these become larger or smaller by orders of magnitude, the
// bytes are soon spent again, and on what has moved most.
func TestAThresholdFollowsTheDistances(t *testing.T) {
	const chunks, after = 40, 60
	for _, scale := range []float64{1e-6, 1, 1e6} {
		p := planner(t, Config{Bytes: slices.Repeat([]int64{100}, chunks), Period: 16, Fraction: 0.125, Choice: Threshold})
		var distances [chunks]float64
		var spent int64
		fast, slow := 0, 0
		for step := kintsugi.Step(1); step <= 400; step++ {
			by := 1.0
			if step > 200 {
				by = scale
			}
			if step == 201 {
				for c := range distances {
					distances[c] *= scale
				}
			}
			for c := range distances {
				distances[c] += by * float64(1+99*(c%2)) // every second one moves a hundred times as much
			}
			if !p.Due(step) {
				continue
			}
			plan := p.Plan(step, distances[:])
			for _, c := range plan.Chunks {
				distances[c] = 0
				if step > 200+after && c%2 == 1 {
					fast++
				} else if step > 200+after {
					slow++
				}
			}
			if step > 200+after {
				spent += plan.Bytes
			}
			p.Done(plan, true)
		}
		earned := int64(chunks * 100 * (200 - after) / 16)
		if spent < earned*8/10 || fast < 3*slow {
			t.Errorf("%g times as far: %d of %d bytes are spent, on %d chunks that move fast and %d that do not", scale, spent, earned, fast, slow)
		}
	}
}

// What Adapt returns keeps its three bounds: saves are twice as far apart as a save without bytes
// takes, the store gets no more bytes than it takes in the rest of the time, and the period is at
// most the longest one.
func TestAdaptKeepsWithinWhatTheStoreTakes(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 9))
	bounds := make(map[string]int)
	for range 2000 {
		c := Conditions{FailureEvery: math.Exp(3 + 6*rng.Float64()), ReworkPerAge: 0.5, Uneven: rng.Float64(), ModelCost: rng.Float64(), SaveCost: rng.Float64(),
			Bytes: 1 << 20, BytesPerStep: math.Exp2(8 + 14*rng.Float64()), StepsPerSave: math.Exp(4*rng.Float64() - 3)}
		longest := kintsugi.Step(100 + rng.IntN(1000))
		period, fraction, why := Adapt(c, longest)
		interval := fraction * float64(period)
		takes := c.BytesPerStep * (1 - c.StepsPerSave/max(interval, 1)) // in each step, while a save takes its own time
		if period > longest || fraction > 1 || interval < min(1, float64(period))-1e-9 {
			t.Errorf("%+v: period %d of at most %d, fraction %g (%s)", c, period, longest, fraction, why)
		}
		if period < longest && (interval < 2*c.StepsPerSave-1e-9 || float64(c.Bytes)/float64(period) > takes*(1+1e-9)) {
			t.Errorf("%+v: %g bytes a step in saves every %g steps, of %g steps each; the store takes %g (%s)", c, float64(c.Bytes)/float64(period), interval, c.StepsPerSave, takes, why)
		}
		reason, _, _ := strings.Cut(why, ":")
		bounds[reason]++
	}
	for _, reason := range []string{"saving costs as much as failures", "the store takes no more bytes", "failures are too rare to save more often"} {
		if bounds[reason] < 20 {
			t.Errorf("%q decides %d times of 2000: the conditions do not try it", reason, bounds[reason])
		}
	}
}

// What is a mistake of the caller alone is a panic, at once.
func TestMistakesOfCallersPanic(t *testing.T) {
	p := planner(t, Config{Bytes: []int64{1, 1}, Period: 1, Fraction: 1})
	for name, f := range map[string]func(){
		"saved steps of other chunks": func() { p.Begin(1, []kintsugi.Step{1}) },
		"distances of other chunks":   func() { p.Plan(1, []float64{1}) },
		"no distances":                func() { p.Plan(1, nil) },
		"curvature of other values":   func() { Rise([]float32{1}, []float32{1, 2}, []float32{1, 2}) },
		"saved values of others":      func() { Rise([]float32{1}, []float32{1}, []float32{1, 2}) },
		"a half-life of 0":            func() { NewCurvature(1, 0) },
		"rows of two lengths":         func() { TotalVariation([]float32{1, 2}, []float32{1}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
