package sim

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
)

var planted = []struct {
	name string
	bug  bug
	from uint64 // the first seed; from EveryFault on, the runs are long
}{
	{"a forgotten fence check", forgottenFence, 0},
	{"a ticket that is not repeated", unrepeatedTicket, 0},
	{"an early free of a push", earlyFree, 0},
	{"a commit applied twice", appliedTwice, 0},
	{"a released version overwritten while pinned", overwritePinned, 0},
	{"a reader that mixes versions", mixedVersions, 0},
	{"a release before every shard is stable", earlyRelease, 0},
	{"a partial restore of a shard that was kept", touchedSurvivor, 0},
	{"a forgotten fence on the chain", forgottenChain, 0},
	{"a removed head that answers for its shard", answersAlone, 0},
	{"an update applied twice", updatedTwice, 0},
	{"a replica that takes itself for whole too early", halfWhole, 0},
	{"a kept gradient that is computed again", keptAgain, EveryFault},
	{"a kept gradient that changes after it was pushed", mergedIntoSent, EveryFault + 700}, // one run in a thousand has the order of events that shows it
	{"a kept gradient of a line that is over", otherLine, EveryFault},
	{"a push that is forgotten when the next session begins", forgottenPush, 5800}, // one run in fifteen thousand
	{"a version outside that is given up before every shard is stable", earlyFlip, 0},
	{"an encoded push that is told of again and not sent", ticketAlone, 0},
	{"an encoded push that is taken for dropped and was counted", takenBack, 0},
	{"a conductor that takes over and knows only the newest counted push of a worker", onlyNewest, 4900}, // a few runs in ten thousand
	{"a gradient that goes out in part and is not noted", quietFlow, 0},
	{"a worker that a conductor of an earlier view admits", noView, EveryFault + 4045}, // two runs in a thousand
	{"a version that is used before it is known to be released", hastyReader, 0},
	{"a head that is believed before the replica after it has answered", headAlone, 0},
	{"a replica that is believed before the head before it", nextAlone, 1780}, // two runs in a thousand
	{"an offer that a new conductor does not end", staleOffer, 0},
	{"a residual that a gradient given up half way does not give back", keptHalf, 0},
}

// A simulator that finds nothing may be blind: each of these bugs must be found within 500 seeds.
func TestPlantedBugsAreFound(t *testing.T) {
	race.Skip(t)
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			for seed := range uint64(500) {
				cfg := Draw(p.from+seed, map[bool]kintsugi.Step{true: 200}[p.from >= EveryFault])
				switch p.bug {
				case ticketAlone, takenBack, onlyNewest:
					cfg = drawCoded(p.from + seed)
				case quietFlow, keptHalf:
					cfg = drawFlowing(p.from + seed)
				}
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
