package sim

import "github.com/kintsugi-ml/kintsugi"

// version is a buffer with one version of a shard. Buffers are reused: writing one too early
// destroys what somebody reads.
type version struct {
	step   kintsugi.Step
	values []uint64 // by chunk of the shard
	pins   int
	live   bool // it is current, next or being written
}

// versions holds the buffers of one shard as package server does: the released version, which is
// read, and the version after it.
type versions struct {
	n             int
	current, next *version
	early         *version   // next, once readers who ask for it may have it
	aside         []*version // the candidates for a line whose first step is not known yet; there is no current version then
	free          []*version
	waiting       []reader
	overwrite     bool // a planted bug: buffers are reused while they are pinned
}

// reader waits for a version.
type reader struct {
	readRequest
	give func(*version)
}

func (v *versions) take(step kintsugi.Step) *version {
	x := &version{values: make([]uint64, v.n)}
	if n := len(v.free); n > 0 {
		x = v.free[n-1]
		v.free = v.free[:n-1]
	}
	x.step, x.live = step, true
	return x
}

func (v *versions) applied(x *version) {
	v.retire(v.next)
	v.next = x
}

// offer lets readers have the next version before it is released, if they ask for that.
func (v *versions) offer() {
	v.early = v.next
	v.serve()
}

// serve lets the readers that wait look again.
func (v *versions) serve() {
	waiting := v.waiting
	v.waiting = nil
	for _, r := range waiting {
		v.read(r.readRequest, r.give)
	}
}

// publish makes the next version the current one, or x if there is no version yet.
func (v *versions) publish(x *version) {
	if x == nil {
		x, v.next, v.early = v.next, nil, nil
	}
	v.retire(v.current)
	v.current = x
	v.serve()
}

// install makes x, which a replica has received, the current version.
func (v *versions) install(x *version) {
	v.retire(v.next)
	v.next = nil
	v.publish(x)
}

// wait makes all versions unreadable until adopt says which one to use.
func (v *versions) wait() {
	for _, x := range []*version{v.current, v.next} {
		if x != nil {
			v.aside = append(v.aside, x)
		}
	}
	v.current, v.next, v.early, v.waiting = nil, nil, nil, nil
}

// copied stores a copy that a replica has received: it becomes the next version, and the copy
// before it the current one.
func (v *versions) copied(x *version) {
	switch {
	case v.next != nil && x.step > v.next.step:
		v.publish(nil)
		v.applied(x)
	case v.next != nil && x.step == v.next.step, v.next == nil && v.current != nil && x.step > v.current.step:
		v.applied(x)
	default:
		v.install(x)
	}
}

// at returns the current or the next version if it is of the given step, otherwise nil.
func (v *versions) at(step kintsugi.Step) *version {
	for _, x := range []*version{v.current, v.next} {
		if x != nil && x.step == step {
			return x
		}
	}
	return nil
}

// adopt makes the waiting version of a step the current one. If there is none, it takes the newest
// before that step, or the only one there is. It returns the step of the version that it took.
func (v *versions) adopt(step kintsugi.Step) (was kintsugi.Step) {
	x := v.aside[0]
	for _, y := range v.aside[1:] {
		if x.step < y.step && y.step <= step {
			x = y
		}
	}
	for _, y := range v.aside {
		if y != x {
			v.retire(y)
		}
	}
	was, x.step, v.aside = x.step, step, nil
	v.publish(x)
	return was
}

func (v *versions) retire(x *version) {
	if x == nil {
		return
	}
	if x.live = false; v.early == x {
		v.early = nil
	}
	if x.pins == 0 || v.overwrite {
		v.free = append(v.free, x)
	}
}

// read calls give with a version that answers the request, pinned once, as soon as there is one.
func (v *versions) read(q readRequest, give func(*version)) {
	x := v.current
	if e := v.early; q.unreleased && e != nil && e.step == q.atLeast {
		x = e
	}
	if x == nil || x.step < q.atLeast {
		v.waiting = append(v.waiting, reader{q, give})
		return
	}
	x.pins++
	give(x)
}

func (v *versions) unpin(x *version) {
	if x.pins--; x.pins == 0 && !x.live && !v.overwrite {
		v.free = append(v.free, x)
	}
}
