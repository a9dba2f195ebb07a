package server

import (
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// version is one complete version of a shard: parameters and optimizer state. It is written once, before
// it is published, and never again while someone reads it.
type version struct {
	step   kintsugi.Step
	params []float32
	state  [2][]float32 // as many arrays as the rule has, each as long as params; nil where they are far and nobody has asked for them
	far    *far         // nil: they live on the host alone
	pins   int          // guarded by versions.mu
	live   bool         // current, next or being written; guarded by versions.mu

	since  []kintsugi.Step // by chunk, the version that changed it last, or a later one; nil: its own
	pulled pulled
	rooms  rooms
}

// rooms are what readers read of a version. They are the buffer's: whoever writes it next finds them as they are.
type rooms struct {
	params room // that of the version's params, unless it is far
	copied room // of params that are far, once readers have asked to borrow them
	halves room // of params in bfloat16, once somebody has asked for them
}

// room is memory for what readers read, so that those on this host may read it where it lies.
type room struct {
	bytes  []byte
	memory *transport.Memory // that bytes are, from its beginning on; nil: they are memory like any other
}

// leastLent is how many bytes are worth a descriptor here and a mapping in each reader: less than a page is sent.
const leastLent = 4096

func newRoom(n int) room {
	if n >= leastLent {
		if m, err := transport.NewMemory(n, shm.ReadOnly); err == nil { // else there is none, and readers are sent what they read
			return room{transport.Put(m.Segment(), transport.PlaceAt(0), n), m}
		}
	}
	return room{bytes: kernels.Bytes(make([]float32, (n+3)/4))[:n]}
}

// versions holds the versions of one shard: the released one, which is read, and the one after it. Where steps
// are asked for products with the displacement of the step before, also the one before it.
type versions struct {
	layout *kintsugi.Layout
	chunks kintsugi.ChunkRange
	states int
	arrays kernels.Arrays // on an accelerator; nil: on the host; set before the first version is taken
	keep   bool           // keep the version before the current one; set before the first is published
	marks  bool           // versions say since when chunks are as they are; set before the first is published

	mu       sync.Mutex
	previous *version   // nil: none, or not kept
	current  *version   // released
	next     *version   // applied and not released; nil: none
	waiting  []*version // what a line begins with whose first step is not known yet; there is no current one then
	free     []*version
	made     int           // buffers, of which some may have been left to the garbage collector
	changed  chan struct{} // closed when current changes
}

func newVersions(l *kintsugi.Layout, chunks kintsugi.ChunkRange, states int) *versions {
	return &versions{layout: l, chunks: chunks, states: states, changed: make(chan struct{})}
}

// take returns a version to write. Its contents are left over from an earlier one.
func (v *versions) take(step kintsugi.Step) *version {
	v.mu.Lock()
	var x *version
	if n := len(v.free); n > 0 {
		x = v.free[n-1]
		v.free = v.free[:n-1]
		v.mu.Unlock()
		*x = version{params: x.params, state: x.state, far: x.far, rooms: x.rooms}
		if x.far != nil {
			x.far.here = false
		}
	} else {
		v.made++
		v.mu.Unlock() // readers go on while there is none
		x = v.make()
	}
	x.step, x.live = step, true // nobody else has it
	return x
}

// make returns a new buffer.
func (v *versions) make() *version {
	if v.arrays != nil {
		return newFarVersion(v.arrays, v.states)
	}
	lo, hi := v.layout.Span(v.chunks)
	x := &version{rooms: rooms{params: newRoom(4 * (hi - lo))}}
	x.params = kernels.Floats(x.rooms.params.bytes)
	for i := range v.states {
		x.state[i] = make([]float32, hi-lo)
	}
	return x
}

// prepare makes buffers until there are n, and has the system back them with memory: a step that is
// the first to write a fresh buffer waits for each of its pages, which takes as long as the step
// itself. It may be called beside everything else.
func (v *versions) prepare(n int) {
	for {
		v.mu.Lock()
		if v.made >= n {
			v.mu.Unlock()
			return
		}
		v.made++
		v.mu.Unlock()
		x := v.make()
		for _, values := range [][]float32{x.params, x.state[0], x.state[1]} {
			for i := 0; i < len(values); i += pageValues {
				values[i] = 0
			}
		}
		v.mu.Lock()
		v.free = append(v.free, x)
		v.mu.Unlock()
	}
}

const pageValues = 4096 / 4 // in the smallest page

// applied keeps x as the version after the current one, in place of an earlier try at the same step.
func (v *versions) applied(x *version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.retire(v.next)
	v.next = x
}

// discard gives back a version that was not written to the end.
func (v *versions) discard(x *version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.retire(x)
}

// publish makes the next version the current one, or x if this is the first.
func (v *versions) publish(x *version) {
	if x == nil {
		v.mark(v.next, v.current) // nobody else changes these
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if x == nil {
		x, v.next = v.next, nil
	}
	if v.keep {
		v.retire(v.previous)
		v.previous = v.current
	} else {
		v.retire(v.current)
	}
	v.current = x
	close(v.changed)
	v.changed = make(chan struct{})
}

// install makes x, which a replica was sent, the current version. What was applied beyond the one before is void.
func (v *versions) install(x *version) {
	v.mu.Lock()
	v.retire(v.next)
	v.next = nil
	v.mu.Unlock()
	v.publish(x)
}

// copied takes x, a copy that a replica was sent. It is the next version, which may never be
// released, and the copy before it the current one; the first is the current one itself.
func (v *versions) copied(x *version) {
	v.mu.Lock()
	current, next := v.current, v.next
	v.mu.Unlock()
	switch {
	case next != nil && x.step > next.step:
		v.publish(nil)
		v.applied(x)
	case next != nil && x.step == next.step, current != nil && next == nil && x.step > current.step:
		v.applied(x)
	default:
		v.install(x)
	}
}

// wait takes what can be read away until adopt says which version it is: the line before is over.
func (v *versions) wait() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, x := range []*version{v.current, v.next} {
		if x != nil {
			v.waiting = append(v.waiting, x)
		}
	}
	v.retire(v.previous)
	v.previous, v.current, v.next = nil, nil, nil
}

// released gives up what waits but for the version that was released.
func (v *versions) released() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, x := range v.waiting[1:] {
		v.retire(x)
	}
	v.waiting = v.waiting[:1]
}

// adopt makes the waiting version of a step the current one, and returns of which step it was; if
// there is none of it, the newest one before it, or the only one that there is, which was put
// together from several.
func (v *versions) adopt(step kintsugi.Step) (was kintsugi.Step) {
	v.mu.Lock()
	x := v.waiting[0]
	for _, y := range v.waiting[1:] {
		if x.step < y.step && y.step <= step {
			x = y
		}
	}
	for _, y := range v.waiting {
		if y != x {
			v.retire(y)
		}
	}
	was, x.step, v.waiting = x.step, step, nil
	v.mu.Unlock()
	v.publish(x)
	return was
}

// retire gives x back once its readers are done with it; until then it is theirs.
func (v *versions) retire(x *version) {
	if x == nil {
		return
	}
	x.live = false
	if x.pins == 0 {
		v.free = append(v.free, x)
	}
}

// pin returns the current version, pinned, if it is at least atLeast; otherwise a channel that is
// closed when it is time to look again.
func (v *versions) pin(atLeast kintsugi.Step) (*version, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.current == nil || v.current.step < atLeast {
		return nil, v.changed
	}
	v.current.pins++
	return v.current, nil
}

// pinAt returns the version of a step, pinned: the current one or the next; nil if it is neither.
func (v *versions) pinAt(step kintsugi.Step) *version {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, x := range []*version{v.current, v.next} {
		if x != nil && x.step == step {
			x.pins++
			return x
		}
	}
	return nil
}

// pinPrevious returns the version before the current one, pinned; nil if it is not kept.
func (v *versions) pinPrevious() *version {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.previous == nil || v.previous.step+1 != v.current.step {
		return nil
	}
	v.previous.pins++
	return v.previous
}

func (v *versions) unpin(x *version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if x.pins--; x.pins == 0 && !x.live {
		v.free = append(v.free, x)
	}
}

// pinAgain adds a pin to a version that the caller has pinned.
func (v *versions) pinAgain(x *version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	x.pins++
}
