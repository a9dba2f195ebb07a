package server

import (
	"fmt"
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	"github.com/kintsugi-ml/kintsugi/internal/spread"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// version is one complete version of a shard: parameters and optimizer state. It is written once,
// before it is published, and its buffer is not written again while a reader has it.
type version struct {
	step   kintsugi.Step
	params []float32
	// As many arrays as the rule has, each as long as params; nil as long as nobody has asked for
	// them, see open.
	state  [2][]float32
	states int  // how many
	bank   int  // of the memory outside the process that state is; -1: it is memory of this process
	far    *far // nil: the arrays are on the host alone
	pins   int  // guarded by versions.mu
	live   bool // current, next or being written; guarded by versions.mu

	had     [4]holding // what its arrays held before it was written
	holds   [3]holding // what its arrays in this process hold; guarded by versions.mu
	stepped bool       // a step has made it, and its copy
	copy    []byte     // of params, outside the process; nil: there is none

	marks  marks
	pulled pulled
	rooms  rooms
}

// rooms are the memory that readers read a version from. They belong to the buffer, and its next
// version uses them again.
type rooms struct {
	params room // holds the version's params, unless they are on an accelerator
	copied room // a copy of params that are on an accelerator, once readers have asked to borrow them
	halves room // holds params in bfloat16, once a reader has asked for them
}

// room is memory that readers on this host may read in place.
type room struct {
	bytes  []byte
	memory *transport.Memory // whose first bytes these are; nil: only this process can read them
}

// leastLent is how many bytes are worth a descriptor here and a mapping in each reader. Less than a
// page is sent.
const leastLent = 4096

func newRoom(n int) room {
	if n >= leastLent {
		// Otherwise there is no shared memory, and readers are sent the bytes.
		if m, err := transport.NewMemory(n, shm.ReadOnly); err == nil {
			return room{transport.Put(m.Segment(), transport.PlaceAt(0), n), m}
		}
	}
	return room{bytes: kernels.Bytes(make([]float32, (n+3)/4))[:n]}
}

// versions holds the versions of one shard: the released one, which is read, and the one after it.
// It also keeps the one before, if steps are asked for products with the displacement of the step
// before.
type versions struct {
	layout *kintsugi.Layout
	chunks kintsugi.ChunkRange
	states int
	arrays kernels.Arrays // on an accelerator; nil: on the host; set before the first version is taken
	banks  *Outside       // whose banks state may lie in; nil: none; set before the first version is taken
	keep   bool           // keep the version before the current one; set before the first is published
	marks  bool           // fill in version.marks; set before the first is published
	spots  []int          // by chunk, the number of its first spot in marks; then the number of all

	mu       sync.Mutex
	previous *version   // nil: none, or not kept
	current  *version   // released
	next     *version   // applied and not released; nil: none
	early    *version   // next, once readers who ask for it may have it; nil: they may not
	waiting  []*version // candidates for the first version of a line whose first step is not known yet; current is nil then
	free     []*version
	made     int           // buffers made so far; some may have been left to the garbage collector
	changed  chan struct{} // closed when current or early changes

	epoch   uint64            // of the versions that follow from one another by steps; see holding
	outside map[*byte]holding // by its first byte, what an array outside the process holds
}

func newVersions(l *kintsugi.Layout, chunks kintsugi.ChunkRange, states int) *versions {
	v := &versions{layout: l, chunks: chunks, states: states, changed: make(chan struct{}), epoch: 1, outside: make(map[*byte]holding)}
	n := 0
	for _, c := range l.Chunks[chunks.Lo:chunks.Hi] {
		v.spots = append(v.spots, n)
		n += kernels.Spots(c.Len())
	}
	v.spots = append(v.spots, n)
	return v
}

// take returns a version to write. Its contents are left over from an earlier one.
func (v *versions) take(step kintsugi.Step) *version {
	v.mu.Lock()
	var x *version
	if n := len(v.free); n > 0 {
		x = v.free[n-1]
		v.free = v.free[:n-1]
		had := [4]holding{x.holds[0], x.holds[1], x.holds[2]}
		v.mu.Unlock()
		*x = version{params: x.params, state: x.state, states: x.states, bank: x.bank, far: x.far, rooms: x.rooms, marks: marks{since: x.marks.since[:0]}, had: had}
		if x.far != nil {
			x.far.here = false
		}
		if x.bank >= 0 {
			x.bank, x.state = -1, [2][]float32{}
		}
	} else {
		v.made++
		v.mu.Unlock() // readers go on meanwhile
		x = v.make()
	}
	x.step, x.live = step, true // nobody else has it
	return x
}

// make allocates a buffer.
func (v *versions) make() *version {
	if v.arrays != nil {
		return newFarVersion(v.arrays, v.states)
	}
	lo, hi := v.layout.Span(v.chunks)
	x := &version{states: v.states, bank: -1, rooms: rooms{params: newRoom(4 * (hi - lo))}}
	x.params = kernels.Floats(x.rooms.params.bytes)
	return x
}

// open makes the arrays of the state, unless they are there. Only the one who writes the version
// may find that they are not. On an accelerator they are zeros the first time.
func (x *version) open() {
	if x.far != nil {
		x.far.mu.Lock()
		defer x.far.mu.Unlock()
		x.far.open(x)
		return
	}
	for i := range x.states {
		if x.state[i] == nil {
			x.state[i] = make([]float32, len(x.params))
		}
	}
}

// lay makes arrays of a bank the state of a version. What the state was before is lost.
func (x *version) lay(bank int, arrays [][]byte) {
	x.bank = bank
	for i, b := range arrays {
		x.state[i] = kernels.Floats(b)
	}
}

// inBanks returns the banks of versions that may still be read or released.
func (v *versions) inBanks() (banks []int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, x := range append([]*version{v.current, v.next}, v.waiting...) {
		if x != nil && x.bank >= 0 {
			banks = append(banks, x.bank)
		}
	}
	return banks
}

// comeHome replaces waiting versions whose state is in a bank by copies in the memory of this
// process. Whoever reads the old ones may go on.
func (v *versions) comeHome() {
	for i, x := range v.waiting {
		if x.bank < 0 {
			continue
		}
		y := v.take(x.step)
		y.open()
		var arrays []spread.Array
		for k := range 1 + x.states {
			arrays = append(arrays, spread.Array{To: kernels.Bytes(y.array(k)), From: kernels.Bytes(x.array(k))})
		}
		spread.Copy(arrays...)
		v.mu.Lock()
		v.waiting[i] = y
		v.retire(x)
		v.mu.Unlock()
	}
}

// prepare allocates buffers until there are n, and touches their pages; those of their state as
// well if opened is set. A step that is the first to write to a fresh buffer would wait for each of
// its pages, which takes as long as the step itself. It may run at the same time as everything else.
func (v *versions) prepare(n int, opened bool) {
	for {
		v.mu.Lock()
		if v.made >= n {
			v.mu.Unlock()
			return
		}
		v.made++
		v.mu.Unlock()
		x := v.make()
		if opened && x.far == nil {
			x.open()
		}
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

const pageValues = 4096 / 4 // of the smallest page

// applied makes x the version after the current one, in place of an earlier try at the same step.
func (v *versions) applied(x *version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.retire(v.next)
	v.next = x
}

// offer lets readers have the next version before it is released, if they ask for that. If they may
// want only what has changed, and it is not known yet what that is, they wait.
func (v *versions) offer() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.marks && len(v.next.marks.since) == 0 {
		return
	}
	v.early = v.next
	v.change()
}

// withdraw ends an offer. Readers who have the version may go on.
func (v *versions) withdraw() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.early = nil
}

// change wakes the readers that wait. The caller has locked mu.
func (v *versions) change() {
	close(v.changed)
	v.changed = make(chan struct{})
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
		x, v.next, v.early = v.next, nil, nil
		v.know(x)
	} else {
		v.newEpoch()
	}
	if v.keep {
		v.retire(v.previous)
		v.previous = v.current
	} else {
		v.retire(v.current)
	}
	v.current = x
	v.change()
}

// install makes x, which a replica was sent, the current version. A version that was applied beyond
// the current one is void.
func (v *versions) install(x *version) {
	v.mu.Lock()
	v.retire(v.next)
	v.next = nil
	v.mu.Unlock()
	v.publish(x)
}

// copied takes x, a copy that a replica was sent. It becomes the next version, since its step may
// never be released, and the copy before becomes the current one. The first copy becomes the
// current one at once.
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

// wait moves what can be read to waiting, because the line is over, until adopt says which version
// the next line begins with.
func (v *versions) wait() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, x := range []*version{v.current, v.next} {
		if x != nil {
			v.waiting = append(v.waiting, x)
		}
	}
	v.retire(v.previous)
	v.previous, v.current, v.next, v.early = nil, nil, nil, nil
}

// released gives up the waiting versions but the first, which is the one that was released.
func (v *versions) released() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, x := range v.waiting[1:] {
		v.retire(x)
	}
	v.waiting = v.waiting[:1]
}

// adopt makes the waiting version of step the current one and returns the step that it was made at.
// If there is none of that step, it takes the newest one before, or the only one that there is,
// which was put together from several versions.
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

// retire makes the buffer of x free once its readers are done with it. The caller has locked mu.
func (v *versions) retire(x *version) {
	if x == nil {
		return
	}
	if x.live = false; v.early == x {
		v.early = nil
	}
	if x.pins == 0 {
		v.free = append(v.free, x)
	}
}

// pinFor returns a version, pinned, that answers a request; or nil, as pin does.
func (v *versions) pinFor(req transport.ReadRequest) (*version, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if x := v.early; req.Unreleased && x != nil && x.step == req.AtLeast {
		x.pins++
		return x, nil
	}
	return v.pinCurrent(req.AtLeast)
}

// pin returns the current version, pinned, if it is of step atLeast or later. Otherwise it returns
// nil and a channel that is closed when it is time to look again.
func (v *versions) pin(atLeast kintsugi.Step) (*version, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pinCurrent(atLeast)
}

// pinCurrent is pin for a caller that has locked mu.
func (v *versions) pinCurrent(atLeast kintsugi.Step) (*version, <-chan struct{}) {
	if v.current == nil || v.current.step < atLeast {
		return nil, v.changed
	}
	v.current.pins++
	return v.current, nil
}

// pinAt returns the current or the next version, pinned, if it is of that step; otherwise nil.
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

// pinWhole makes sure that the state of x, which the caller has pinned, stays as it is as well, until
// unpinWhole is called with the result. The version is the current or the next one, and no step is
// made that gives it up. An error means that there is no memory for the state of later steps beside
// it; call unpinWhole all the same.
func (v *versions) pinWhole(x *version) (bank int, err error) {
	if x.bank < 0 {
		return -1, nil // nobody writes to the buffer while it is pinned
	}
	if err := v.banks.pin(x.bank); err != nil {
		return -1, fmt.Errorf("version %d: %w", x.step, err)
	}
	return x.bank, nil
}

// unpinWhole gives up what pinWhole has pinned, and the caller's pin.
func (v *versions) unpinWhole(x *version, bank int) {
	if bank >= 0 {
		v.banks.unpin(bank)
	}
	v.unpin(x)
}

// pinAgain adds a pin to a version that the caller has pinned.
func (v *versions) pinAgain(x *version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	x.pins++
}
