package sim

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// outside is the file in which a server keeps its shard outside its process: the real format, in
// bytes that belong to no process. A chunk is two values. A record is the number of a commit that
// is stored separately.
type outside struct {
	bytes   []byte
	records []record
}

type record struct {
	commit kintsugi.Commit
	answer kintsugi.Stable
}

var errNothing = errors.New("nothing of the line is held outside the process")

func (c *Cluster) outsideHeader(id kintsugi.ShardID) shm.Header {
	n := uint64(c.shards[id].Hi - c.shards[id].Lo)
	return shm.Header{Model: c.layout.Fingerprint(), Shard: uint32(id), Shards: uint32(len(c.shards)), Values: 2 * n, Arrays: 1}
}

// holds returns the line of the state that a new life of a server finds; 0: none.
func (c *Cluster) holds(id kintsugi.ServerID) kintsugi.Line {
	m, _, err := shm.Open(c.outside[id].bytes, c.outsideHeader(kintsugi.ShardID(id)))
	if !c.cfg.Outside || err != nil {
		return 0
	}
	return kintsugi.Line(m.Header().Line)
}

// beginOutside writes the version with which a line begins to the file.
func (r *replica) beginOutside(x *version) {
	if !r.hasOutside() {
		return
	}
	r.formatOutside()
	r.outside.Begin(0, 0)
	r.endOutside(x, nil, kintsugi.Stable{})
}

// beginAgain writes a shard that has come back to its server, on a continuing line, to the file.
func (r *replica) beginAgain() {
	x := r.versions.current
	if r.outside != nil || !r.hasOutside() || r.at > 0 || !r.core.Settled() || x == nil {
		return
	}
	r.formatOutside()
	made, answer := r.core.Recent()
	for keep := kintsugi.Step(0); x != nil; keep, x = x.step, r.versions.next {
		var commit *kintsugi.Commit
		for _, c := range made {
			if c.Step == x.step {
				commit = &c
			}
		}
		r.outside.Begin(uint64(keep), 0)
		r.endOutside(x, commit, answer)
		if x == r.versions.next {
			return
		}
	}
}

// hasOutside reports whether the file of its server is for this shard.
func (r *replica) hasOutside() bool { return r.t.hasOutside(r.id) }

func (t *tenure) hasOutside(id kintsugi.ShardID) bool {
	return t.server.c.cfg.Outside && t.view.Replicas <= 1 && len(t.view.Chains[id]) == 1 && kintsugi.ShardID(t.server.member.Server) == id
}

// formatOutside empties the file.
func (r *replica) formatOutside() {
	f := &r.c.outside[r.id]
	h := r.c.outsideHeader(r.id)
	h.Line, h.RecordBytes = uint64(r.t.view.Line), 8
	f.bytes = make([]byte, h.Bytes())
	r.outside = shm.Format(f.bytes, h)
}

// endOutside makes x the newest version in the file. Begin has given up the version that was in its
// place.
func (r *replica) endOutside(x *version, c *kintsugi.Commit, answer kintsugi.Stable) {
	to := r.outside.Begin(uint64(x.step)-1, 0)
	for i, v := range x.values {
		binary.LittleEndian.PutUint64(to[0][8*i:], v)
	}
	var number []byte
	decided := uint64(0)
	if c != nil {
		f := &r.c.outside[r.id]
		f.records = append(f.records, record{*c, answer})
		number, decided = binary.LittleEndian.AppendUint64(nil, uint64(len(f.records)-1)), uint64(c.Decided)
	}
	if err := r.outside.End(uint64(x.step), decided, number); err != nil {
		r.c.fail(notAtFault, "%v", err)
	}
}

// writeOutside writes a step to the file, if there is one, and calls then when it is written.
func (r *replica) writeOutside(x *version, c *kintsugi.Commit, then func()) {
	if r.outside == nil {
		then()
		return
	}
	r.endOutside(x, c, kintsugi.Stable{Shard: r.id, Fence: c.Fence, Step: c.Step, Products: productsOf(c, x.values)})
	if r.c.cfg.plant == earlyFlip {
		r.outside.Begin(uint64(x.step), 0)
	}
	r.c.after(r.t.server.proc, r.c.between(time.Microsecond, 2*r.c.cfg.Kernel), then) // a death may come after the write and before anyone is told
}

// wentOn returns the replica that continues with the values of old on the same line in a later
// view.
func wentOn(t *tenure, old *replica, at int) *replica {
	r := &replica{
		t: t, c: old.c, id: old.id, chunks: old.chunks, chain: t.view.Chains[old.id], at: at, held: make(map[kintsugi.PushID]*held),
		versions: old.versions, outside: old.outside, sum: old.sum,
		promised: old.promised, newest: old.newest, released: old.released, reached: old.reached,
		standing: old.standing, from: old.from, fell: old.fell, origin: old.origin,
	}
	r.core = old.core.GoOn(t.view.Number, at > 0, r.awaits())
	if r.c.cfg.plant != nextWhole || at > 0 {
		r.nextAnswers()
	}
	if e := old.before; e != nil && r.c.cfg.plant == forgottenChain {
		e.hear = func(m any) { r.obey(e, m.(handed)) }
	}
	r.versions.waiting = nil
	if m := old.pending; m != nil && r.outside != nil && r.c.chance(0.5) { // the kernel was running: it finishes, but nobody is told
		x := &version{step: m.Step, values: make([]uint64, r.versions.n)}
		for i := range x.values {
			x.values[i] = stepOf(old.versions.current.values[i], m, func(k int) uint64 { return old.held[m.Counted[k].Push].values[i] })
		}
		r.endOutside(x, m, kintsugi.Stable{Shard: r.id, Fence: m.Fence, Step: m.Step})
	}
	r.beginAgain()
	return r
}

// foundReplica returns the replica of a shard that its server has found outside its process.
func foundReplica(t *tenure, id kintsugi.ShardID) (*replica, error) {
	c := t.server.c
	v := t.view
	m, found, err := shm.Open(c.outside[id].bytes, c.outsideHeader(id))
	if err != nil || !t.hasOutside(id) {
		return nil, errNothing
	}
	line := kintsugi.Line(m.Header().Line)
	goesOn := v.Continues && line == v.Line
	if !goesOn && (v.Keeps == 0 || line < v.First(id) || line >= v.Line) {
		return nil, errNothing
	}
	r := emptyReplica(t, id, kintsugi.Step(found[0].Step), false)
	if goesOn {
		r.outside = m
	}
	var commits []kintsugi.Commit
	var answer kintsugi.Stable
	for i, v := range found {
		x := r.versions.take(kintsugi.Step(v.Step))
		for k := range x.values {
			x.values[k] = binary.LittleEndian.Uint64(v.Arrays[0][8*k:])
		}
		if len(v.Record) > 0 {
			k := c.outside[id].records[binary.LittleEndian.Uint64(v.Record)]
			commits, answer = append(commits, k.commit), k.answer
			r.newest = &k.commit
		}
		if i == 0 {
			r.versions.publish(x)
		} else {
			r.versions.applied(x)
			r.reached = x.step
		}
	}
	r.core = shard.New(id, int(r.chunks.Hi-r.chunks.Lo), v.Line, v.Number, kintsugi.Step(found[0].Step))
	r.core.Recall(commits, answer)
	r.core.Holds(slices.Repeat([]kintsugi.Step{v.RestoreStep}, len(r.versions.current.values)))
	c.checkFound(r, line)
	if !goesOn {
		r.core.Keep()
		r.versions.wait()
		r.standing, r.origin = kintsugi.Kept, line
	}
	return r, nil
}

// checkFound checks that what a server finds outside its process is complete. It must be the newest
// released step, or the step before it together with one that was not released yet, or whose
// release was not reported: nothing released is missing.
func (c *Cluster) checkFound(r *replica, line kintsugi.Line) {
	c.recalled++
	h := c.oracle.lines[line]
	if h == nil { // not begun on every shard: what the line begins with is checked when the next one begins
		return
	}
	c.wants(foundWhole, line, r.released, r.chunks, r.versions.current.values, "found outside")
	if newest := h.newest(); r.reached < newest || r.released > newest {
		c.fail(foundWhole, "shard %d is found at steps %d to %d, released is %d", r.id, r.released, r.reached, newest)
	}
	if x := r.versions.next; x != nil && x.step <= h.newest() {
		c.wants(foundWhole, line, x.step, r.chunks, x.values, "found outside")
	}
	if x := r.versions.next; x != nil && r.newest != nil {
		want := slices.Clone(x.values)
		src := r.versions.current.values
		for i := range want {
			want[i] = stepOf(src[i], r.newest, func(k int) uint64 {
				return c.pushed(r.newest.Counted[k].Push, r.chunks.Lo+kintsugi.ChunkID(i))
			})
		}
		if !slices.Equal(want, x.values) {
			c.fail(foundWhole, "shard %d: step %d is found as %x, want %x", r.id, x.step, x.values, want)
		}
	}
}
