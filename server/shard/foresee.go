package shard

import (
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// If a step counts one fresh gradient of every member, the set that the next commit counts is
// certain as soon as every member has begun to push. The weights are not certain: they depend on
// tickets, which shards never see. But members whose gradients had the same weights in the last two
// steps will most likely have them again. So a replica foresees the commit, and the shell makes its
// chunks as they arrive, where nobody reads them. The commit decides. Unless it is the same, the
// result is thrown away, and the step is made from the held bytes as if nothing had been foreseen.

// Foresee lets r foresee commits, because its run's counted sets are certain. optimizer returns the
// optimizer of a step that counts so many members, which are all. It is called before the first
// push.
func (r *Replica) Foresee(optimizer func(step kintsugi.Step, members int) kintsugi.Optimizer) {
	r.optimizer = optimizer
}

// foresee foresees the next commit, if what is here is enough for that and it has not been foreseen
// yet.
func (r *Replica) foresee() {
	switch {
	case r.optimizer == nil || r.foreseen != nil || r.chunks == 0 || r.follows || r.standing != kintsugi.Settled:
		return
	case r.open != nil || r.applying || r.applied != r.released:
		return // the step before is not over
	case len(r.countable) == 0 || len(r.held) < len(r.countable):
		// Some member has not begun. Stopping here keeps this cheap, since it is done for each of
		// many members.
		return
	}
	counted := r.expected()
	if counted == nil {
		return
	}
	step := r.released + 1
	r.foreseen = &kintsugi.Commit{
		Line: r.line, Step: step, Counted: counted, Scale: r.records[len(r.records)-1].Scale,
		Optimizer: r.optimizer(step, len(counted)), Want: r.want,
	}
	r.ready.Foreseen = r.foreseen
}

// expected returns the pushes that the next commit counts, nil if they are not known: the one push
// of each member on the newest version, with the member's weight in the last two steps.
func (r *Replica) expected() []kintsugi.Weighted {
	if !r.steady() {
		return nil
	}
	pushes := make(map[kintsugi.Slot]kintsugi.PushID, len(r.countable))
	for p := range r.held {
		if p.Version != r.released || p.Incarnation != r.countable[p.Slot].Incarnation {
			continue
		}
		if _, another := pushes[p.Slot]; another {
			return nil
		}
		pushes[p.Slot] = p
	}
	if len(pushes) < len(r.countable) {
		return nil
	}
	var counted []kintsugi.Weighted
	for _, w := range r.records[len(r.records)-1].Counted {
		counted = append(counted, kintsugi.Weighted{Push: pushes[w.Push.Slot], Weight: w.Weight})
	}
	return counted
}

// steady reports whether the last two steps counted the present members, nobody else, and with the
// same weights.
func (r *Replica) steady() bool {
	if len(r.records) < 2 {
		return false
	}
	a, b := r.records[0], r.records[1]
	if a.Step+1 != b.Step || b.Step != r.released || a.Scale != b.Scale || len(a.Counted) != len(b.Counted) || len(b.Counted) != len(r.countable) {
		return false
	}
	last := kintsugi.Slot(0)
	for i, w := range b.Counted {
		if _, member := r.countable[w.Push.Slot]; !member || a.Counted[i].Push.Slot != w.Push.Slot || a.Counted[i].Weight != w.Weight || i > 0 && w.Push.Slot == last {
			return false
		}
		last = w.Push.Slot
	}
	return true
}

// overturn notes that the foreseen commit will not come, or not with the bytes that are here.
func (r *Replica) overturn() {
	if r.foreseen != nil {
		r.foreseen, r.ready.Overturned = nil, true
		r.ready.Foreseen = nil
	}
}

// overturnOf calls overturn if the foreseen commit counts p.
func (r *Replica) overturnOf(p kintsugi.PushID) {
	if r.foreseen != nil && slices.ContainsFunc(r.foreseen.Counted, func(w kintsugi.Weighted) bool { return w.Push == p }) {
		r.overturn()
	}
}

// decide compares the foreseen commit with the commit that is about to be applied.
func (r *Replica) decide(c *kintsugi.Commit) {
	f := r.foreseen
	if f == nil {
		return
	}
	if f.Line != c.Line || f.Step != c.Step || f.Scale != c.Scale || f.Optimizer != c.Optimizer || f.Want != c.Want || !slices.Equal(f.Counted, c.Counted) {
		r.overturn()
	}
	r.foreseen = nil
}
