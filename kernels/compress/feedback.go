package compress

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Feedback encodes the gradients of one worker and keeps the residual of the whole model: what its
// codec has left out so far and must still send.
//
// A push takes the residual with it, so that no two pushes carry the same part of it. A push is
// open from its first Encode or Flush until its Counted or Dropped. Each push gets one of these two
// calls; pushes may be closed in any order.
//
//	Encode   sends gradient + residual; keeps what was taken and what was left out (the candidate)
//	Counted  residual += candidate
//	Dropped  residual += what was taken
//
// The residual and each open push hold memory of the size of the model; a push holds twice as much
// if there was a residual to take. With one push open at a time nothing is copied. A codec without
// feedback holds no such memory.
//
// Chunks of one push may be encoded concurrently. All other methods are safe for concurrent use
// too, except that Counted and Dropped of a push must not run while that push is being encoded.
type Feedback struct {
	codec  *codec
	layout *kintsugi.Layout
	rowLen []int // by tensor
	seed   uint64
	device kernels.Device

	mu       sync.Mutex
	residual []float32 // nil: zero
	open     map[kintsugi.PushID]*openPush
	free     [][]float32
	counts   FeedbackCounts
}

// openPush is what Feedback keeps of a push until it knows whether the push was counted.
type openPush struct {
	taken     []float32 // the residual that the push took; nil: none
	candidate []float32 // of the chunks that were encoded
	encoded   []bool    // by chunk
}

// FeedbackCounts says what became of the pushes that are no longer open.
type FeedbackCounts struct {
	Adopted  uint64  // counted: their candidates were adopted
	Returned uint64  // dropped: what they had taken was put back
	GivenUp  uint64  // number of calls of Drop, which gives a residual up
	Lost     float64 // sum of the norms of the residuals given up
}

// NewFeedback returns the error feedback of a worker that encodes models of this layout with codec
// c. seed is the run's seed: the random numbers of a stochastic codec depend on it, on the slot,
// version and sequence of a push, and on the chunk.
func NewFeedback(c Codec, layout *kintsugi.Layout, seed uint64) *Feedback {
	f := &Feedback{codec: c.(*codec), layout: layout, seed: seed, device: device, open: make(map[kintsugi.PushID]*openPush)}
	if kernels.Streams(3 * 4 * layout.Values) { // gradient, residual and candidate
		f.device = kernels.Streaming(device)
	}
	for _, t := range layout.Tensors {
		f.rowLen = append(f.rowLen, t.RowLen())
	}
	return f
}

// Codec returns the codec that Encode uses.
func (f *Feedback) Codec() Codec { return f.codec }

// Encode appends the payload of one chunk of push id to dst: the gradient grads plus the residual.
// grads has the chunk's length; Encode keeps no reference to it. As long as the push is open, the
// same call appends the same bytes.
func (f *Feedback) Encode(dst []byte, id kintsugi.PushID, chunk kintsugi.ChunkID, grads []float32) []byte {
	return f.encode(f.codec, dst, id, chunk, grads)
}

// Flush is Encode as float32, which leaves nothing out. It is for the last push of a worker that
// leaves, or of a run. Its frames have the encoding kernels.FP32, whatever the codec.
func (f *Feedback) Flush(dst []byte, id kintsugi.PushID, chunk kintsugi.ChunkID, grads []float32) []byte {
	return f.encode(fp32{}, dst, id, chunk, grads)
}

func (f *Feedback) encode(e encoder, dst []byte, id kintsugi.PushID, chunk kintsugi.ChunkID, grads []float32) []byte {
	c := f.layout.Chunks[chunk]
	if len(grads) != c.Len() {
		panic(fmt.Sprintf("compress: %d values for chunk %d, which has %d", len(grads), chunk, c.Len()))
	}
	rowLen, seed := f.rowLen[c.Tensor], SeedOf(f.seed, id, chunk)
	if !f.codec.Feedback() {
		return e.encode(f.device, dst, grads, nil, nil, rowLen, seed)
	}
	p := f.push(id)
	var carry []float32
	if p.taken != nil {
		carry = p.taken[c.Lo:c.Hi]
	}
	dst = e.encode(f.device, dst, grads, carry, p.candidate[c.Lo:c.Hi], rowLen, seed)
	p.encoded[chunk] = true
	return dst
}

// push returns the open push with that id, or opens one, which takes the residual.
func (f *Feedback) push(id kintsugi.PushID) *openPush {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.open[id]
	if p == nil {
		p = &openPush{taken: f.residual, candidate: f.array(), encoded: make([]bool, len(f.layout.Chunks))}
		f.residual = nil
		f.open[id] = p
	}
	return p
}

// Counted adopts the candidate of a push that was counted. It ignores a push that is not open,
// since the news of a push may be repeated.
func (f *Feedback) Counted(id kintsugi.PushID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.open[id]
	if p == nil {
		return
	}
	delete(f.open, id)
	f.counts.Adopted++
	for i, c := range f.layout.Chunks { // a chunk that was never encoded has sent nothing
		switch {
		case p.encoded[i]:
		case p.taken == nil:
			clear(p.candidate[c.Lo:c.Hi])
		default:
			copy(p.candidate[c.Lo:c.Hi], p.taken[c.Lo:c.Hi])
		}
	}
	f.put(p.candidate)
	f.release(p.taken)
}

// Dropped restores what a push had taken that will never be counted because it was late, refused or
// interrupted. It ignores a push that is not open.
func (f *Feedback) Dropped(id kintsugi.PushID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.open[id]
	if p == nil {
		return
	}
	delete(f.open, id)
	f.counts.Returned++
	if p.taken != nil {
		f.put(p.taken)
	}
	f.release(p.candidate)
}

// Norm returns ‖r‖ of the residual r as it would be if all open pushes were dropped. That is what
// would be lost if the worker died now.
func (f *Feedback) Norm() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.norm()
}

func (f *Feedback) norm() float64 {
	var part [4096]float32 // not an array of the model's size, which would stay
	squared := 0.0
	for lo := 0; lo < f.layout.Values; lo += len(part) {
		sum := part[:min(len(part), f.layout.Values-lo)]
		f.all(sum, lo)
		squared += kernels.SquaredNorm(sum)
	}
	return math.Sqrt(squared)
}

// Drop gives up the residual, including what open pushes have taken, and returns its norm. Later
// calls of Counted and Dropped for those pushes do nothing. Call it when a new line begins, since
// the residual belongs to the model of the old line.
func (f *Feedback) Drop() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	lost := f.norm()
	f.counts.GivenUp++
	f.counts.Lost += lost
	f.forget()
	return lost
}

// Save sets dst, which has the length of the model, to the residual as it would be if all open
// pushes were dropped. At a checkpoint, an open push is one that the checkpoint has not counted.
func (f *Feedback) Save(dst []float32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checkLen(dst)
	f.all(dst, 0)
}

// Restore replaces the residual by a saved one, which it copies. Later calls of Counted and Dropped
// for pushes that were open do nothing.
func (f *Feedback) Restore(saved []float32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checkLen(saved)
	f.forget()
	if f.codec.Feedback() {
		f.residual = f.array()
		copy(f.residual, saved)
	}
}

// Counts returns what became of the pushes so far.
func (f *Feedback) Counts() FeedbackCounts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts
}

func (f *Feedback) checkLen(x []float32) {
	if len(x) != f.layout.Values {
		panic(fmt.Sprintf("compress: a residual of %d values for a model of %d", len(x), f.layout.Values))
	}
}

// all sets sum to the residual plus what open pushes have taken, from value lo on. It adds them in
// the order of the pushes.
func (f *Feedback) all(sum []float32, lo int) {
	clear(sum)
	if f.residual != nil {
		copy(sum, f.residual[lo:])
	}
	for _, id := range slices.SortedFunc(maps.Keys(f.open), kintsugi.PushID.Compare) { // in any order the bits would differ
		if p := f.open[id]; p.taken != nil {
			add(sum, sum, p.taken[lo:])
		}
	}
}

func (f *Feedback) forget() {
	f.release(f.residual)
	f.residual = nil
	for id, p := range f.open {
		f.release(p.taken)
		f.release(p.candidate)
		delete(f.open, id)
	}
}

// put adds x to the residual and takes ownership of x.
func (f *Feedback) put(x []float32) {
	if f.residual == nil {
		f.residual = x
		return
	}
	add(f.residual, f.residual, x)
	f.release(x)
}

// array returns memory of the size of the model, with unspecified values.
func (f *Feedback) array() []float32 {
	if n := len(f.free); n > 0 {
		x := f.free[n-1]
		f.free = f.free[:n-1]
		return x
	}
	return make([]float32, f.layout.Values)
}

func (f *Feedback) release(x []float32) {
	if x != nil {
		f.free = append(f.free, x)
	}
}

// SeedOf returns the seed with which a chunk of a push is encoded in a run with this seed. It
// depends on everything that distinguishes one encoding in a run from another, and on nothing else.
// In particular it does not depend on the incarnation, so that a worker that comes back encodes the
// same gradient to the same bytes.
func SeedOf(seed uint64, id kintsugi.PushID, chunk kintsugi.ChunkID) uint64 {
	for _, w := range []uint64{uint64(id.Slot), uint64(id.Version), uint64(id.Sequence), uint64(chunk)} {
		seed = mix(seed + 0x9e3779b97f4a7c15 ^ mix(w+1))
	}
	return seed
}

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
