package dbw_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/script"
	"github.com/kintsugi-ml/kintsugi/server/dbw"
)

var update = flag.Bool("update", false, "write the output of the stories")

func controller(t testing.TB, name string, busy kintsugi.Busy) dbw.Controller {
	t.Helper()
	c, err := dbw.New(name, busy)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var every = []string{"dbw", "dbw:paper", "dbw:joint", "bdbw", "adasync:2", "static:3"}

func TestEveryNameIsRead(t *testing.T) {
	for _, name := range every {
		if got := controller(t, name, kintsugi.Wait).Name(); got != name {
			t.Errorf("the controller of %q calls itself %q", name, got)
		}
	}
	for _, name := range []string{"", "dbw:", "static", "static:0", "adasync:-1", "dynamic:3"} {
		if _, err := dbw.New(name, kintsugi.Wait); !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), "dbw:paper") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// If all take the same time, waiting for fewer gains nothing.
func TestWithoutStragglersAllAreWaitedFor(t *testing.T) {
	for _, name := range []string{"dbw", "dbw:joint", "bdbw"} {
		for _, busy := range []kintsugi.Busy{kintsugi.Interrupt, kintsugi.Wait} {
			w := newWorld(1, 16, 20)
			w.busy = busy
			w.run(controller(t, name, busy), 60)
			for i, k := range w.quotas[5:] {
				if k != 16 {
					t.Errorf("%s, %v: step %d waits for %d: %s", name, busy, i+5, k, w.last.Reason)
					break
				}
			}
		}
	}
}

// A worker that never comes back in any relevant time is not waited for.
func TestAHopelesslySlowWorkerIsLeftOut(t *testing.T) {
	for _, busy := range []kintsugi.Busy{kintsugi.Interrupt, kintsugi.Wait} {
		w := newWorld(2, 8, 20)
		w.busy = busy
		w.took = func(slot int) float64 {
			if slot == 3 {
				return 50
			}
			return 1 + 0.01*w.rng.Float64()
		}
		w.run(controller(t, "dbw", busy), 150)
		waited := 0
		for _, k := range w.quotas[10:] {
			if k == 8 {
				waited++
			}
		}
		if waited > 3 {
			t.Errorf("%v: %d of 140 steps waited for the slow one: %v", busy, waited, w.quotas)
		}
	}
}

// A loss below zero that falls does not rise: the paper's guard must not take it for rising.
func TestANegativeLossThatFallsIsNoReasonToWaitForAll(t *testing.T) {
	for _, lift := range []float64{0, -100} {
		w := newWorld(2, 8, 20)
		w.lift, w.rule.LearningRate = lift, 0.01
		w.took = func(slot int) float64 {
			if slot == 3 {
				return 50
			}
			return 1 + 0.01*w.rng.Float64()
		}
		w.run(controller(t, "dbw:paper", w.busy), 60)
		waited := 0
		for _, k := range w.quotas[10:] {
			if k == 8 {
				waited++
			}
		}
		if waited > 25 {
			t.Errorf("losses from %.1f on: %d of 50 steps waited for the slow one: %v", lift+1, waited, w.quotas)
		}
	}
}

// AdaSync's rule asks for more gradients the smaller the loss is, and for all if the loss is zero.
func TestALossOfZeroIsTheSmallest(t *testing.T) {
	for _, least := range []float64{1e-9, 0, -3} {
		c := controller(t, "adasync:2", kintsugi.Wait)
		loss := 4.0
		for step := range kintsugi.Step(200) {
			c.Released(dbw.Outcome{Step: step, Gradients: []dbw.Gradient{{Share: 1, SquaredNorm: 1, Loss: loss}}})
			loss = least
		}
		if got := c.Choose(dbw.Release{Version: 200, Members: 16}); got.Quota != 16 {
			t.Errorf("a loss of %v: %d of 16 (%s)", least, got.Quota, got.Reason)
		}
	}
}

// Half of the workers become five times slower. The quota falls to what the others can give, and
// rises again when they recover.
func TestASlowdownIsFollowed(t *testing.T) {
	for _, busy := range []kintsugi.Busy{kintsugi.Interrupt, kintsugi.Wait} {
		w := newWorld(3, 16, 20)
		w.busy = busy
		slow := 1.0
		for i := range w.sigma {
			w.sigma[i] = 2 // noise, so that all gradients that come cheaply are useful
		}
		w.rule.LearningRate = 0.03
		w.took = func(slot int) float64 {
			if slot < 8 {
				return slow * (1 + 0.02*w.rng.Float64())
			}
			return 1 + 0.02*w.rng.Float64()
		}
		c := controller(t, "dbw", busy)
		w.run(c, 60)
		before := slices.Clone(w.quotas[40:])
		slow = 5
		w.run(c, 60)
		during := slices.Clone(w.quotas[len(w.quotas)-30:])
		slow = 1
		w.run(c, 400)
		after := w.quotas[len(w.quotas)-30:]
		if middle(before) < 12 || middle(during) > 8 || middle(after) < 12 {
			t.Errorf("%v: median quota %d before, %d during, %d after", busy, middle(before), middle(during), middle(after))
		}
	}
}

// If the learning rate is proportional to the number of gradients, few gradients are worth less.
func TestARateInProportionAsksForMoreGradients(t *testing.T) {
	for _, name := range []string{"dbw", "dbw:joint", "dbw:paper"} {
		quotas := func(part func(int) float64) int {
			w := newWorld(8, 16, 20)
			w.part = part
			w.took = func(int) float64 { return 0.5 + 0.5*w.rng.ExpFloat64() }
			w.run(controller(t, name, w.busy), 80)
			want := float64(w.rule.LearningRate) * w.last.Rate
			if part != nil {
				want *= part(w.last.Quota)
			}
			if got := w.last.Estimate.Rate; math.Abs(got-want) > 1e-9 {
				t.Errorf("%s: a choice of %d (%s) says that its rate is %v, want %v", name, w.last.Quota, w.last.Reason, got, want)
			}
			return middle(w.quotas[20:])
		}
		constant, linear := quotas(nil), quotas(func(k int) float64 { return float64(k) / 16 })
		if linear <= constant {
			t.Errorf("%s: the median quota is %d with the linear rule, %d without", name, linear, constant)
		}
	}
}

// Near the edge of stability, noise is amplified, and a smaller rate gains more per second. Far
// from it, no smaller rate does.
func TestTheJointChoiceLowersARateThatIsTooLarge(t *testing.T) {
	for rate, lowered := range map[float32]bool{0.05: false, 0.62: true} {
		w := newWorld(9, 8, 20)
		w.rule.LearningRate = rate
		for i := range w.sigma {
			w.lambda[i], w.sigma[i] = 3, 3
		}
		w.run(controller(t, "dbw:joint", w.busy), 60)
		if got := w.last.Rate < 1; got != lowered {
			t.Errorf("learning rate %v at a curvature of 3: %v of it is chosen", rate, w.last.Rate)
		}
	}
}

func middle(x []int) int {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}

// On a quadratic, the estimates of a controller agree with the truth, for every rule of a step.
func TestEstimatesAgreeWithTheTruth(t *testing.T) {
	for _, o := range []kintsugi.Optimizer{
		{Rule: kintsugi.RuleSGD, LearningRate: 0.001},
		{Rule: kintsugi.RuleMomentum, LearningRate: 0.0002, Momentum: 0.8},
		{Rule: kintsugi.RuleAdam, LearningRate: 0.001, Beta1: 0.9, Beta2: 0.999},
	} {
		w := newWorld(5, 8, 400)
		w.rule = o
		w.run(controller(t, "dbw", w.busy), 60)
		square, noise, curve, moved := 0.0, 0.0, 0.0, 0.0
		for i, x := range w.x {
			square += w.lambda[i] * x * w.lambda[i] * x
			noise += w.sigma[i] * w.sigma[i]
			curve += w.lambda[i] * w.d[i] * w.d[i]
			moved += w.d[i] * w.d[i]
		}
		if o.Rule == kintsugi.RuleAdam {
			curve = 0 // not estimated
		}
		before := w.loss()
		e := w.last.Estimate
		w.run(controller(t, "static:8", w.busy), 1)
		for _, x := range []struct {
			what      string
			got, want float64
			within    float64
		}{
			{"variance", e.Variance, noise, 0.1},
			{"square", e.Square, square, 0.3}, // mean of twenty steps, in which it falls
			{"curvature", e.Curvature, curve / moved, 0.2},
			{"progress", e.Progress, before - w.loss(), 0.6},
		} {
			if math.Abs(x.got-x.want) > x.within*math.Abs(x.want) {
				t.Errorf("%v: %s is estimated as %.4g, it is %.4g", o.Rule, x.what, x.got, x.want)
			}
		}
	}
}

// Whatever happens, the choice is a possible one.
func TestNoOrderOfEventsMakesAChoiceImpossible(t *testing.T) {
	value := rapid.OneOf(rapid.Float64Range(0, 10), rapid.SampledFrom([]float64{0, math.NaN(), math.Inf(1), 1e300, 1e-300, -1}))
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(every).Draw(t, "name")
		c, err := dbw.New(name, kintsugi.Busy(rapid.IntRange(0, 2).Draw(t, "busy")))
		if err != nil {
			t.Fatal(err)
		}
		now, version, members := 0.0, kintsugi.Step(rapid.IntRange(0, 5).Draw(t, "first")), 1
		last := dbw.Choice{Quota: 1}
		for range 60 {
			now += rapid.Float64Range(0, 3).Draw(t, "pause")
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0:
				members = rapid.IntRange(1, 40).Draw(t, "members")
			case 1:
				c.Arrived(dbw.Arrival{Slot: kintsugi.Slot(rapid.IntRange(0, members).Draw(t, "slot")), Version: kintsugi.Step(rapid.IntRange(0, int(version)+1).Draw(t, "version")), At: now})
			case 2:
				c.Committed(now)
			case 3:
				o := dbw.Outcome{Step: version, At: now, Measured: rapid.Bool().Draw(t, "measured"), SquaredNorm: value.Draw(t, "norm"),
					Dot: value.Draw(t, "dot"), SquaredDisplacement: value.Draw(t, "displacement"),
					Optimizer: kintsugi.Optimizer{Rule: kintsugi.Rule(rapid.IntRange(1, 5).Draw(t, "rule")), LearningRate: 0.1, Beta1: 0.9, Momentum: 0.9}}
				k := rapid.IntRange(0, last.Quota).Draw(t, "counted")
				for range k {
					o.Gradients = append(o.Gradients, dbw.Gradient{Share: 1 / float64(k), SquaredNorm: value.Draw(t, "squared norm"), Loss: value.Draw(t, "loss")})
				}
				c.Released(o)
			default:
				version += kintsugi.Step(rapid.SampledFrom([]int{1, 1, 1, 0, 7}).Draw(t, "steps"))
				last = c.Choose(dbw.Release{Version: version, At: now, Members: members, Optimizer: kintsugi.Optimizer{Rule: kintsugi.RuleSGD, LearningRate: 0.1}})
				if last.Quota < 1 || last.Quota > members || !(last.Rate > 0) || last.Rate > 1 || last.Reason == "" || math.IsNaN(last.Expected) {
					t.Fatalf("%s with %d members chose %+v", name, members, last)
				}
			}
		}
	})
}

// After invalid values the controller recovers.
func TestNonsenseIsForgotten(t *testing.T) {
	for _, name := range []string{"dbw", "dbw:paper", "adasync:2"} {
		w := newWorld(6, 8, 20)
		c := controller(t, name, w.busy)
		w.run(c, 30)
		bad := dbw.Outcome{Step: w.step + 1, At: w.now, Measured: true, SquaredNorm: math.NaN(), Dot: math.Inf(1), SquaredDisplacement: math.NaN(),
			Gradients: []dbw.Gradient{{Share: 1, SquaredNorm: math.Inf(1), Loss: math.NaN()}}}
		c.Released(bad)
		w.run(c, 30)
		if e := w.last.Estimate; math.IsNaN(e.Progress + e.Square + e.Variance + e.Curvature) {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// A choice for sixteen workers costs next to nothing, and one for a thousand at most a few
// milliseconds.
func TestAChoiceIsCheap(t *testing.T) {
	for _, c := range []struct {
		n     int
		limit time.Duration // the promise; the test allows a slow machine five times as much
	}{{16, 100 * time.Microsecond}, {1000, 5 * time.Millisecond}} {
		best := time.Hour
		for range 3 {
			best = min(best, perStep(t, c.n, 60))
		}
		if best > 5*c.limit {
			t.Errorf("%d members: %v a step, promised are %v", c.n, best, c.limit)
		}
		t.Logf("%d members: %v a step", c.n, best)
	}
}

// perStep returns the time that a controller takes in a step in which everybody arrives.
func perStep(t testing.TB, n, steps int) time.Duration {
	c := controller(t, "dbw", kintsugi.Wait)
	rng := rand.New(rand.NewPCG(7, 7))
	times := make([]float64, n)
	gradients := make([]dbw.Gradient, 0, n)
	now, total := 0.0, time.Duration(0)
	for step := range steps {
		for i := range times {
			times[i] = rng.ExpFloat64()
		}
		slices.Sort(times)
		start := time.Now()
		k := c.Choose(dbw.Release{Version: kintsugi.Step(step), At: now, Members: n, Optimizer: kintsugi.Optimizer{Rule: kintsugi.RuleSGD, LearningRate: 0.1}}).Quota
		gradients = gradients[:0]
		for i := range k {
			c.Arrived(dbw.Arrival{Slot: kintsugi.Slot(i), Version: kintsugi.Step(step), At: now + times[i]})
			gradients = append(gradients, dbw.Gradient{Share: 1 / float64(k), SquaredNorm: 1 + 20*rng.Float64(), Loss: 1})
		}
		now += times[k-1]
		c.Committed(now)
		c.Released(dbw.Outcome{Step: kintsugi.Step(step + 1), At: now, Gradients: gradients, Measured: true,
			SquaredNorm: 1 + 10/float64(k), Dot: -0.05 * rng.Float64(), SquaredDisplacement: 0.01,
			Optimizer: kintsugi.Optimizer{Rule: kintsugi.RuleSGD, LearningRate: 0.1}})
		for i := k; i < n; i++ { // the others are late
			c.Arrived(dbw.Arrival{Slot: kintsugi.Slot(i), Version: kintsugi.Step(step), At: now + times[i]})
		}
		total += time.Since(start)
	}
	return total / time.Duration(steps)
}

func BenchmarkChoice(b *testing.B) {
	for _, n := range []int{16, 128, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportMetric(float64(perStep(b, n, max(60, b.N)).Microseconds()), "µs/step")
		})
	}
}

// A controller that learns from by-products of steps asks for them, and waits for a multiple of the
// time that it expects.
func TestAChoiceAsksForWhatTheNextOneNeeds(t *testing.T) {
	const both = kintsugi.WantDotDisplacement | kintsugi.WantSquaredDisplacement
	for name, want := range map[string]kintsugi.Want{"dbw": both, "dbw:joint": both, "dbw:paper": 0, "bdbw": 0, "adasync:2": 0, "static:3": 0} {
		w := newWorld(1, 4, 20)
		w.run(controller(t, name, w.busy), 20)
		if w.last.Want != want {
			t.Errorf("%s asks for %b, want %b", name, w.last.Want, want)
		}
		if known := name == "dbw" || name == "dbw:joint"; known && w.last.Expected <= 0 || w.last.Patience != 0 && w.last.Patience != 4*w.last.Expected {
			t.Errorf("%s expects a step to take %v s, and waits for %v s", name, w.last.Expected, w.last.Patience)
		}
		if patient := w.last.Patience > 0; patient != (want == both) {
			t.Errorf("%s waits for %v s", name, w.last.Patience)
		}
	}
}

// The stories show what is decided, when and why.
func TestStories(t *testing.T) {
	var w *world
	var c dbw.Controller
	script.Run(t, "testdata/stories.txt", *update, func(command string) string {
		words := strings.Fields(command)
		number := 0
		if len(words) > 1 {
			_, _ = fmt.Sscan(words[len(words)-1], &number)
		}
		switch words[0] {
		case "run": // run CONTROLLER WORKERS
			w = newWorld(11, number, 20)
			c = controller(t, words[1], w.busy)
			w.took = func(int) float64 { return 1 }
		case "spread": // percent of the time that is exponential
			alpha := float64(number) / 100
			w.took = func(int) float64 { return 1 - alpha + alpha*w.rng.ExpFloat64() }
		case "interrupt":
			w.busy = kintsugi.Interrupt
			c = controller(t, c.Name(), w.busy)
		case "slow": // worker SLOT stops coming back
			took := w.took
			w.took = func(slot int) float64 {
				if slot == number {
					return 1000
				}
				return took(slot)
			}
		case "noise": // standard deviation of each gradient's coordinates, in hundredths
			for i := range w.sigma {
				w.sigma[i] = float64(number) / 100
			}
		case "applying": // takes so many hundredths of a second
			w.apply = float64(number) / 100
		case "members":
			w.n = number
			w.working = w.working[:min(number, len(w.working))]
			for len(w.working) < number {
				w.working = append(w.working, job{math.Inf(1), 0})
			}
		case "steps":
			from := len(w.quotas)
			w.run(c, number)
			return fmt.Sprintf("%v\n%s", w.quotas[from:], w.last.Reason)
		default:
			t.Fatalf("no such command: %s", command)
		}
		return ""
	})
}
