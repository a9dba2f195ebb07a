package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/recovery/choose"
)

// overdueAfter is how late a checkpoint may be, at least, before a run says so.
const overdueAfter = time.Minute

// overdue notices a checkpoint that does not come. A store that hangs fails no save, and ends none:
// steps go on, and so does what a loss would take back.
type overdue struct {
	every  pace          // between two checkpoints; zero: nothing is ever due
	gaps   gaps          // where every is auto
	ended  kintsugi.Step // of the newest save that ended, well or not, or that the line began with
	from   time.Time     // when that was first looked at, if checkpoints are due by time
	newest kintsugi.Step // that was released when it was looked at last
	moved  time.Time     // when newest became it
	since  time.Time     // from when the next one is late; zero: it is not
	told   time.Duration // how late it was said to be; 0: it was not
}

// end notes that the save of a step has ended. One that went wrong says so itself, and the next is
// due as if it had not.
func (o *overdue) end(step kintsugi.Step) {
	if !o.from.IsZero() {
		o.gaps.add(o.moved.Sub(o.from))
	}
	*o = overdue{every: o.every, gaps: o.gaps, ended: step}
}

// view notes that another server may conduct: what the one before had begun to save is forgotten.
func (o *overdue) view() { *o = overdue{every: o.every, ended: o.ended} }

// at returns how late a checkpoint is, where that is more than overdueAfter, three times the
// slowest yet, and twice what was said last; 0: it is not. It is late once the one after it is due
// as well: steps may stand between two of them, where no store is to blame.
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

// due reports whether the second checkpoint after the newest should have been begun.
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
	return o.moved.Sub(o.from) >= 2*apart // where no step is released, none can be saved
}

// gaps are the times between the ends of the newest saves of a view, where who conducts it chooses
// them and tells nobody.
type gaps struct {
	newest [3]time.Duration
	count  int // with the one before the first save, which says nothing: a conductor saves its first step
}

func (g *gaps) add(gap time.Duration) {
	if g.count > 0 {
		g.newest[g.count%len(g.newest)] = gap
	}
	g.count++
}

// apart returns how far apart saves may be by now.
func (g *gaps) apart() time.Duration {
	if g.count <= len(g.newest) {
		return choose.Longest * time.Second
	}
	return 2 * slices.Max(g.newest[:])
}

// againAfter is how long a run says nothing of further saves that fail: where a disk is full each
// of them does, and there may be ten in a second.
const againAfter = 10 * time.Second

// failing counts saves that fail.
type failing struct {
	told   time.Time
	untold int // failures since
}

// at reports whether a failure is to be told of, and how many were not since the last that was.
func (f *failing) at(now time.Time) (untold int, tell bool) {
	if since := now.Sub(f.told); since >= 0 && since < againAfter {
		f.untold++
		return 0, false
	}
	untold = f.untold
	f.told, f.untold = now, 0
	return untold, true
}

// sayFailed says that a save has failed.
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

// sayOverdue says that no checkpoint comes, where that is so.
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
