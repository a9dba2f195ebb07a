package record

import (
	"reflect"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// A timeline is read as it was written, in microseconds, and what cannot be one is refused.
func TestTimelinesAreReadAsTheyWereWritten(t *testing.T) {
	us := func(n int) time.Duration { return time.Duration(n) * time.Microsecond }
	want := TimelineOf(kintsugi.StepEvent{Line: 2, Step: 9, Wait: us(7), Apply: us(3), Timeline: &kintsugi.Timeline{
		Workers: []kintsugi.WorkerTime{{Slot: 5, Told: us(-1), Compute: us(40), Transfer: us(9), Spans: kintsugi.Spans{Wait: us(1), Pull: us(2), Encode: us(3), Send: us(4), Hidden: us(6)}}},
		Shards:  []kintsugi.ShardTime{{Shard: 1, Told: us(50), Apply: us(8), Publish: us(2), Ahead: us(5)}},
	}})
	if w := want.Workers[0]; w.Answers != us(2) || w.Told != us(-1) {
		t.Fatalf("the heads' answers took %v, want what is left of the transfer, 2µs", w.Answers)
	}
	line, err := appendEvent(nil, want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseEvent(line)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s is read as %+v, %v; want %+v", line, got, err, want)
	}
	var earlier Stable
	if err := earlier.UnmarshalJSON([]byte(`[1,50,8,2]`)); err != nil || earlier != (Stable{Shard: 1, Told: us(50), Kernel: us(8), Publish: us(2)}) {
		t.Errorf("the times of a shard without those before the commit are read as %+v, %v", earlier, err)
	}
	if err := earlier.UnmarshalJSON([]byte(`[1,50,8]`)); err == nil {
		t.Error("two times are read as those of a shard")
	}
	for _, text := range []string{`[]`, `[1,2]`, `[-1,0,0,0,0,0,0,0,0]`, `[1,0,0,0,0,0,0,0,9223372036854775807]`, `{}`} {
		if err := new(Round).UnmarshalJSON([]byte(text)); err == nil {
			t.Errorf("%s is read as a round", text)
		}
	}
}
