package cluster

import (
	"math"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// straggling is a run of n steps that take the given seconds each, and lower the loss by a given
// part.
func straggling(n int, seconds, rate float64) *record.Run {
	events := []record.Event{&record.Header{Workers: 2}, &record.Fault{Action: "slow", Part: "worker/1"}}
	for i := range n {
		events = append(events, &record.Step{
			At: record.At{Seconds: 100 + seconds*float64(i)}, Line: 1, Step: uint64(i + 1), Loss: record.Number(math.Pow(1-rate, float64(i))), Quota: 1,
			Times: []record.Took{{Slot: 0, Compute: time.Millisecond}, {Slot: 1, Compute: time.Hour, Fate: kintsugi.GivenUp}, {Slot: 1, Compute: time.Minute, Fate: kintsugi.Late}},
		})
	}
	return record.NewRun(events, nil)
}

func TestStragglersComparesWithinARound(t *testing.T) {
	// Steps are half as long and lower the loss by half as much: twice the steps per second, and
	// the same time to the same loss.
	calm, slow, quick := straggle(straggling(200, 1, 0.02)), straggle(straggling(200, 4, 0.02)), straggle(straggling(200, 2, 0.01))
	var rows [3]StragglersRow
	for j := range rows {
		rows[j].fill([][]straggled{{calm, slow, quick}, {calm, slow, quick}}, j)
	}
	near := func(what string, got, want, by float64) {
		if math.Abs(got-want) > by {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	near("calm steps", rows[0].Ratio, 4, 1e-9)
	near("steps", rows[2].Ratio, 2, 1e-9)
	near("its range", rows[2].RatioMax-rows[2].RatioMin, 0, 1e-9)
	near("calm loss", rows[0].Speed, 4, 1e-9)
	near("loss", rows[2].Speed, 1, 0.06) // up to a step, and the window
	near("seconds", rows[2].Seconds, 2*199, 1e-9)
	near("late", rows[1].Late, 1, 1e-9)
	near("given up", rows[1].GivenUp, 1, 1e-9)
	near("computing", rows[1].Computing, 1, 1e-9)
	near("quota", rows[1].Quota, 1, 1e-9)
}
