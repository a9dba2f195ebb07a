package cluster

import (
	"reflect"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// There is a departure around which the longest step takes 2 s, a return that takes 3 s, and a kill
// with 5 s to the next step and two steps taken back.
func TestWhatHappensAroundNoticesAndKillsIsFound(t *testing.T) {
	var events []record.Event
	step := func(line, n uint64, at float64) {
		events = append(events, &record.Step{At: record.At{Seconds: at}, Line: line, Step: n})
	}
	step(1, 1, 1)
	step(1, 2, 2)
	step(1, 3, 4) // while it leaves
	step(1, 4, 5)
	events = append(events, &record.Failure{At: record.At{Seconds: 2.5}, SeenSeconds: 4.5, Part: "server/1", Announced: true})
	step(1, 5, 6)
	step(1, 6, 9) // while it comes back
	step(1, 7, 10)
	events = append(events, &record.Failure{At: record.At{Seconds: 10}, SeenSeconds: 10, Part: "server/1", Injected: true})
	events = append(events, &record.View{At: record.At{Seconds: 12}, Line: 2, RestoredStep: 5})
	step(2, 6, 15)
	step(2, 7, 16)
	got := noticed(record.NewRun(events, nil))
	want := PreemptRow{Usual: 1, Notice: Interruption{Count: 1, Gap: 2, GapMax: 2, Return: 3}, Kill: Interruption{Count: 1, Gap: 5, GapMax: 5, Return: 1, Lost: 2}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
