package sim

import "testing"

var planted = []struct {
	name string
	bug  bug
}{
	{"a forgotten fence check", forgottenFence},
	{"a ticket that is not repeated", unrepeatedTicket},
	{"an early free of a push", earlyFree},
	{"a commit applied twice", appliedTwice},
	{"a released version overwritten while pinned", overwritePinned},
	{"a reader that mixes versions", mixedVersions},
	{"a release before every shard is stable", earlyRelease},
	{"a partial restore of a shard that was kept", touchedSurvivor},
	{"a forgotten fence on the chain", forgottenChain},
	{"a removed head that answers for its shard", answersAlone},
	{"an update applied twice", updatedTwice},
	{"a replica that takes itself for whole too early", halfWhole},
	{"a version outside that is given up before every shard is stable", earlyFlip},
}

// A simulator that finds nothing may be blind: each of these bugs is found within 500 seeds.
func TestPlantedBugsAreFound(t *testing.T) {
	oneGoroutine(t)
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			for seed := range uint64(500) {
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
