package report

import (
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// The strip shows the step of median length, with a bar for each part that has a length, and
// medians over all sampled steps.
func TestTheStripShowsTheStepOfMedianLength(t *testing.T) {
	ms := time.Millisecond
	sampled := func(step uint64, compute time.Duration) record.Timeline {
		return record.Timeline{Step: step, WaitSeconds: (compute + ms).Seconds(), ApplySeconds: 0.001,
			Workers: []record.Round{{Slot: 3, Told: compute + ms, Wait: ms, Compute: compute, Hidden: ms / 2}},
			Shards:  []record.Stable{{Shard: 1, Told: compute + 2*ms, Kernel: ms / 2, Ahead: ms / 4}}}
	}
	s := &story{run: &record.Run{Timelines: []record.Timeline{sampled(10, 90*ms), sampled(20, 4*ms), sampled(30, 8*ms), {Step: 40}}}}
	strip, keys := s.oneStep()
	for _, want := range []string{"step 30,", "worker/3", "shard 1", "compute 8", "bar kernel", "bar ahead", "bar hidden"} {
		if !strings.Contains(string(strip), want) {
			t.Errorf("the strip lacks %q", want)
		}
	}
	if strings.Contains(string(strip), "bar send") {
		t.Error("the strip has a bar for a part that took no time")
	}
	for _, k := range keys {
		if k.Name == "compute" && k.Value != "8 ms" {
			t.Errorf("compute takes %s in the median, want 8 ms", k.Value)
		}
	}
	if strip, _ := (&story{run: &record.Run{}}).oneStep(); strip != "" {
		t.Error("a run without timelines has a strip")
	}
}
