package server

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// tellEvery is how often the log of the server that conducts says how far the run is: nobody else does where no launcher started it.
const tellEvery = time.Minute

// slowly is how many times longer than the one before a step must take before it is missed.
const slowly = 10

// telling is what the log has been told of steps.
type telling struct {
	log   *slog.Logger
	steps kintsugi.Step // of the run

	newest kintsugi.StepEvent
	took   time.Duration // that the newest came after the one before
	moved  time.Time     // when the newest came, or this began
	saved  kintsugi.Step // that the newest full checkpoint has, as far as known here

	told time.Time // when it was told last, or this began
	at   kintsugi.Step

	broken map[kintsugi.ShardID]error // why the conductor's stream to a shard has ended last, since the newest step
}

// hear notes events of the run.
func (t *telling) hear(events []kintsugi.RunEvent) {
	for _, e := range events {
		switch e := e.(type) {
		case kintsugi.StepEvent:
			if t.newest.Step == 0 {
				t.at = e.Step - 1
			}
			t.newest, t.took, t.moved, t.broken = e, e.Time.Sub(t.moved), e.Time, nil
		case kintsugi.CheckpointEvent:
			if !e.Running && e.Err == "" {
				t.saved = e.Step
			}
		case kintsugi.Done:
			t.log = slog.New(slog.DiscardHandler) // the shards say it
		}
	}
}

// broke notes that the conductor's stream to a shard has ended: that it is opened again each time says nothing of what ends it.
func (t *telling) broke(s kintsugi.ShardID, err error) {
	if t.broken == nil {
		t.broken = make(map[kintsugi.ShardID]error)
	}
	t.broken[s] = err
}

// streams says why streams have ended, in the order of their shards.
func (t *telling) streams() string {
	var said []string
	for _, s := range slices.Sorted(maps.Keys(t.broken)) {
		said = append(said, fmt.Sprintf("shard %d: %v", s, t.broken[s]))
	}
	return strings.Join(said, "; ")
}

// tell says how far the run is, when it is time to, or that it does not get on and what it waits for.
func (t *telling) tell(now time.Time, waits func() string) {
	since := now.Sub(t.told)
	if since < tellEvery {
		return
	}
	still := now.Sub(t.moved)
	if t.newest.Step > t.at {
		t.log.Info("steps go on", "step", t.newest.Step, "of", t.steps, "steps_per_second", float64(t.newest.Step-t.at)/since.Seconds(), "loss", t.newest.Loss,
			"workers", t.newest.Workers, "checkpoint_step", t.saved)
	} else if still > slowly*t.took {
		t.log.Warn("no step is taken", "seconds", still.Seconds(), "step", t.newest.Step, "of", t.steps, "waits_for", waits(), "streams", t.streams())
	}
	t.told, t.at = now, max(t.at, t.newest.Step)
}
