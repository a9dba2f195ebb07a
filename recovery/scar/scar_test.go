package scar

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// world is a set of chunks of uneven sizes that move at uneven speeds.
type world struct {
	rng       *rand.Rand
	bytes     []int64
	total     int64
	largest   int64
	speed     []float64
	distances []float64
}

func newWorld(seed uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1))}
	n := 1 + w.rng.IntN(60)
	for range n {
		b := int64(1 + w.rng.IntN(1000))
		w.bytes, w.total, w.largest = append(w.bytes, b), w.total+b, max(w.largest, b)
		w.speed = append(w.speed, math.Exp(3*w.rng.NormFloat64()))
	}
	w.distances = make([]float64, n)
	return w
}

func (w *world) step() {
	for c := range w.distances {
		w.distances[c] += w.speed[c] * (0.5 + w.rng.Float64())
	}
}

// save makes a plan durable.
func (w *world) save(p *Planner, plan Plan) {
	for _, c := range plan.Chunks {
		w.distances[c] = 0
	}
	p.Done(plan, true)
}

func planner(t *testing.T, cfg Config) *Planner {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var fractions = []float64{1, 0.5, 0.25, 0.125, 0.3, 0.01}

// The same bytes are saved in C steps, whatever the fraction and the choice.
func TestTheSameBytesForEveryFraction(t *testing.T) {
	for seed := range uint64(60) {
		w := newWorld(seed)
		cfg := Config{Bytes: w.bytes, Period: kintsugi.Step(1 + w.rng.IntN(40)), Fraction: fractions[seed%6], Choice: Choice(seed / 6 % 4), Seed: seed}
		p := planner(t, cfg)
		spent := int64(0)
		for step := kintsugi.Step(1); step <= 300; step++ {
			w.step()
			if !p.Due(step) {
				continue
			}
			plan := p.Plan(step, w.distances)
			w.save(p, plan)
			sum := int64(0)
			for i, c := range plan.Chunks {
				if sum += w.bytes[c]; slices.Contains(plan.Chunks[:i], c) {
					t.Fatalf("%v: chunk %d is saved twice in a plan", cfg.Choice, c)
				}
			}
			spent += plan.Bytes
			earned := w.total * int64(step)
			if sum != plan.Bytes || spent*int64(cfg.Period) > earned {
				t.Fatalf("%+v: %d bytes planned until step %d, %d in the last plan of %d; %d were earned", cfg, spent, step, plan.Bytes, sum, earned/int64(cfg.Period))
			}
			// A threshold may leave more for later. A single plan saves at most everything.
			if left := earned - spent*int64(cfg.Period); cfg.Choice != Threshold && left >= w.largest*int64(cfg.Period) {
				t.Fatalf("%+v: at step %d %d bytes are left, the largest chunk has %d", cfg, step, left/int64(cfg.Period), w.largest)
			}
		}
	}
}

// greedy is the definition of a plan by priority: it takes the largest distance per byte, again and
// again, until that does not fit.
func greedy(w *world, budget float64) (plan []kintsugi.ChunkID) {
	d := slices.Clone(w.distances)
	for {
		best := -1
		for c := range d {
			if d[c] > 0 && (best < 0 || d[c]/float64(w.bytes[c]) > d[best]/float64(w.bytes[best])) {
				best = c
			}
		}
		if best < 0 || float64(w.bytes[best]) > budget {
			return plan
		}
		budget -= float64(w.bytes[best])
		d[best] = 0
		plan = append(plan, kintsugi.ChunkID(best))
	}
}

func TestPriorityTakesTheLargestDistancePerByteOfAllShards(t *testing.T) {
	for seed := range uint64(60) {
		w := newWorld(seed)
		const period = 16
		p := planner(t, Config{Bytes: w.bytes, Period: period, Fraction: fractions[seed%6]})
		spent := 0.0
		for step := kintsugi.Step(1); step <= 100; step++ {
			w.step()
			if !p.Due(step) {
				continue
			}
			want := greedy(w, float64(w.total)*float64(step)/period-spent+1e-6)
			plan := p.Plan(step, w.distances)
			if !slices.Equal(plan.Chunks, want) {
				t.Fatalf("seed %d step %d: chunks %v, want %v", seed, step, plan.Chunks, want)
			}
			spent += float64(plan.Bytes)
			w.save(p, plan)
		}
	}
}

func TestRoundRobinSavesEachChunkOnceInAPeriod(t *testing.T) {
	p := planner(t, Config{Bytes: slices.Repeat([]int64{7}, 24), Period: 12, Fraction: 0.125, Choice: RoundRobin})
	for step := kintsugi.Step(1); step <= 120; step++ {
		if p.Due(step) {
			p.Done(p.Plan(step, nil), true)
		}
		for c := range kintsugi.ChunkID(24) {
			if age := step - p.SavedStep(c); age > 12+2 {
				t.Fatalf("chunk %d is %d steps old", c, age)
			}
		}
	}
}

// Without a maximum age, a chunk that hardly moves is never saved. With one, no chunk is older than
// that.
func TestNothingStarves(t *testing.T) {
	for _, choice := range []Choice{Priority, Threshold, Random, MostUsed} {
		for seed := range uint64(20) {
			w := newWorld(seed)
			w.speed[0] = 1e-12
			const period, oldest, steps = 10, 30, 400
			cfg := Config{Bytes: w.bytes, Period: period, Fraction: fractions[seed%5], Choice: choice, MaxAge: oldest, Seed: seed}
			interval := kintsugi.Step(math.Ceil(cfg.Fraction * period))
			p := planner(t, cfg)
			for step := kintsugi.Step(1); step <= steps; step++ {
				w.step()
				if p.Due(step) {
					w.save(p, p.Plan(step, w.distances))
				}
				for c := range w.bytes {
					if age := step - p.SavedStep(kintsugi.ChunkID(c)); age > oldest+period+2*interval {
						t.Fatalf("%+v: chunk %d is %d steps old at step %d", cfg, c, age, step)
					}
				}
			}
		}
	}
	w := newWorld(3)
	w.speed[0] = 1e-12
	p := planner(t, Config{Bytes: w.bytes, Period: 10, Fraction: 0.125})
	for step := kintsugi.Step(1); step <= 400; step++ {
		w.step()
		if p.Due(step) {
			w.save(p, p.Plan(step, w.distances))
		}
	}
	if p.SavedStep(0) != 0 {
		t.Errorf("the chunk that hardly moves is saved without a maximum age: then this test shows nothing")
	}
}

// Threshold sorts nothing, and leaves hardly more distance unsaved than priority does.
func TestAThresholdIsNearlyAsGoodAsSorting(t *testing.T) {
	left := func(choice Choice) (sum float64) {
		for seed := range uint64(10) {
			w := newWorld(seed)
			p := planner(t, Config{Bytes: w.bytes, Period: 16, Fraction: 0.125, Choice: choice, Seed: seed})
			for step := kintsugi.Step(1); step <= 400; step++ {
				w.step()
				if p.Due(step) {
					w.save(p, p.Plan(step, w.distances))
				}
				if step > 100 {
					left, speeds := 0.0, 0.0
					for c, d := range w.distances {
						left += d
						speeds += w.speed[c]
					}
					sum += left / speeds
				}
			}
		}
		return sum
	}
	priority, threshold, random := left(Priority), left(Threshold), left(Random)
	t.Logf("distance left: priority %.4g, threshold %.4g, random %.4g", priority, threshold, random)
	if threshold > 1.25*priority || random < 1.5*priority {
		t.Errorf("distance left: priority %g, threshold %g, random %g", priority, threshold, random)
	}
}

func TestRandomIsEvenAndReplays(t *testing.T) {
	run := func(seed uint64) (plans []kintsugi.ChunkID, times [10]int) {
		p := planner(t, Config{Bytes: slices.Repeat([]int64{1}, 10), Period: 10, Fraction: 0.2, Choice: Random, Seed: seed})
		for step := kintsugi.Step(2); step <= 10000; step += 2 {
			plan := p.Plan(step, nil)
			p.Done(plan, true)
			plans = append(plans, plan.Chunks...)
			for _, c := range plan.Chunks {
				times[c]++
			}
		}
		return plans, times
	}
	a, times := run(1)
	b, _ := run(1)
	other, _ := run(2)
	if !slices.Equal(a, b) || slices.Equal(a, other) {
		t.Error("a seed is one sequence of plans")
	}
	for c, n := range times {
		if math.Abs(float64(n)-1000) > 4*math.Sqrt(1000*0.8) { // 5000 plans take each with probability 1/5
			t.Errorf("chunk %d is taken %d times of 5000, want about 1000", c, n)
		}
	}
}

func TestAFailedSaveIsTriedFirst(t *testing.T) {
	p := planner(t, Config{Bytes: []int64{10, 10, 10, 10}, Period: 4, Fraction: 0.5})
	distances := []float64{1, 2, 3, 4}
	first := p.Plan(2, distances)
	if !slices.Equal(first.Chunks, []kintsugi.ChunkID{3, 2}) {
		t.Fatalf("first plan %v", first)
	}
	if second := p.Plan(4, []float64{1, 2, 30, 40}); !slices.Equal(second.Chunks, []kintsugi.ChunkID{1, 0}) {
		t.Fatalf("chunks on their way are chosen again: %v", second)
	}
	if again := p.Plan(4, []float64{1, 2, 30, 40}); len(again.Chunks) > 0 || len(p.Plan(1, distances).Chunks) > 0 {
		t.Fatalf("a step is planned twice: %v", again)
	}
	p.Done(first, false)
	if p.SavedStep(3) != 0 {
		t.Error("what failed is not saved")
	}
	// The bytes were given back: with those of two more steps all four chunks would fit, but two of
	// them are still being saved.
	if third := p.Plan(6, []float64{100, 100, 0, 1}); !slices.Equal(third.Chunks, []kintsugi.ChunkID{2, 3}) {
		t.Errorf("after the failure: %v, want 2 and 3 although 2 has not moved", third)
	}
}

func TestAccessesAreCounted(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	zipf := rand.NewZipf(rng, 1.3, 1, 199)
	for _, choice := range []Choice{MostUsed, RecentlyUsed} {
		p := planner(t, Config{Bytes: slices.Repeat([]int64{4}, 200), Period: 100, Fraction: 0.1, Choice: choice, Seed: 1})
		var saves [200]int
		for step := kintsugi.Step(1); step <= 5000; step++ {
			for range 20 {
				p.Accessed(kintsugi.ChunkID(zipf.Uint64()), 1)
			}
			if p.Due(step) {
				plan := p.Plan(step, nil)
				p.Done(plan, true)
				if len(plan.Chunks) > 40 {
					t.Fatalf("%v saves %d rows at a time", choice, len(plan.Chunks))
				}
				for _, c := range plan.Chunks {
					saves[c]++
				}
			}
		}
		hot, cold := 0, 0
		for c, n := range saves {
			if c < 10 {
				hot += n
			} else if c >= 190 {
				cold += n
			}
		}
		if hot < 300 || hot < 3*cold {
			t.Errorf("%v saves the ten hottest rows %d times in 500 plans, the coldest %d times", choice, hot, cold)
		}
	}
	p := planner(t, Config{Bytes: []int64{4, 4, 8}, Period: 1, Fraction: 1, Choice: MostUsed})
	p.Accessed(0, 2)
	p.Accessed(2, 5)
	if plan := p.Plan(1, nil); !slices.Equal(plan.Chunks, []kintsugi.ChunkID{2, 0}) || plan.Bytes != 12 {
		t.Errorf("most used: %v; want 2 (5 accesses of 8 bytes), 0 (2 of 4), and not 1, which nobody has touched", plan)
	}
}

// RecentlyUsed remembers the chunk of every Sample-th access, once, and not more chunks than a plan
// can save. A chunk whose save is under way is not remembered.
func TestEverySoManyAccessesAreRemembered(t *testing.T) {
	p := planner(t, Config{Bytes: slices.Repeat([]int64{4}, 8), Period: 8, Fraction: 0.5, Choice: RecentlyUsed, Sample: 3})
	remembers := func(want ...int) {
		t.Helper()
		got := slices.Sorted(slices.Values(p.used.list))
		if !slices.Equal(got, want) {
			t.Errorf("%v are remembered, want %v", got, want)
		}
		for c, member := range p.used.member {
			if member != slices.Contains(want, c) {
				t.Errorf("chunk %d is taken for a member: %v, of %v", c, member, want)
			}
		}
	}
	for _, a := range []struct {
		chunk kintsugi.ChunkID
		times uint64
		then  []int
	}{{0, 2, nil}, {1, 1, []int{1}}, {2, 2, []int{1}}, {1, 1, []int{1}}, {3, 7, []int{1, 3}}, {4, 1, []int{1, 3}}, {5, 1, []int{1, 3, 5}}, {0, 3, []int{0, 1, 3, 5}}} {
		p.Accessed(a.chunk, a.times)
		remembers(a.then...)
	}
	p.Accessed(6, 3)
	if len(p.used.list) != 4 || p.used.list[3] != 6 {
		t.Errorf("%v are remembered, want 6 and three of those before", p.used.list)
	}
	plan := p.Plan(4, nil)
	for _, c := range plan.Chunks {
		p.Accessed(c, 3)
		if p.used.member[c] {
			t.Errorf("%d is being saved, and remembered", c)
		}
	}
}

func TestTotalVariationIsScaled(t *testing.T) {
	for _, c := range []struct {
		x, y []float32
		want float64
	}{
		{[]float32{1, 3}, []float32{10, 30}, 0},
		{[]float32{4, 0}, []float32{0, 1}, 4},
		{[]float32{3, 1}, []float32{1, 3}, 2},
		{[]float32{0, 0}, []float32{2, 3}, 5},
		{[]float32{2, 3}, []float32{0, 0}, 5},
		{nil, nil, 0},
	} {
		if got := TotalVariation(c.x, c.y); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("TotalVariation(%v, %v) = %g, want %g", c.x, c.y, got, c.want)
		}
	}
}

// cost is what Adapt minimises.
func (c Conditions) cost(period, interval float64) float64 {
	return c.ModelCost/period + c.SaveCost/interval + c.ReworkPerAge/c.FailureEvery*((1-c.Uneven)*period+c.Uneven*interval)
}

func TestAdaptIsYoungsFormulaAndLeast(t *testing.T) {
	young := Conditions{FailureEvery: 2000, ReworkPerAge: 0.5, ModelCost: 4}
	if period, fraction, why := Adapt(young, 1<<17); math.Abs(float64(period)-math.Sqrt(2*4*2000)) > 1 {
		t.Errorf("period %d, fraction %g (%s)", period, fraction, why)
	}
	rng := rand.New(rand.NewPCG(9, 9))
	small := 0
	for range 300 {
		c := Conditions{FailureEvery: math.Exp(6 + 6*rng.Float64()), ReworkPerAge: 0.05 + 0.45*rng.Float64(), Uneven: rng.Float64(),
			ModelCost: 5 * rng.Float64(), SaveCost: math.Exp(-5 * rng.Float64())}
		period, fraction, why := Adapt(c, 1<<17)
		got := c.cost(float64(period), fraction*float64(period))
		for range 100 {
			other := math.Exp(rng.Float64() * 8)
			interval := math.Max(1, other*rng.Float64())
			if period > 10 && other >= 1 && c.cost(other, interval) < got*0.98 {
				t.Fatalf("%+v: period %d fraction %g (%s) costs %g, period %g in steps of %g costs %g", c, period, fraction, why, got, other, interval, c.cost(other, interval))
			}
		}
		if fraction < 0.5 {
			small++
		}
	}
	if small < 30 || small > 270 {
		t.Errorf("%d of 300 fractions are small: the conditions show only one side", small)
	}
	slow := Conditions{FailureEvery: 100, ReworkPerAge: 0.5, Uneven: 0.5, ModelCost: 0.01, Bytes: 5000, BytesPerStep: 100}
	if period, fraction, why := Adapt(slow, 1<<17); period != 50 || fraction != 0.02 {
		t.Errorf("a store that takes 50 steps: period %d, fraction %g (%s)", period, fraction, why)
	}
	if period, fraction, why := Adapt(Conditions{FailureEvery: math.Inf(1), ReworkPerAge: 0.5, ModelCost: 1, SaveCost: 1}, 640); period != 640 || fraction != 1 {
		t.Errorf("no failures: period %d, fraction %g (%s)", period, fraction, why)
	}
}

// The share that Uneven returns is what saving at the best rates avoids, and no rates do better.
func TestUnevenIsWhatTheBestRatesAvoid(t *testing.T) {
	w := newWorld(12)
	p := planner(t, Config{Bytes: w.bytes, Period: 10, Fraction: 1})
	age := kintsugi.Step(7)
	for c := range w.distances { // chunks that were saved at different steps
		p.saved[c] = kintsugi.Step(c % 8)
		w.distances[c] = w.speed[c] * float64(w.bytes[c]) * float64(max(1, age-p.saved[c]))
	}
	// left is the mean distance if chunks are saved at rates proportional to the weights, with all
	// bytes in ten steps.
	left := func(weight func(c int) float64) (sum float64) {
		budget := 0.0
		for c, b := range w.bytes {
			budget += float64(b) * weight(c)
		}
		for c, b := range w.bytes {
			rate := weight(c) / budget * float64(w.total) / 10
			sum += w.speed[c] * float64(b) / rate / 2
		}
		return sum
	}
	even := left(func(int) float64 { return 1 })
	best := even * (1 - p.Uneven(age, w.distances))
	if got := left(func(c int) float64 { return math.Sqrt(w.speed[c]) }); math.Abs(got/best-1) > 1e-9 {
		t.Errorf("the rates of the rule leave %g, Uneven says %g", got, best)
	}
	for range 200 {
		power, noise := w.rng.Float64(), w.rng.Float64()
		if got := left(func(c int) float64 { return math.Pow(w.speed[c], power) * (1 + noise*float64(c%3)) }); got < best*(1-1e-9) {
			t.Fatalf("other rates leave %g, less than %g", got, best)
		}
	}
	if u := p.Uneven(age, make([]float64, len(w.bytes))); u != 0 {
		t.Errorf("nothing moves: %g", u)
	}
}

// What was earned under one period may be spent under the next.
func TestAPeriodMayChange(t *testing.T) {
	p := planner(t, Config{Bytes: slices.Repeat([]int64{10}, 10), Period: 10, Fraction: 0.1, Choice: RoundRobin})
	bytes := int64(0)
	for step := kintsugi.Step(1); step <= 10; step++ {
		bytes += p.Plan(step, nil).Bytes
	}
	if err := p.Set(5, 0.2); err != nil {
		t.Fatal(err)
	}
	if bytes != 100 || !p.Due(11) {
		t.Fatalf("%d bytes in the first period", bytes)
	}
	for c := range kintsugi.ChunkID(10) {
		p.Done(Plan{Step: 10, Chunks: []kintsugi.ChunkID{c}}, true)
	}
	if plan := p.Plan(11, nil); plan.Bytes != 20 {
		t.Errorf("%v after the period was halved", plan)
	}
}

func TestConfigurationsThatMakeNoSense(t *testing.T) {
	good := Config{Bytes: []int64{1}, Period: 1, Fraction: 1}
	for name, spoil := range map[string]func(*Config){
		"no chunks": func(c *Config) { c.Bytes = nil }, "empty chunk": func(c *Config) { c.Bytes = []int64{0} },
		"no period": func(c *Config) { c.Period = 0 }, "fraction 0": func(c *Config) { c.Fraction = 0 },
		"fraction 2": func(c *Config) { c.Fraction = 2 }, "fraction NaN": func(c *Config) { c.Fraction = math.NaN() },
		"choice": func(c *Config) { c.Choice = choices }, "sample": func(c *Config) { c.Sample = -1 },
		"too large": func(c *Config) { c.Bytes = []int64{1 << 43, 1 << 43} },
	} {
		cfg := good
		spoil(&cfg)
		if _, err := New(cfg); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for c := range choices {
		if got, err := ParseChoice(c.String()); err != nil || got != c {
			t.Errorf("ParseChoice(%s) = %v, %v", c, got, err)
		}
	}
	if _, err := ParseChoice("largest"); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("ParseChoice: %v", err)
	}
}

// A planner that begins at a late step owes nothing to the steps before, and after a store was away
// for long there is no burst.
func TestNoPlanIsABurst(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(seed)
		p := planner(t, Config{Bytes: w.bytes, Period: 16, Fraction: 0.125})
		saved := make([]kintsugi.Step, len(w.bytes))
		saved[0] = 900
		p.Begin(1000, saved)
		if p.Due(1001) || !p.Due(1002) || p.SavedStep(0) != 900 {
			t.Fatalf("begun at step 1000, saves are due at 1001: %v, at 1002: %v; chunk 0 is saved as of %d", p.Due(1001), p.Due(1002), p.SavedStep(0))
		}
		w.step()
		first := p.Plan(1002, w.distances)
		if most := w.total / 8; first.Bytes > most {
			t.Errorf("the first plan after a restore has %d bytes, two steps earn %d", first.Bytes, most)
		}
		for step := kintsugi.Step(1004); step <= 3000; step += 2 { // nothing can be saved
			p.Done(first, false)
			first = p.Plan(step, w.distances)
		}
		p.Done(first, false)
		sum := int64(0)
		for range 3 {
			w.step()
			plan := p.Plan(p.last+1, w.distances)
			w.save(p, plan)
			sum += plan.Bytes
		}
		if most := w.total + w.largest + 3*w.total/16; sum > most {
			t.Errorf("after a store was away for 2000 steps, %d bytes are saved in three steps; a model has %d", sum, w.total)
		}
	}
}

// Rise is right by hand, and on a quadratic it is by how much the loss rises.
func TestRiseIsHalfTheCurvedDistance(t *testing.T) {
	if got := Rise([]float32{2, 0.5, 7}, []float32{1, 4, 3}, []float32{4, 2, 3}); got != (2*9+0.5*4)/2 {
		t.Errorf("rise %g, want 10", got)
	}
	if got := Rise([]float32{-1, 0}, []float32{1, 1}, []float32{2, 2}); !(got > 0 && got < 1e-40) {
		t.Errorf("rise %g where nothing bends upwards, want next to 0, and not 0", got)
	}
	if got := Rise([]float32{3}, []float32{1}, []float32{1}); got != 0 {
		t.Errorf("rise %g of equal values", got)
	}
}

// On quadratics that are descended with noise, mean squares of gradients find the curvature, up to
// a factor that all chunks share, if it is the variance of the noise. Secants without noise find it
// along the axes.
func TestCurvatureIsFound(t *testing.T) {
	const chunks, values, rate, steps = 5, 400, 0.2, 400
	rng := rand.New(rand.NewPCG(5, 5))
	bend := func(chunk int) float64 { return 0.1 * math.Exp2(float64(chunk)) }
	secants, squares := NewCurvature(chunks, 100), NewCurvature(chunks, 100)
	x := make([]float64, values)
	for c := range chunks {
		h := bend(c)
		for range steps {
			var square, change, moved float64
			for i := range x {
				g := h*x[i] + math.Sqrt(h)*rng.NormFloat64()
				d := -rate * g
				x[i] += d
				square, change, moved = square+g*g/values, change+h*d*d, moved+d*d
			}
			squares.Observe(kintsugi.ChunkID(c), square, 1)
			secants.Observe(kintsugi.ChunkID(c), change, moved)
		}
	}
	for name, k := range map[string]*Curvature{"secants": secants, "mean squares": squares} {
		distances := slices.Repeat([]float64{1}, chunks)
		k.Weigh(distances)
		for c, d := range distances {
			if got, want := d/distances[2], bend(c)/bend(2); !(got > want/1.3 && got < want*1.3) {
				t.Errorf("%s: chunk %d counts %.3g times as much as chunk 2, it bends %.3g times as much", name, c, got, want)
			}
		}
	}
}

// Old knowledge fades. A chunk of which nothing is known, or whose loss bends downwards, still
// counts.
func TestCurvatureForgetsAndNeverSilences(t *testing.T) {
	k := NewCurvature(3, 10)
	weights := func() []float64 {
		d := []float64{2, 2, 2}
		k.Weigh(d)
		return d
	}
	if got := weights(); !slices.Equal(got, []float64{2, 2, 2}) {
		t.Errorf("while nothing is known, distances become %v", got)
	}
	k.Observe(0, 6, 1)
	k.Observe(1, -6, 1)
	if got := weights(); !slices.Equal(got, []float64{6, 0.06, 0.06}) {
		t.Errorf("distances become %v", got)
	}
	between := NewCurvature(3, 10) // 2 and 6: the mean of what is known is 4
	between.Observe(0, 6, 1)
	between.Observe(1, 2, 1)
	distances := []float64{2, 2, 2}
	if between.Weigh(distances); !slices.Equal(distances, []float64{6, 2, 0.04}) {
		t.Errorf("two are known: distances become %v", distances)
	}
	for range 10 {
		k.Observe(0, 0, 0)
	}
	k.Observe(0, 0, 0.5/k.keep)
	if got, want := k.over[0]/k.under[0], 6*0.5*k.keep/(0.5*k.keep+0.5/k.keep); math.Abs(got-want) > 1e-9 {
		t.Errorf("after a half-life the ratio is %g, want %g", got, want)
	}
}

// A gradient that overflows once must not hide a chunk for the rest of the run.
func TestWhatIsNoNumberIsForgotten(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64} {
		k := NewCurvature(2, 10)
		observe := func(over float64) {
			k.Observe(0, over, 1)
			k.Observe(1, 1, 1)
		}
		observe(bad)
		observe(bad)
		for range 20_000 {
			observe(9)
		}
		distances := []float64{1, 1}
		k.Weigh(distances)
		if math.Abs(distances[0]-4.5) > 0.01 || math.Abs(distances[1]-0.5) > 0.01 {
			t.Errorf("%v a while ago: %v; want 4.5 and 0.5", bad, distances)
		}
	}
}
