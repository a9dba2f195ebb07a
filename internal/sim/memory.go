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
	aside         []*version // the candidates for a line whose first step is not known yet; there is no current version then
	free          []*version
	waiting       []reader
	overwrite     bool // a planted bug: buffers are reused while they are pinned
}

// reader waits for a version.
type reader struct {
	atLeast kintsugi.Step
	give    func(*version)
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

// publish makes the next version the current one, or x if there is no version yet.
func (v *versions) publish(x *version) {
	if x == nil {
		x, v.next = v.next, nil
	}
	v.retire(v.current)
	v.current = x
	waiting := v.waiting
	v.waiting = nil
	for _, r := range waiting {
		v.read(r.atLeast, r.give)
	}
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
	v.current, v.next, v.waiting = nil, nil, nil
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
	x.live = false
	if x.pins == 0 || v.overwrite {
		v.free = append(v.free, x)
	}
}

// read calls give with the current version, pinned once, as soon as that is at least atLeast.
func (v *versions) read(atLeast kintsugi.Step, give func(*version)) {
	if v.current == nil || v.current.step < atLeast {
		v.waiting = append(v.waiting, reader{atLeast, give})
		return
	}
	v.current.pins++
	give(v.current)
}

func (v *versions) unpin(x *version) {
	if x.pins--; x.pins == 0 && !x.live && !v.overwrite {
		v.free = append(v.free, x)
	}
}
