package virtual

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// Whoever dies and comes back, together or not, and whatever losses are reported: every step is
// made, with a quota between one and the number of workers.
func TestNoControllerStopsARun(t *testing.T) {
	race.Skip(t)
	presets := []string{"dbw", "dbw:wait", "dbw:pull", "dbw:joint", "dbw:knee=4", "dbw:paper", "bdbw:wait", "adasync:1", "adasync:3,wait"}
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(r, "workers")
		cfg := training(t, rapid.SampledFrom(presets).Draw(r, "preset"), n, kintsugi.Step(rapid.IntRange(1, 60).Draw(r, "steps")))
		cfg.Seed = rapid.Uint64().Draw(r, "seed")
		if rapid.Bool().Draw(r, "losses that are no numbers") {
			cfg.Problem = blindly{cfg.Problem}
		}
		if rapid.Bool().Draw(r, "deaths") {
			cfg.Lifetime, cfg.Rebirth = rapid.Float64Range(10, 40).Draw(r, "lifetime"), rapid.Float64Range(0.1, 60).Draw(r, "rebirth")
		}
		if rapid.Bool().Draw(r, "slow") { // but not so slow that no worker lives to finish a gradient
			cfg.Slow = []Slowdown{{Factor: rapid.Float64Range(0.1, 5).Draw(r, "factor"), Last: rapid.IntRange(0, n-1).Draw(r, "last"), From: rapid.Float64Range(0, 30).Draw(r, "from")}}
		}
		cfg.Each = func(e kintsugi.StepEvent, _ []float32) bool {
			if e.Quota < 1 || e.Quota > uint32(n) || len(e.Counted) < 1 || len(e.Counted) > int(e.Quota) {
				r.Fatalf("step %d has a quota of %d and counts %d", e.Step, e.Quota, len(e.Counted))
			}
			return true
		}
		if got, err := Train(cfg); err != nil || got.Steps != cfg.Steps {
			r.Fatalf("%d of %d steps, %d deaths, %v", got.Steps, cfg.Steps, got.Deaths, err)
		}
	})
}
