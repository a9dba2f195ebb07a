package machine

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/live"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/server"
)

func TestSnapshotsAreMeasuredBesideStepsWithoutThem(t *testing.T) {
	cfg := SnapshotConfig{State: 3 << 20, Workers: 1, Steps: 6, Block: 3, Dir: t.TempDir(), Progress: io.Discard}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	rows, err := Snapshots(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) == 0 || rows[len(rows)-1].Name != "save" {
		t.Fatalf("rows %+v", rows)
	}
	for _, r := range rows {
		if r.Steps < 1 || !(r.Seconds > 0) || r.P99 < r.Seconds || (r.Name != "none") != (r.Saves > 0) {
			t.Errorf("%+v", r)
		}
	}
}

// A version that is being saved does not change, however many steps are made meanwhile, and all of
// it is of one step: if all values of each gradient are equal, so are those of a version.
func TestAVersionThatIsSavedIsOfOneStep(t *testing.T) {
	race.Skip(t)
	layout, err := syntheticLayout(1 << 18)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	steps, saves := kintsugi.Step(0), 0
	l, err := live.Start(t.Context(), live.Config{
		Servers: 1, Workers: 1, Layout: layout, Gradient: syntheticGradient, Schedule: syntheticSchedule(), Steps: 60, SaveEvery: 1,
		Save: func(_ context.Context, _ kintsugi.View, s server.Shard) (string, uint64, error) {
			first := [3]float32{s.Params[0], s.State[0][0], s.State[1][0]}
			for target := s.Step + 3; ; { // until three more steps are made, after which its buffer would have been written
				for i := range s.Params {
					if x := [3]float32{s.Params[i], s.State[0][i], s.State[1][i]}; x != first {
						t.Errorf("step %d: value %d is %v, the first is %v", s.Step, i, x, first)
						return "", 0, nil
					}
				}
				mu.Lock()
				over := steps >= min(target, 60)
				mu.Unlock()
				if over {
					break
				}
			}
			saves++
			return "kept", 1, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	watched := make(chan error, 1)
	go func() {
		watched <- l.Watch(t.Context(), func(e kintsugi.RunEvent) bool {
			if s, ok := e.(kintsugi.StepEvent); ok {
				mu.Lock()
				steps = s.Step
				mu.Unlock()
			}
			_, over := e.(kintsugi.Done)
			return !over
		})
	}()
	if _, err := l.Wait(); err != nil {
		t.Fatal(err)
	}
	if saves < 2 {
		t.Errorf("%d versions were saved", saves)
	}
}
