package server

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// For users who have started servers by hand, the logs alone say how far a run is, and what it
// waits for.
func TestTheLogSaysHowFarTheRunIsAndWhatItWaitsFor(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(1e9, 0)
	run := &gathering{}
	tell := telling{log: slog.New(slog.NewTextHandler(&log, nil)), steps: 900, moved: now, told: now}
	pass := func(d time.Duration, want string) {
		t.Helper()
		log.Reset()
		now = now.Add(d)
		news := tell.tell(now, run)
		if stands := strings.Contains(want, "waits_for"); stands != (len(news) == 1) || stands && (news[0].(kintsugi.StandEvent).Lasts != now.Sub(tell.moved) ||
			!strings.HasPrefix(news[0].(kintsugi.StandEvent).Waits, "shard 1")) {
			t.Errorf("after %v it tells %+v", d, news)
		}
		if said := log.String(); want == "" && said != "" || !strings.Contains(said, want) {
			t.Errorf("after %v it says %q, want %q", d, said, want)
		}
	}
	step := func(s kintsugi.Step) {
		tell.hear([]kintsugi.RunEvent{kintsugi.StepEvent{Step: s, Time: now, Loss: 0.5, Workers: 2}, kintsugi.CheckpointEvent{Step: s - 1}, kintsugi.CheckpointEvent{Step: s, Err: "full"}})
	}
	pass(59*time.Second, "")
	pass(time.Second, `level=WARN msg="no step is taken" seconds=60 step=0 of=900 waits_for="shard 1"`)
	for s := range kintsugi.Step(30) {
		now = now.Add(time.Second)
		step(101 + s)
	}
	pass(time.Second, "") // it is not time yet
	pass(29*time.Second, `level=INFO msg="steps go on" step=130 of=900 steps_per_second=0.5 loss=0.5 workers=2 checkpoint_step=129`)
	tell.broke(1, errors.New("refused"))
	tell.broke(0, errors.New("too long"))
	pass(time.Minute, `level=WARN msg="no step is taken" seconds=90 step=130 of=900 waits_for="shard 1" streams="shard 0: too long; shard 1: refused"`)
	now = now.Add(90 * time.Second)
	step(131)
	pass(0, "steps go on")
	pass(2*time.Minute, "") // the step before took three minutes
	pass(time.Hour, `waits_for="shard 1" streams=""`)
	tell.hear([]kintsugi.RunEvent{kintsugi.Done{Step: 900}})
	pass(time.Hour, "") // the run is over
}

// A run that begins waits a minute for workers that are missing, but its log says so much sooner.
func TestTheLogSaysSoonForWhomTheFirstStepWaits(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(1e9, 0)
	tell := telling{log: slog.New(slog.NewTextHandler(&log, nil)), steps: 900, moved: now, told: now}
	run := &gathering{left: time.Minute}
	for i := range 100 {
		if i >= 20 { // nobody has come before
			run.lasts, run.left = run.lasts+time.Second, run.left-time.Second
		}
		now = now.Add(time.Second)
		news := tell.tell(now, run)
		switch i {
		case 29: // ten seconds after the first worker
			if e, ok := news[0].(kintsugi.StandEvent); !ok || e.Lasts != 30*time.Second || e.Waits != "shard 1" || !strings.Contains(log.String(), "no step is taken") {
				t.Errorf("it tells %+v and logs %q", news, log.String())
			}
		case 89: // a minute later; from now on the first step waits for nobody
			if len(news) != 1 {
				t.Errorf("it tells %+v", news)
			}
		default:
			if len(news) > 0 {
				t.Errorf("after %d s it tells %+v", i+1, news)
			}
		}
	}
}

// gathering is a run whose first step has waited for workers for lasts, and will for left.
type gathering struct{ lasts, left time.Duration }

func (*gathering) Waits(time.Time) string { return "shard 1" }

func (g *gathering) Gathers(time.Time) (lasts, left time.Duration) { return g.lasts, g.left }
