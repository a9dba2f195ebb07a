package server

import (
	"fmt"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// making is one step of a shard while it is made. Threads take chunks as soon as these are ready:
// all at once if every counted push is here, or one after the other as they land if the step is
// foreseen and some gradients are still arriving. The values of a chunk depend neither on that nor
// on the thread that makes it. A making writes only a version and a sum that nobody else knows of.
type making struct {
	r           *replica
	commit      kintsugi.Commit // as far as kernels look at it; of a foreseen commit the fences are not known
	counted     []*held         // by counted push; nil: the step starts from the sum, as in replicas that are not heads
	before, src *version        // pinned; before is nil unless a product needs it
	dst         *version
	total       *sum         // heads write it, other replicas start from it; nil: nobody needs it
	saved       *savedValues // distances are measured to these; nil: none are measured

	outside  [][]byte // where dst is written as well: its parameters, and its state if that is on an accelerator
	products []kintsugi.Products
	named    []uint64  // by chunk, how many values its operands name; nil: nobody counts them
	renewals []renewal // arrays of dst, if it is known what each of them holds; nil: steps compute all values

	mu      sync.Mutex
	missing []int // by chunk, the number of counted pushes of which it has not landed; nil: none
	ready   []int // chunks that can be made
	left    int   // chunks that are not made
	threads int   // threads that are working
	first   time.Time
	err     error // of a device that is lost
	over    bool  // nobody needs the result
	done    bool
	ended   chan struct{} // closed at the end: no thread works any more, and none will
}

// newMaking returns the making of a commit, which starts from the released version. An error means
// that this replica lacks something that the commit needs.
func (r *replica) newMaking(c kintsugi.Commit) (*making, error) {
	m := &making{r: r, commit: c, saved: r.savedFor(c), ended: make(chan struct{})}
	switch {
	case r.at > 0:
		if m.total = r.given; m.total == nil || m.total.step != c.Step || m.total.decided != c.Decided {
			return nil, fmt.Errorf("shard %d: the sum of step %d, decided under fence %d, is not here", r.id, c.Step, c.Decided)
		}
		r.given = nil
	default:
		for _, w := range c.Counted {
			m.counted = append(m.counted, r.held[w.Push]) // nil: a shard without chunks
		}
		if r.sendsSums() && r.cfg.CopyEvery == 0 {
			m.total = r.room()
			m.total.begin(&r.sums.cut)
		}
	}
	m.src, _ = r.versions.pin(0)
	if c.Want&kintsugi.WantDotDisplacement != 0 && r.at == 0 {
		m.before = r.versions.pinPrevious()
	}
	wait := time.Now()
	m.dst = r.versions.take(c.Step)
	r.waited.Add(int64(time.Since(wait))) // if readers pin all buffers, a new one has to be allocated
	return m, nil
}

// begin makes room for what the step writes besides the parameters of dst. The making before must
// have ended, because both would write to the state outside the process.
func (m *making) begin() {
	r := m.r
	m.left = int(r.chunks.Hi - r.chunks.Lo)
	m.products = make([]kintsugi.Products, m.left)
	if r.saved != nil {
		m.named = make([]uint64, m.left)
	}
	if r.outside != nil {
		m.outside, m.err = r.beginOutside(m.src.step, m.dst)
	}
	switch {
	case m.dst.far != nil || m.err != nil:
	case m.outside != nil:
		m.outside = m.outside[:1] // the state is made there
	default:
		m.dst.open()
	}
	if m.err == nil {
		m.compare()
	}
}

// all makes every chunk; all counted pushes are here.
func (m *making) all() {
	if m.r.versions.arrays != nil {
		m.far()
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.left {
		m.ready = append(m.ready, i)
	}
	m.start()
}

// far makes every chunk on the accelerator.
func (m *making) far() {
	r := m.r
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.products, m.err = r.stepFar(m.commit, m.before, m.src, m.dst, m.counted, m.total)
	}
	if m.err == nil && m.outside != nil {
		if m.err = m.dst.fetchState(); m.err == nil {
			m.dst.copyOut(m.outside, 0, r.values)
		}
	}
	m.left, m.named = 0, nil
	m.settle()
}

// asTheyLand makes each chunk when it has landed from every counted push.
func (m *making) asTheyLand() {
	m.missing = make([]int, m.left)
	for i := range m.missing {
		m.missing[i] = len(m.counted)
	}
	for _, h := range m.counted {
		h.arrival.tell(m)
	}
}

// landed notes that chunks [lo, hi) of the shard have landed from one more push.
func (m *making) landed(lo, hi int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := lo; i < hi; i++ {
		if m.missing[i]--; m.missing[i] == 0 {
			m.ready = append(m.ready, i)
		}
	}
	m.start()
}

// start starts threads for the chunks that are ready. The caller holds the lock, so that none
// starts after giveUp.
func (m *making) start() {
	if m.err == nil && !m.over {
		for range min(m.r.cfg.Threads-m.threads, len(m.ready)) {
			m.threads++
			m.r.work.Go(m.thread)
		}
	}
	m.settle()
}

// thread makes chunks until none is ready.
func (m *making) thread() {
	r := m.r
	k := newKernelStep(m.commit)
	k.Streaming = kernels.Streams(4 * r.values * (len(m.counted) + 2*(1+k.Rule.States())))
	made, err := 0, error(nil)
	for {
		i, ok := m.next(made, err)
		if !ok {
			return
		}
		made, err = 1, m.chunk(k, i)
	}
}

// next notes what a thread has made and returns the chunk that it makes next; ok is false if there
// is none.
func (m *making) next(made int, err error) (chunk int, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left -= made; m.err == nil {
		m.err = err
	}
	if m.err == nil && !m.over && len(m.ready) > 0 {
		if m.first.IsZero() {
			m.first = time.Now()
		}
		chunk, m.ready = m.ready[0], m.ready[1:]
		return chunk, true
	}
	m.threads--
	m.settle()
	return 0, false
}

// settle ends the making if nothing is left to do. The caller holds the lock.
func (m *making) settle() {
	if m.done || m.threads > 0 || m.left > 0 && m.err == nil && !m.over {
		return
	}
	m.done = true
	if m.over {
		m.drop()
	}
	close(m.ended)
}

// chunk makes chunk i of the shard.
func (m *making) chunk(k *kernelStep, i int) error {
	r, c := m.r, &m.commit
	chunk := r.cfg.Layout.Chunks[int(r.chunks.Lo)+i]
	lo, hi := chunk.Lo-r.lo, chunk.Hi-r.lo
	k.Scalars, k.Operands = r.scalars(c, i), k.Operands[:0]
	if m.outside != nil {
		k.Copy = kernels.Floats(m.outside[0])[lo:hi]
	}
	for j, h := range m.counted {
		k.take(h.operand(i, lo, hi, c.Counted[j].Weight))
	}
	if m.named != nil {
		m.named[i] = named(k.Operands, hi-lo)
	}
	if m.total != nil {
		k.hand(m.total, &r.sums.cut, i, lo, hi, r.at > 0)
	}
	k.mayBeFew = m.renewals != nil
	p, err := k.run(r.cfg.Device, m.before, m.src, m.dst, m.saved, i, lo, hi)
	r.waited.Add(int64(k.waited))
	if err != nil {
		return err
	}
	m.marked(i, lo, hi, k.wasFew, k.few.Spots)
	m.products[i] = p
	if m.total == nil || r.at > 0 {
		return nil
	}
	m.total.named[i] = k.appendSum(m.total.named[i])
	return m.total.chunkMade(&r.sums.cut, i)
}

// wait waits until every chunk is made, and returns the by-products of each. The step is committed.
func (m *making) wait() ([]kintsugi.Products, error) {
	<-m.ended
	if m.err != nil {
		return nil, m.err
	}
	for i, n := range m.named {
		m.products[i].Touched = m.r.saved.count(i, n, m.saved != nil)
	}
	return m.products, nil
}

// ahead returns for how long chunks have been made at the moment now.
func (m *making) ahead(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.first.IsZero() {
		return 0
	}
	return now.Sub(m.first)
}

// giveUp throws the result away: at once, or when the threads have finished their chunks.
func (m *making) giveUp() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
	if m.done {
		m.drop()
	}
	m.settle()
}

// drop gives back everything that the making has read and written.
func (m *making) drop() {
	m.unpin()
	m.r.versions.discard(m.dst)
	m.r.sums.unpin(m.total)
}

// unpin gives back what it has read.
func (m *making) unpin() {
	m.r.versions.unpin(m.src)
	if m.before != nil {
		m.r.versions.unpin(m.before)
	}
}
