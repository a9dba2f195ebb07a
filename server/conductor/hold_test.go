package conductor_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// A hold needs the newest version saved. If a save of it was under way and fails, the hold makes one
// of its own. If that fails too, steps go on.
func TestAHoldSavesOnceByItself(t *testing.T) {
	now := time.Unix(0, 0)
	x := inRun(t, now, conductor.Config{Shards: 1, Slots: 1, Steps: 100, SaveEvery: 1}, kintsugi.Taken{})
	does := func(saves, commits bool) {
		t.Helper()
		ready := x.Ready()
		has := func(is func(kintsugi.ControlMessage) bool) bool {
			return slices.ContainsFunc(ready.ToShards, func(m conductor.ToShard) bool { return is(m.Message) })
		}
		saved := has(func(m kintsugi.ControlMessage) bool { r, ok := m.(kintsugi.Released); return ok && r.Save })
		committed := has(func(m kintsugi.ControlMessage) bool { _, ok := m.(kintsugi.Commit); return ok })
		if saved != saves || committed != commits || ready.Held != nil {
			t.Errorf("it saves: %v, makes a step: %v, want %v and %v; held: %v", saved, committed, saves, commits, ready.Held)
		}
	}
	x.HandleTicket(now, gradientOf(0, 0))
	does(false, true)
	stable(x, now, 1, 1)
	does(true, false)
	x.Hold(now)
	x.Hold(now)
	x.HandleTicket(now, gradientOf(0, 1))
	does(false, false) // the version is being saved
	x.HandleReplica(now, kintsugi.Saved{Step: 1, Err: "the disk is full"})
	does(true, false)
	x.HandleReplica(now, kintsugi.Saved{Step: 1, Err: "the disk is full"})
	x.Tick(now)
	does(false, true)
}
