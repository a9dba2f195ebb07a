package choose_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/choose"
)

// machine is a run in virtual time: how long its steps and saves take, and how often it goes back.
type machine struct {
	step, noise float64 // seconds of a step, and their standard deviation as a share of that
	took, slows float64 // seconds until a save is durable, and by which share steps beside it are longer
	backEvery   float64
	outages     bool // one step in a thousand is a hundred times as long
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// train runs the machine until end, in seconds. It returns how many seconds were lost to saves and
// to steps that were made again. apart is asked before each step. told, if it is not nil, is told
// of steps and saves.
func (m machine) train(rng *rand.Rand, end float64, apart func(now float64, failures int) float64, told *choose.Interval) (lost float64) {
	times := rand.New(rand.NewPCG(rng.Uint64(), 0)) // of failures: they do not depend on when something is saved
	failures, fails := 0, times.ExpFloat64()*m.backEvery
	begun, durableAt, kept := math.Inf(-1), math.Inf(1), 0.0 // of the newest save: begin and end; and the time whose state the newest durable save has
	for now := 0.0; now < end; {
		if math.IsInf(durableAt, 1) && now-begun >= apart(now, failures) {
			begun, durableAt = now, now+m.took
		}
		beside := !math.IsInf(durableAt, 1)
		lasts := m.step * max(0.1, 1+m.noise*rng.NormFloat64())
		if m.outages && rng.IntN(1000) == 0 {
			lasts *= 100
		}
		if beside { // only while the save lasts
			more := m.slows * min(lasts, durableAt-now)
			lasts, lost = lasts+more, lost+more
		}
		now += lasts
		if now >= durableAt {
			kept, durableAt = begun, math.Inf(1)
			if told != nil {
				told.Saved(kintsugi.CheckpointEvent{Took: seconds(m.took)})
			}
		}
		if told != nil {
			told.Step(kintsugi.StepEvent{Wait: seconds(lasts)}, beside)
		}
		if now >= fails {
			lost += now - kept
			failures++
			fails += times.ExpFloat64() * m.backEvery
			begun, durableAt, kept = now, math.Inf(1), now // it goes back to that state
		}
	}
	return lost
}

// best returns what runs of several seeds lose with the best of many fixed intervals, and that
// interval.
func (m machine) best(seeds uint64, seconds float64) (lost, at float64) {
	lost = math.Inf(1)
	for apart := 2 * m.took; apart < m.backEvery; apart *= 1.3 {
		fixed := 0.0
		for seed := range seeds {
			fixed += m.train(rand.New(rand.NewPCG(seed, 1)), seconds, func(float64, int) float64 { return apart }, nil)
		}
		if fixed < lost {
			lost, at = fixed, apart
		}
	}
	return lost / float64(seeds), at
}

// learn returns what the runs lose if each learns its interval, with a day between failures as the
// first assumption, and the interval and the cost that the last one has learnt.
func (m machine) learn(seeds uint64, seconds float64) (lost, apart, cost float64) {
	for seed := range seeds {
		var i choose.Interval
		lost += m.train(rand.New(rand.NewPCG(seed, 1)), seconds, func(now float64, failures int) float64 {
			apart = i.Apart(choose.Rate(failures, now, 86400))
			return apart
		}, &i)
		cost = i.Cost()
	}
	return lost / float64(seeds), apart, cost
}

// The loss of a run that learns its interval is compared with that of the best of many fixed
// intervals, which nobody knows beforehand.
func TestALearntIntervalLosesLittleMoreThanTheBestFixedOne(t *testing.T) {
	for name, m := range map[string]machine{
		"small steps, cheap saves, a failure in an hour": {step: 1, noise: 0.1, took: 1, slows: 0.2, backEvery: 3600},
		"a failure in ten minutes":                       {step: 0.5, noise: 0.2, took: 2, slows: 0.3, backEvery: 600},
		"long steps, dear saves":                         {step: 4, noise: 0.1, took: 30, slows: 0.3, backEvery: 7200},
		"saves within a step":                            {step: 5, noise: 0.05, took: 3, slows: 0.5, backEvery: 1800},
		"outages beside it all":                          {step: 0.5, noise: 0.2, took: 2, slows: 0.3, backEvery: 1200, outages: true},
	} {
		for failures, most := range map[float64]float64{400: 1.1, 10: 1.6} {
			seeds, seconds := uint64(400/failures), failures*m.backEvery
			best, at := m.best(seeds, seconds)
			learnt, apart, cost := m.learn(seeds, seconds)
			t.Logf("%s, %v of them: %.1f %% of the time is lost, with the best fixed interval of %.0f s %.1f %%; it came to %.0f s, and a save to %.2g s of %.2g",
				name, failures, 100*learnt/seconds, at, 100*best/seconds, apart, cost, m.slows*m.took)
			if learnt > most*best {
				t.Errorf("%s, %v of them: %.2f times as much is lost as with a save each %.0f s, want at most %v", name, failures, learnt/best, at, most)
			}
		}
	}
}

// What a save costs is how much longer the steps beside it are than others, and never more than it
// lasts. Steps beside a save that failed count for nothing, and neither does an outage.
func TestTheCostOfASaveIsWhatStepsBesideItTakeLonger(t *testing.T) {
	step := func(i *choose.Interval, n int, lasts float64, beside bool) {
		for range n {
			i.Step(kintsugi.StepEvent{Wait: seconds(lasts / 4), Apply: seconds(3 * lasts / 4)}, beside)
		}
	}
	for name, c := range map[string]struct {
		beside func(i *choose.Interval) // what happens beside each save, which lasts 2 s
		want   float64
	}{
		"steps are a tenth longer": {func(i *choose.Interval) { step(i, 4, 1.1, true) }, 0.4},
		"an outage beside it":      {func(i *choose.Interval) { step(i, 1, 60, true) }, 2},
		"an outage between saves":  {func(i *choose.Interval) { step(i, 1, 60, false); step(i, 4, 1.1, true) }, 0.4},
		"a save that failed": {func(i *choose.Interval) {
			step(i, 9, 5, true)
			i.Saved(kintsugi.CheckpointEvent{Err: "the store is full", Took: seconds(100)})
			step(i, 3, 1, false)
			step(i, 4, 1.1, true)
		}, 0.4},
	} {
		var i choose.Interval
		for range 60 {
			step(&i, 30, 1, false)
			c.beside(&i)
			i.Saved(kintsugi.CheckpointEvent{Took: seconds(2)})
		}
		if got := i.Cost(); math.Abs(got-c.want) > 0.2*c.want {
			t.Errorf("%s: a save costs %v s, want about %v", name, got, c.want)
		}
	}
}

// Until a save has ended, and after one has failed, the next one comes soon. A save that takes long
// is not followed by another at once.
func TestSavesAreTriedAgainSoon(t *testing.T) {
	var i choose.Interval
	if got := i.Apart(math.Inf(1)); got != 10 {
		t.Errorf("at first: %v s", got)
	}
	i.Saved(kintsugi.CheckpointEvent{Err: "no", Took: seconds(99)})
	if got := i.Apart(math.Inf(1)); got != 10 {
		t.Errorf("after the first has failed: %v s", got)
	}
	i.Saved(kintsugi.CheckpointEvent{Took: seconds(1)})
	if got := i.Apart(math.Inf(1)); got != choose.Longest {
		t.Errorf("without failures: %v s", got)
	}
	if got, want := i.Apart(2000), math.Sqrt(2*0.1*1*2000); math.Abs(got-want) > 1e-9 {
		t.Errorf("a failure each 2000 s, and a tenth of a save: %v s, want %v", got, want)
	}
	i.Saved(kintsugi.CheckpointEvent{Err: "no"})
	if got := i.Apart(math.Inf(1)); got != 10 {
		t.Errorf("after one has failed: %v s", got)
	}
	i.Saved(kintsugi.CheckpointEvent{Took: seconds(700)})
	if got := i.Apart(100); got != 1400 {
		t.Errorf("a save takes 700 s: %v s apart", got)
	}
}
