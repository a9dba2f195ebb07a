package sim

import "testing"

var planted = []struct {
	name string
	bug  bug
	from uint64 // the first seed
}{
	{"a forgotten fence check", forgottenFence, 0},
	{"a ticket that is not repeated", unrepeatedTicket, 0},
	{"an early free of a push", earlyFree, 0},
	{"a commit applied twice", appliedTwice, 0},
	{"a released version overwritten while pinned", overwritePinned, 0},
	{"a reader that mixes versions", mixedVersions, 0},
	{"a release before every shard is stable", earlyRelease, 0},
	{"answers to the stream that spoke last", newestStream, 2_053_000}, // in one of 30,000 runs it matters
}

// A simulator that finds nothing may be blind: each of these bugs is found within 500 seeds.
func TestPlantedBugsAreFound(t *testing.T) {
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			for i := range uint64(500) {
				seed := p.from + i
				cfg := Draw(seed, 0)
				cfg.plant = p.bug
				if _, err := Run(cfg); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("not found within 500 seeds")
		})
	}
}
