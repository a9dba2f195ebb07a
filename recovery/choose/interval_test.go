package choose_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi/recovery/choose"
)

// machine is a run in virtual time: what its steps and saves take, and how often it goes back.
type machine struct {
	step, noise float64 // seconds of a step, and which part of it a standard deviation is
	took, slows float64 // seconds until a save is durable, and which part steps beside it are longer
	backEvery   float64
	outages     bool // steps of a hundred times the length, one in a thousand
}

// train runs the machine for so many seconds, and returns how many were lost to saves and to steps
// that were done again. apart is asked before each step; steps and saves are told to told, if it is not nil.
func (m machine) train(rng *rand.Rand, seconds float64, apart func(now float64, failures int) float64, told *choose.Interval) (lost float64) {
	times := rand.New(rand.NewPCG(rng.Uint64(), 0)) // of failures: the same whatever is saved when
	failures, fails := 0, times.ExpFloat64()*m.backEvery
	begun, durableAt, kept := math.Inf(-1), math.Inf(1), 0.0 // of the newest save: begin, end; and what the newest durable one has
	for now := 0.0; now < seconds; {
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
				told.Saved(m.took)
			}
		}
		if told != nil {
			told.Step(lasts, beside)
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

// What a run that learns its interval loses is compared with the best of many fixed ones, which
// nobody knows beforehand.
func TestALearntIntervalLosesLittleMoreThanTheBestFixedOne(t *testing.T) {
	for name, m := range map[string]machine{
		"small steps, cheap saves, a failure in an hour": {step: 1, noise: 0.1, took: 1, slows: 0.2, backEvery: 3600},
		"a failure in ten minutes":                       {step: 0.2, noise: 0.2, took: 2, slows: 0.3, backEvery: 600},
		"long steps, dear saves":                         {step: 4, noise: 0.1, took: 30, slows: 0.3, backEvery: 7200},
		"saves within a step":                            {step: 5, noise: 0.05, took: 3, slows: 0.5, backEvery: 1800},
		"outages beside it all":                          {step: 0.5, noise: 0.2, took: 2, slows: 0.3, backEvery: 1200, outages: true},
	} {
		seconds := 400 * m.backEvery
		fixed, best, at := 0.0, math.Inf(1), 0.0
		for apart := 2 * m.took; apart < m.backEvery; apart *= 1.3 {
			if fixed = m.train(rand.New(rand.NewPCG(1, 1)), seconds, func(float64, int) float64 { return apart }, nil); fixed < best {
				best, at = fixed, apart
			}
		}
		var i choose.Interval
		last := 0.0
		learnt := m.train(rand.New(rand.NewPCG(1, 1)), seconds, func(now float64, failures int) float64 {
			last = i.Apart(choose.Rate(failures, now, 86400))
			return last
		}, &i)
		t.Logf("%s: %.1f %% of the time is lost, with the best fixed interval of %.0f s %.1f %%; it came to %.0f s, and a save to %.2g s of %.2g",
			name, 100*learnt/seconds, at, 100*best/seconds, last, i.Cost(), m.slows*m.took)
		if learnt > 1.1*best {
			t.Errorf("%s: %v s of %v were lost; with a save each %v s they are %v", name, learnt, seconds, at, best)
		}
	}
}
