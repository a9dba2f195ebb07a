package server

import (
	"github.com/kintsugi-ml/kintsugi"
)

// foresees lets the core foresee commits, if the steps of the run count one fresh gradient of every
// member.
func (r *replica) foresees() {
	cfg := r.cfg
	if r.at > 0 || r.versions.arrays != nil || !cfg.Consistency.Certain() {
		return // an accelerator makes all chunks at once
	}
	r.core.Foresee(func(step kintsugi.Step, members int) kintsugi.Optimizer {
		return cfg.Schedule.Part(step, cfg.Consistency.RatePart(members, members))
	})
}

// foresee begins to make a step whose commit has not come yet, each chunk as soon as it has landed.
// It touches nothing that can be read, and sends nothing.
func (r *replica) foresee(c kintsugi.Commit) {
	if !r.idle() {
		return // threads still work on a step that was given up; this one is made when it is committed
	}
	m, err := r.newMaking(c)
	if err != nil {
		return // only a replica that is not a head gets this error
	}
	r.early, r.quiet = m, m.ended
	r.cfg.Enter(Arriving)
	m.begin()
	m.asTheyLand()
}

// overturn throws away what was made of a commit that will not come.
func (r *replica) overturn() {
	if r.early != nil {
		r.early.giveUp()
		r.early = nil
	}
}

// idle reports whether no kernel reads held pushes.
func (r *replica) idle() bool {
	select {
	case <-r.quiet:
		return true
	default:
		return r.quiet == nil
	}
}
