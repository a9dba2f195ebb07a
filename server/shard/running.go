package shard

import "github.com/kintsugi-ml/kintsugi"

// A shard outlives its line where another one is lost and only that one is restored: see kintsugi.View.Keeps. What it
// holds is the state of the next line then, at a step that the conductor of that line finds out.

// Continue returns the replica of the line that follows, which stands where r stands and waits for Adopt. Pushes and
// the open commit are of the line before and are left behind. r is not used afterwards.
func (r *Replica) Continue(line kintsugi.Line, view kintsugi.ViewNumber) *Replica {
	next := New(r.id, 1, line, view, r.released)
	next.empty, next.most, next.interval = r.empty, r.most, r.interval
	next.applied, next.standing, next.lost = r.applied, r.standing, r.lost
	if r.standing == kintsugi.Settled {
		next.standing = kintsugi.Kept
	}
	return next
}

// Lose makes r, which is new, wait for Adopt with chunks that came back from the running checkpoint, each as of a
// version in saved.
func (r *Replica) Lose(saved []kintsugi.Step) { r.standing, r.lost = kintsugi.Lost, saved }

// adopt begins the line at step.
func (r *Replica) adopt(step kintsugi.Step) {
	switch {
	case r.standing == kintsugi.Kept && step != r.released && step != r.applied:
		return // it has never stood there: the conductor has not learnt that from this shard
	case r.standing != kintsugi.Settled:
		r.standing, r.lost = kintsugi.Settled, nil
		r.released, r.applied = step, step
		r.ready.Adopt = &step
	}
	r.reply(r.state())
}

// SaveRunning has some chunks saved for the running checkpoint after every so many steps; 0: never.
func (r *Replica) SaveRunning(interval kintsugi.Step) { r.interval = interval }

// run asks for a save of chunks when it is due. One that takes longer than the interval delays the next, never a step,
// and so does a save of all chunks: it would find that its version is older than what was saved while it waited.
func (r *Replica) run() {
	if r.interval == 0 || r.empty || r.follows || (r.released%r.interval != 0 && !r.due) {
		return
	}
	busy := r.running || len(r.saving) > 0
	if r.skip > 0 && !busy {
		r.skip, r.due = r.skip-1, false
		return
	}
	if r.due = busy; !busy {
		r.running = true
		step := r.released
		r.ready.Run = &step
	}
}

// maxPause bounds how many saves are left out after a failure.
const maxPause = 63

// Ran ends the save of Ready.Run. What it has saved, if it has saved anything or failed, is told to the conductor. After
// failures saves are tried more and more rarely: a store that is away for hours must not fill the logs.
func (r *Replica) Ran(s kintsugi.Saved) {
	r.running = false
	if s.Err == "" {
		r.pause, r.skip = 0, 0
	} else {
		r.pause = min(2*r.pause+1, maxPause)
		r.skip = r.pause
	}
	if s.Chunks > 0 || s.Err != "" {
		r.reply(s)
	}
}
