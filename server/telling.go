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

// tellEvery is how often the log of the server that conducts says how far the run is: nobody else
// does where no launcher started it. It is how long a run stands, too, before that is told.
const tellEvery = time.Minute

// slowly is how many times longer than the one before a step must take before it is missed.
const slowly = 10

// telling is what the log has been told of steps.
type telling struct {
	log   *slog.Logger
	line  kintsugi.Line
	steps kintsugi.Step // of the run

	newest kintsugi.StepEvent
	took   time.Duration // that the newest came after the one before
	moved  time.Time     // when the newest came, or this began
	saved  kintsugi.Step // that the newest full checkpoint has, as far as known here

	told  time.Time // when it was told last, or this began
	at    kintsugi.Step
	stood time.Time // when it was told last that the run stands
	over  bool

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
			t.over = true // the shards say it
		}
	}
}

// broke notes that the conductor's stream to a shard has ended: that it is opened again each time
// says nothing of what ends it.
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

// tell says how far the run is, when it is time to, or that it does not get on and what it waits
// for. That is news for those who watch the run, too: the log of the server that conducts is not
// where people look first.
func (t *telling) tell(now time.Time, waits func() string) (news []kintsugi.RunEvent) {
	if t.over {
		return nil
	}
	still := now.Sub(t.moved)
	stands := still >= tellEvery && still > slowly*t.took
	if stands && now.Sub(t.stood) >= tellEvery {
		t.stood = now
		e := kintsugi.StandEvent{Line: t.line, Step: t.newest.Step, Time: now, Lasts: still, Waits: waits()}
		streams := t.streams()
		t.log.Warn("no step is taken", "seconds", still.Seconds(), "step", e.Step, "of", t.steps, "waits_for", e.Waits, "streams", streams)
		if streams != "" {
			e.Waits += ". The conductor's streams: " + streams
		}
		news = append(news, e)
	}
	if since := now.Sub(t.told); since >= tellEvery {
		if t.newest.Step > t.at && !stands {
			t.log.Info("steps go on", "step", t.newest.Step, "of", t.steps, "steps_per_second", float64(t.newest.Step-t.at)/since.Seconds(), "loss", t.newest.Loss,
				"workers", t.newest.Workers, "checkpoint_step", t.saved)
		}
		t.told, t.at = now, max(t.at, t.newest.Step)
	}
	return news
}
