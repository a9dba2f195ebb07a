package shard

import (
	"fmt"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// A shard outlives its line if another shard is lost and only that one is restored: see
// kintsugi.View.Keeps. What it holds is then the state of the next line, at a step that the
// conductor of that line finds out.

// Continue returns the replica of the line that follows. It stands where r stands, and waits for
// Adopt. Pushes and the open commit belong to the line before and are left behind. Applied commits
// are kept: they show whether two shards have applied different decisions about one step. r is not
// used afterwards.
func (r *Replica) Continue(line kintsugi.Line, view kintsugi.ViewNumber) *Replica {
	next := New(r.id, r.chunks, line, view, r.released)
	next.every, next.most, next.behind = r.every, r.most, r.Behind()
	next.applied, next.records, next.standing, next.have = r.applied, r.records, r.standing, r.have
	if r.standing == kintsugi.Settled {
		next.standing = kintsugi.Kept
	}
	return next
}

// Keep makes r, which is new and has been recalled, wait for Adopt with what an earlier life of its
// server has left of the line before.
func (r *Replica) Keep() { r.standing = kintsugi.Kept }

// Lose makes r, which is new, wait for Adopt with chunks that came back from the running
// checkpoint. saved has the version of each.
func (r *Replica) Lose(saved []kintsugi.Step) {
	r.standing, r.have = kintsugi.Lost, slices.Clone(saved)
}

// adopt begins the line at step.
func (r *Replica) adopt(step kintsugi.Step) {
	switch {
	case r.standing == kintsugi.Kept && step != r.released && step != r.applied:
		// The shard has never stood there, so the conductor has not learnt that step from it.
		return
	case r.standing != kintsugi.Settled:
		r.fellBack(step)
		r.standing = kintsugi.Settled
		r.released, r.applied, r.records, r.answer = step, step, nil, kintsugi.Stable{}
		r.ready.Adopt = &step
	}
	r.reply(r.state())
}

// Run is a save for the running checkpoint: of these chunks, counted from the first of the shard,
// as they are in version Step.
type Run struct {
	Step   kintsugi.Step
	Chunks []kintsugi.ChunkID
}

// Holds sets, by chunk, the version in the running checkpoint when the replica begins. Without it,
// there is no running checkpoint.
func (r *Replica) Holds(saved []kintsugi.Step) { r.have = slices.Clone(saved) }

// run asks for a save that the conductor has planned. One save is under way at a time: a conductor
// waits for each, but a conductor that takes over does not know of it.
func (r *Replica) run(m kintsugi.Released) {
	s := kintsugi.Saved{Shard: r.id, Step: m.Step, Running: true}
	switch {
	case r.running != nil:
		s.Err = fmt.Sprintf("the save of version %d is still under way", r.running.Step)
		r.reply(s)
	case len(r.saving) > 0:
		s.Err = "a save of all chunks is under way"
		r.reply(s)
	default:
		r.running = &Run{Step: m.Step, Chunks: m.Run}
		r.ready.Run = r.running
	}
}

// Ran ends the save of Ready.Run.
func (r *Replica) Ran(s kintsugi.Saved) {
	if s.Err == "" && r.have != nil {
		for _, c := range r.running.Chunks {
			r.have[c] = max(r.have[c], s.Step)
		}
	}
	r.running = nil
	r.reply(s)
}
