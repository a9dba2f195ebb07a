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

// tellEvery is how often the log of the conducting server says how far the run is; without a
// launcher, nobody else says it. It is also how long a run must stand still before the log says so.
const tellEvery = time.Minute

// gatherFor is how long the first step must wait for missing workers before the log says for whom:
// usually all of them come within a few seconds of each other.
const gatherFor = 10 * time.Second

// slowly is how many times as long as the step before a step must take before the run is said to
// stand still.
const slowly = 10

// telling is what is known about the steps, and what the log has said of them.
type telling struct {
	log   *slog.Logger
	line  kintsugi.Line
	steps kintsugi.Step // of the run

	newest kintsugi.StepEvent
	took   time.Duration // time between the newest step and the one before
	moved  time.Time     // when the newest step came, or when this began
	saved  kintsugi.Step // step of the newest full checkpoint, as far as known here

	told  time.Time // when progress was logged last, or when this began
	at    kintsugi.Step
	stood time.Time // when it was logged last that the run stands still
	over  bool

	broken map[kintsugi.ShardID]error // since the newest step, why the conductor's stream to a shard ended last
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
			t.over = true // the shards log it
		}
	}
}

// broke notes why the conductor's stream to a shard has ended. The stream is opened again each
// time, and the new stream does not show what ended the one before.
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

// waiting is what a [conductor.Conductor] says of what it waits for.
type waiting interface {
	Waits(now time.Time) string
	Gathers(now time.Time) (lasts, left time.Duration)
}

// tell logs how far the run is when that is due, or that it stands still and what it waits for. It
// also returns the latter as an event for those who watch the run: few people look into the log of
// the conducting server first.
func (t *telling) tell(now time.Time, run waiting) (news []kintsugi.RunEvent) {
	if t.over {
		return nil
	}
	still := now.Sub(t.moved)
	gathers, left := run.Gathers(now)
	stands := still >= tellEvery && still > slowly*t.took || t.stood.IsZero() && gathers >= gatherFor && left > 0
	if stands && now.Sub(t.stood) >= tellEvery {
		t.stood = now
		e := kintsugi.StandEvent{Line: t.line, Step: t.newest.Step, Time: now, Lasts: still, Waits: run.Waits(now)}
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
