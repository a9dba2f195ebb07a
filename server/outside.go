package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	"github.com/kintsugi-ml/kintsugi/internal/spread"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// Outside is a memory-mapped file in which a server keeps its shard so that it outlives the process. It
// holds the two newest versions, each with the commit that made it; see package shm. A step is
// written there before the shard says that it is stable. So whatever was released anywhere is in
// the file of every shard.
//
// Parameters are copied there. The optimizer's state is there alone, since besides steps only saves
// read it, which pin its bank, and a replica that joins, which is sent a copy.
type Outside struct {
	file *shm.File
	boot [16]byte
	run  uint64
	full atomic.Bool // there was no room for the shard: it is in this process alone

	mu       sync.Mutex
	holds    shm.Header     // of what is in the file
	used     bool           // state of this process may be in banks
	reserved int            // banks that memory was taken for
	pins     [shm.Banks]int // by bank
	useless  bool           // the file is emptied as soon as nothing is pinned
}

// OpenOutside opens the file of a server, or creates it. Run names the run; the file of another run
// is refused. An error means that the file cannot be used: an earlier life of this server still has
// it open, or the folder cannot be written.
func OpenOutside(path, run string) (*Outside, error) {
	f, err := shm.OpenFile(path)
	if err != nil {
		return nil, err
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(run))
	return &Outside{file: f, boot: shm.Boot(), run: h.Sum64()}, nil
}

// Close closes the file. Its contents stay for the next life. No server uses it any more.
func (o *Outside) Close() error { return o.file.Close() }

// header describes the state of a shard.
func (o *Outside) header(l *kintsugi.Layout, shards int, id kintsugi.ShardID, chunks kintsugi.ChunkRange, rule kintsugi.Rule) shm.Header {
	lo, hi := l.Span(chunks)
	return shm.Header{
		Model: l.Fingerprint(), Run: o.run, Boot: o.boot, Shard: uint32(id), Shards: uint32(shards),
		Values: uint64(hi - lo), Arrays: uint32(1 + rule.States()), Rule: uint32(rule),
	}
}

// Holds returns the line of the shard that the file holds, where the model is cut into so many
// shards. It returns 0 and the reason if the file holds nothing that can be used; the shard then
// comes from the checkpoint.
func (o *Outside) Holds(l *kintsugi.Layout, shards int, id kintsugi.ShardID, rule kintsugi.Rule) (kintsugi.Line, error) {
	m, versions, err := shm.Open(o.file.Bytes(), o.header(l, shards, id, l.Split(shards)[id], rule))
	if err != nil {
		return 0, err
	}
	for _, v := range versions {
		if _, err := readOutside(v.Record); err != nil {
			return 0, err
		}
	}
	return kintsugi.Line(m.Header().Line), nil
}

// outsideRecord is what the file holds of a version besides its arrays.
type outsideRecord struct {
	commit *kintsugi.Commit // that made the version; nil: the line began with it
	answer kintsugi.Stable
	lag    []kintsugi.Step // as state.lag
}

func (r *outsideRecord) append(b []byte) ([]byte, error) {
	if r.commit == nil {
		b = append(b, 0)
	} else {
		var err error
		if b, err = transport.AppendRecord(append(b, 1), *r.commit, r.answer); err != nil {
			return b, err
		}
	}
	b = binary.AppendUvarint(b, uint64(len(r.lag)))
	for _, n := range r.lag {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b, nil
}

func readOutside(b []byte) (r outsideRecord, err error) {
	if len(b) == 0 {
		return r, fmt.Errorf("%w: a version without its record", kintsugi.ErrCorrupt)
	}
	begins := b[0] == 0
	if b = b[1:]; !begins {
		var c kintsugi.Commit
		if c, r.answer, b, err = transport.ReadRecord(b); err != nil {
			return r, err
		}
		r.commit = &c
	}
	next := func() (n uint64) {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			err = fmt.Errorf("%w: the record of a version ends too early", kintsugi.ErrCorrupt)
			return 0
		}
		b = b[size:]
		return n
	}
	for n := next(); n > 0 && err == nil; n-- {
		r.lag = append(r.lag, kintsugi.Step(next()))
	}
	return r, err
}

// begin writes the version that a line begins with to the file, and nothing else.
func (r *replica) begin(x *version) error {
	if !r.hasOutside() || !r.format() {
		return nil
	}
	return r.copyTo(0, x, outsideRecord{lag: r.lag}, 0)
}

// beginAgain writes a shard to the file that has come home on a line that goes on. The server that
// had it meanwhile had it in the memory of its process.
func (r *replica) beginAgain() error {
	if r.outside != nil || r.at > 0 || !r.hasOutside() || !r.core.Settled() {
		return nil
	}
	x, _ := r.versions.pin(0)
	if x == nil {
		return nil
	}
	defer r.versions.unpin(x)
	if !r.format() {
		return nil
	}
	last, answer := r.core.Recent()
	record := func(step kintsugi.Step) (outsideRecord, kintsugi.Fence) {
		for _, c := range last {
			if c.Step == step {
				return outsideRecord{commit: &c, answer: answer, lag: r.lag}, c.Decided
			}
		}
		return outsideRecord{lag: r.lag}, 0
	}
	made, decided := record(x.step)
	if err := r.copyTo(0, x, made, decided); err != nil {
		return err
	}
	y := r.versions.pinAt(x.step + 1)
	if y == nil {
		return nil
	}
	defer r.versions.unpin(y)
	made, decided = record(y.step)
	return r.copyTo(x.step, y, made, decided)
}

// copyTo makes x the newest version in the file, beside the version of step keep. Unless it is on an
// accelerator, the state of x is there alone from now on.
func (r *replica) copyTo(keep kintsugi.Step, x *version, made outsideRecord, decided kintsugi.Fence) error {
	if err := x.fetchState(); err != nil {
		return err
	}
	from := [][]float32{x.params}
	if x.bank < 0 {
		from = append(from, x.arrays()...)
	}
	to, err := r.beginOutside(keep, x)
	if err != nil {
		return err
	}
	var arrays []spread.Array
	for k, values := range from {
		arrays = append(arrays, spread.Array{To: to[k], From: kernels.Bytes(values)})
	}
	spread.Copy(arrays...)
	return r.finish(x, made, decided)
}

// beginOutside begins to write x to the file, beside the version of step keep, and returns the
// arrays there. Those after the first are the state of x, unless it is on an accelerator. If it has
// been in a bank before, it stays there.
func (r *replica) beginOutside(keep kintsugi.Step, x *version) ([][]byte, error) {
	begin := func(bank int) [][]byte {
		to := r.outside.Begin(uint64(keep), bank)
		x.had[outsideArray] = r.versions.forget(to[0])
		for i, b := range to[1:] {
			x.had[stateArray+i] = r.versions.forget(b)
		}
		return to
	}
	if x.bank >= 0 {
		return begin(x.bank), nil
	}
	use := r.versions.inBanks()
	if bank, ok := r.outside.Bank(uint64(keep)); ok {
		use = append(use, bank)
	}
	bank, err := r.cfg.Outside.bank(use)
	if err != nil {
		return nil, fmt.Errorf("version %d of shard %d: %w", x.step, r.id, err)
	}
	to := begin(bank)
	if x.far == nil {
		x.lay(bank, to[1:])
	}
	return to, nil
}

// comeHome takes what waits for a line to begin out of the file, if the line will not use it.
func (r *replica) comeHome() {
	if !r.hasOutside() {
		r.versions.comeHome()
	}
}

// copyOfBank returns a copy of the state, if that is in a bank, and otherwise nil. It is for readers
// that may be gone without a word, as streams may: what they have pinned would stay so.
func (x *version) copyOfBank() (state [][]float32) {
	if x.bank < 0 {
		return nil
	}
	var arrays []spread.Array
	for i := range x.states {
		state = append(state, make([]float32, len(x.params)))
		arrays = append(arrays, spread.Array{To: kernels.Bytes(state[i]), From: kernels.Bytes(x.state[i])})
	}
	spread.Copy(arrays...)
	return state
}

// hasOutside reports whether the file of this server is for this shard. A file holds one shard, the
// server's own, and only if that has a single replica: with more, the other replicas are the state
// outside this process.
func (r *replica) hasOutside() bool {
	return r.cfg.Outside != nil && r.view.Replicas <= 1 && len(r.chain) == 1 && kintsugi.ShardID(r.cfg.ID) == r.id
}

func (r *replica) header() shm.Header {
	return r.cfg.Outside.header(r.cfg.Layout, len(r.view.Chains), r.id, r.chunks, r.cfg.Schedule.Rule)
}

// format empties the file and reports whether there is room for the shard. Without room, steps go
// on, since the file only protects against a loss. The file then stays empty, so that the next life
// finds nothing in it.
func (r *replica) format() bool {
	o := r.cfg.Outside
	r.versions.forgetAll()
	h := r.header()
	n := int(r.chunks.Hi - r.chunks.Lo)
	h.RecordBytes = uint64(transport.MaxRecord(r.cfg.Slots*r.cfg.Consistency.Held(), r.cfg.Slots, n) + 10*n)
	h.Line, h.Fence, h.Owner = uint64(r.view.Line), uint64(r.view.Fence), uint64(r.cfg.Incarnation)
	var err error
	r.outside, err = o.format(h, r.buffers())
	if o.full.Store(err != nil); err != nil {
		r.log.Warn("no room for what outlives this process: if it dies, its shard comes from the checkpoint", "err", err)
	}
	return err == nil
}

// finish makes the values that were copied out the newest version in the file.
func (r *replica) finish(x *version, record outsideRecord, decided kintsugi.Fence) error {
	b, err := record.append(nil)
	if err != nil {
		return err
	}
	return r.outside.End(uint64(x.step), uint64(decided), b)
}

// copyOut copies the values [lo, hi) of a version to the arrays of a version in the file.
func (x *version) copyOut(to [][]byte, lo, hi int) {
	for i, b := range to {
		copy(b[4*lo:4*hi], kernels.Bytes(x.array(i)[lo:hi]))
	}
}

// array returns the parameters for 0, and the arrays of state from 1 on.
func (x *version) array(i int) []float32 {
	if i == 0 {
		return x.params
	}
	x.open()
	return x.state[i-1]
}

// heldOutside reports whether an earlier life of this server has left its shard, on this line.
func (r *replica) heldOutside(line kintsugi.Line) bool {
	if !r.hasOutside() {
		return false
	}
	m, _, err := shm.Open(r.cfg.Outside.file.Bytes(), r.header())
	return err == nil && m.Header().Line == uint64(line)
}

// recall takes the replica back to where an earlier life of this server has left its shard: to the
// version that is certainly released, and to the one after it too if that was applied. On a new
// line that keeps the earlier one, the replica then waits for the line to begin.
func (r *replica) recall(context.Context) error {
	v := r.view
	none := fmt.Errorf("view %d goes on with line %d, of which this server holds nothing of shard %d; its next life says so", v.Number, v.Line, r.id)
	if !r.hasOutside() {
		return none
	}
	m, found, err := shm.Open(r.cfg.Outside.file.Bytes(), r.header())
	if err != nil {
		return fmt.Errorf("%w: %w", none, err)
	}
	line := kintsugi.Line(m.Header().Line)
	goesOn := v.Continues && line == v.Line
	if !goesOn && (v.Keeps == 0 || line < v.First(r.id) || line >= v.Line) {
		return fmt.Errorf("%w; it holds line %d", none, line)
	}
	if err := r.cfg.Outside.take(m.Header()); err != nil {
		return fmt.Errorf("view %d: %w", v.Number, err)
	}
	if goesOn {
		r.outside = m // otherwise it stays as it is until the line has begun
	}
	var commits []kintsugi.Commit
	var answer kintsugi.Stable
	list, err := r.lift(found)
	if err != nil {
		return err
	}
	for i, x := range list {
		record, err := readOutside(found[i].Record)
		if err != nil {
			return fmt.Errorf("step %d of the state outside the process: %w", x.step, err)
		}
		if record.commit != nil {
			commits, answer = append(commits, *record.commit), record.answer
		}
		if r.lag = record.lag; i == 0 {
			r.versions.publish(x)
		} else {
			r.versions.applied(x)
		}
	}
	r.core = shard.New(r.id, int(r.chunks.Hi-r.chunks.Lo), v.Line, v.Number, kintsugi.Step(found[0].Step))
	r.core.Recall(commits, answer)
	r.log.Info("found its state outside the process", "line", line, "versions", len(found), "step", found[len(found)-1].Step)
	if !goesOn {
		r.core.Keep()
		r.versions.wait()
		r.tellSums("a shard waits for its line to begin", r.versions.waiting...)
	}
	r.knowsSaved()
	return nil
}

// lift returns versions that are in the file: their parameters in this process, and their state
// where it is, or both on the accelerator.
func (r *replica) lift(found []shm.Version) ([]*version, error) {
	list := make([]*version, len(found))
	var wg sync.WaitGroup
	for i, v := range found {
		wg.Go(func() { list[i] = r.versions.take(kintsugi.Step(v.Step)) }) // the system clears the memory of each
	}
	wg.Wait()
	var arrays []spread.Array
	for i, x := range list {
		from := found[i].Arrays
		if x.far == nil {
			x.lay(found[i].Bank, from[1:])
			from = from[:1]
		}
		for k, b := range from {
			arrays = append(arrays, spread.Array{To: kernels.Bytes(x.array(k)), From: b})
		}
	}
	spread.Copy(arrays...)
	for _, x := range list {
		if err := x.send(); err != nil {
			return nil, err
		}
	}
	return list, nil
}
