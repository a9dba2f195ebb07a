package sim

import "github.com/kintsugi-ml/kintsugi"

// version is one buffer with a version of a shard. Buffers are used again, so whoever writes one too early
// destroys what somebody reads.
type version struct {
	step   kintsugi.Step
	values []uint64 // by chunk of the shard
	pins   int
	live   bool // current, next or being written
}

// versions holds the buffers of one shard as package server does: the released one, which is read, and the
// one after it.
type versions struct {
	n             int
	current, next *version
	aside         []*version // what a line begins with whose first step is not known yet; there is no current one then
	free          []*version
	waiting       []reader
	overwrite     bool // a planted bug: buffers are used again while they are pinned
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

// publish makes the next version the current one, or x if this is the first.
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

// install makes x, which a replica was sent, the current version.
func (v *versions) install(x *version) {
	v.retire(v.next)
	v.next = nil
	v.publish(x)
}

// wait takes what can be read away until adopt says which version it is.
func (v *versions) wait() {
	for _, x := range []*version{v.current, v.next} {
		if x != nil {
			v.aside = append(v.aside, x)
		}
	}
	v.current, v.next, v.waiting = nil, nil, nil
}

// copied takes a copy that a replica was sent: it is the next version, and the copy before it the current one.
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

// at returns the version of a step, nil if it is neither the current one nor the next.
func (v *versions) at(step kintsugi.Step) *version {
	for _, x := range []*version{v.current, v.next} {
		if x != nil && x.step == step {
			return x
		}
	}
	return nil
}

// adopt makes the version of a step that waits the current one, and returns of which step it was;
// where there is none of it, the newest before it, or the only one there is.
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

// read gives the current version, pinned once, as soon as it is at least atLeast.
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
