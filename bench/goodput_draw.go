package bench

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/launch"
)

// deaths draws who dies, and when, between two times of a run: the times between two deaths are
// exponential with that mean, and each takes one of the parts that are there. One that has died is
// there again after down. A death that finds nobody is none.
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

// losing returns the same deaths where servers take along what they have left in memory outside
// their processes. Workers leave nothing there.
func losing(faults []launch.Fault) []launch.Fault {
	faults = slices.Clone(faults)
	for i := range faults {
		if faults[i].Part.Role == launch.Server {
			faults[i].Kind = launch.Lose
		}
	}
	return faults
}

// partsOf returns the servers of a run, and its workers, if they are to die too.
func partsOf(servers, workers int) (parts []launch.Part) {
	for i := range servers {
		parts = append(parts, launch.Part{Role: launch.Server, Index: i})
	}
	for i := range workers {
		parts = append(parts, launch.Part{Role: launch.Worker, Index: i})
	}
	return parts
}
