package train

import (
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/recovery/choose"
)

// overdueAfter is the least delay of a checkpoint that a run reports.
const overdueAfter = time.Minute

// overdue notices that no checkpoint comes. If a store hangs, no save fails and none ends: steps go
// on, and a failure would take back more and more of them.
type overdue struct {
	every  job.Pace      // between two checkpoints; zero: none are due
	gaps   gaps          // if every is auto
	ended  kintsugi.Step // of the newest save that ended, successfully or not, or the step that the line began with
	from   time.Time     // when that was first seen, if checkpoints are due by time
	newest kintsugi.Step // newest released step at the last call
	moved  time.Time     // when newest was first seen
	since  time.Time     // since when the next checkpoint is late; zero: it is not
	told   time.Duration // the delay that was reported last; 0: none
}

// end notes that the save of a step has ended. A failed save is reported separately, and the next
// one is due as usual.
func (o *overdue) end(step kintsugi.Step) {
	if !o.from.IsZero() {
		o.gaps.add(o.moved.Sub(o.from))
	}
	*o = overdue{every: o.every, gaps: o.gaps, ended: step}
}

// view notes that another server may conduct: saves that the last conductor had begun no longer
// count.
func (o *overdue) view() { *o = overdue{every: o.every, ended: o.ended} }

// at returns the delay of a checkpoint, if it is longer than overdueAfter, three times the slowest
// save so far, and twice the delay reported last; otherwise 0. A checkpoint is late only when the
// one after it is due too: steps may stand between two checkpoints through no fault of the store.
func (o *overdue) at(now time.Time, newest kintsugi.Step, slowest time.Duration) time.Duration {
	if !o.due(now, newest) {
		return 0
	}
	if o.since.IsZero() {
		o.since = now
	}
	late := now.Sub(o.since)
	if late < max(overdueAfter, 3*slowest, 2*o.told) {
		return 0
	}
	o.told = late
	return late
}

// due reports whether the second checkpoint after the newest should have begun.
func (o *overdue) due(now time.Time, newest kintsugi.Step) bool {
	apart := o.every.Time
	switch {
	case o.every.Steps > 0:
		return newest >= o.ended+2*o.every.Steps
	case o.every.Auto:
		apart = o.gaps.apart()
	case apart == 0:
		return false
	}
	if o.from.IsZero() {
		o.from, o.newest, o.moved = now, newest, now
	}
	if newest != o.newest {
		o.newest, o.moved = newest, now
	}
	return o.moved.Sub(o.from) >= 2*apart // if no step is released, none can be saved
}

// gaps are the times between the ends of the newest saves in a view, used when the conductor
// chooses the interval by itself.
type gaps struct {
	newest [3]time.Duration
	count  int // including the time before the first save, which says nothing: a conductor saves its first step
}

func (g *gaps) add(gap time.Duration) {
	if g.count > 0 {
		g.newest[g.count%len(g.newest)] = gap
	}
	g.count++
}

// apart returns the expected time between saves.
func (g *gaps) apart() time.Duration {
	if g.count <= len(g.newest) {
		return choose.Longest * time.Second
	}
	return 2 * slices.Max(g.newest[:])
}

// againAfter is how long a run reports no further failed saves: on a full disk every save fails,
// and there may be ten per second.
const againAfter = 10 * time.Second

// failing counts failed saves.
type failing struct {
	told   time.Time
	untold int // failures since the last report
}

// at reports whether to report a failure, and the number of failures since the last report.
func (f *failing) at(now time.Time) (untold int, tell bool) {
	if since := now.Sub(f.told); since >= 0 && since < againAfter {
		f.untold++
		return 0, false
	}
	untold = f.untold
	f.told, f.untold = now, 0
	return untold, true
}

// sayFailed reports that a save has failed.
func (w *watcher) sayFailed(e kintsugi.CheckpointEvent, now time.Time) {
	w.mu.Lock()
	newest := w.durable
	untold, tell := w.failing.at(now)
	w.mu.Unlock()
	if !tell {
		return
	}
	log := w.log
	if untold > 0 {
		log = log.With("failed_since", untold)
	}
	log.Error("a checkpoint failed; training goes on, and a loss would go back further", "step", e.Step, "newest_checkpoint", newest, "err", e.Err)
}

// sayOverdue reports that no checkpoint comes, if that is so.
func (w *watcher) sayOverdue(now time.Time) {
	w.mu.Lock()
	late, newest, saved := w.overdue.at(now, w.seen.After, w.slowest), w.seen.After, w.durable
	w.mu.Unlock()
	if late == 0 {
		return
	}
	text := fmt.Sprintf("a checkpoint is %v late: the store is slow, or hangs", late.Round(time.Second))
	w.rec.Record(now, &record.Note{Level: "warn", Text: text})
	w.log.Warn(text+"; training goes on, and a loss would go back further", "step", newest, "newest_checkpoint", saved)
}
