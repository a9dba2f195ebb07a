package goodput

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/launch"
)

// deaths draws deaths between two times of a run. The times between deaths are exponential with the
// given mean, and each death takes a random part that is present. A dead part is present again
// after down. If no part is present, the death is dropped.
func deaths(rng *rand.Rand, mean, from, to, down time.Duration, parts []launch.Part) (faults []launch.Fault) {
	back := make(map[launch.Part]time.Duration)
	for at := from; ; {
		at += time.Duration(rng.ExpFloat64() * float64(mean)).Round(time.Millisecond)
		if at >= to {
			return faults
		}
		there := slices.DeleteFunc(slices.Clone(parts), func(p launch.Part) bool { return back[p] > at })
		if len(there) == 0 {
			continue
		}
		p := there[rng.IntN(len(there))]
		back[p] = at + down
		faults = append(faults, launch.Fault{Kind: launch.Kill, Part: p, At: launch.Moment{Elapsed: at}, For: down})
	}
}

// losing returns the same deaths, but servers also lose the memory outside their processes. Workers
// have no such memory.
func losing(faults []launch.Fault) []launch.Fault {
	faults = slices.Clone(faults)
	for i := range faults {
		if faults[i].Part.Role == launch.Server {
			faults[i].Kind = launch.Lose
		}
	}
	return faults
}

// partsOf returns the servers of a run, and its workers if there are any to kill.
func partsOf(servers, workers int) (parts []launch.Part) {
	for i := range servers {
		parts = append(parts, launch.Part{Role: launch.Server, Index: i})
	}
	for i := range workers {
		parts = append(parts, launch.Part{Role: launch.Worker, Index: i})
	}
	return parts
}
