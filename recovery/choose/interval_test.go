package choose_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/choose"
)

// machine is a run in virtual time: what its steps and saves take, and how often it goes back.
type machine struct {
	step, noise float64 // seconds of a step, and which part of it a standard deviation is
	took, slows float64 // seconds until a save is durable, and which part steps beside it are longer
	backEvery   float64
	outages     bool // steps of a hundred times the length, one in a thousand
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// train runs the machine until end, in seconds, and returns how many were lost to saves and to steps
// that were done again. apart is asked before each step; steps and saves are told to told, if it is not nil.
func (m machine) train(rng *rand.Rand, end float64, apart func(now float64, failures int) float64, told *choose.Interval) (lost float64) {
	times := rand.New(rand.NewPCG(rng.Uint64(), 0)) // of failures: the same whatever is saved when
	failures, fails := 0, times.ExpFloat64()*m.backEvery
	begun, durableAt, kept := math.Inf(-1), math.Inf(1), 0.0 // of the newest save: begin, end; and what the newest durable one has
	for now := 0.0; now < end; {
		if math.IsInf(durableAt, 1) && now-begun >= apart(now, failures) {
			begun, durableAt = now, now+m.took
		}
		beside := !math.IsInf(durableAt, 1)
		lasts := m.step * max(0.1, 1+m.noise*rng.NormFloat64())
		if m.outages && rng.IntN(1000) == 0 {
			lasts *= 100
		}
		if beside { // only while it is under way
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
			begun, durableAt, kept = now, math.Inf(1), now // what it goes back to is as it was
		}
	}
	return lost
}

// best returns what runs of several seeds lose with the best of many fixed intervals, and which that is.
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

// learn returns what they lose where each learns its interval, which believes in a day between
// failures at first, and what the last one has come to.
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

// What a run that learns its interval loses is compared with the best of many fixed ones, which
// nobody knows beforehand.
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
