package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cuda"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// Compressed computes gradients and encodes them on the GPU. It encodes a layer while earlier
// layers are still being computed, with the error feedback of compress.Feedback, whose payloads
// have the same bits. Only payloads are copied to the host. One goroutine uses it at a time.
type Compressed struct {
	e        *Engine
	enc      *cuda.Encoder
	layout   *kintsugi.Layout
	codec    compress.Codec
	seed     uint64
	seeds    []uint64 // by chunk, of the push that is being computed; nil: the codec draws no random numbers
	feedback bool

	residual cuda.Ptr // what has been left out so far; 0: nothing
	open     map[kintsugi.PushID]leftOut
	free     []cuda.Ptr
	host     pinned
	last     kintsugi.PushID // the push that was computed last
	handed   atomic.Bool     // a caller has its payloads
}

// leftOut is what is kept of a push until it is known whether the push was counted: see
// compress.Feedback.
type leftOut struct{ taken, candidate cuda.Ptr }

// CanCompress reports whether the GPU can encode with codec c. It can with every codec except fp32,
// which encodes nothing.
func CanCompress(c compress.Codec) bool { return cuda.Encodes(c.Encoding()) }

// codingOf returns the Coding with which the GPU encodes the chunks of layout l as codec c does.
func codingOf(c compress.Codec, l *kintsugi.Layout) cuda.Coding {
	coding := cuda.Coding{Encoding: c.Encoding(), AtRandom: compress.AtRandom(c)}
	if compress.Largest(c, 1) > 0 {
		coding.Largest = func(n int) int { return compress.Largest(c, n) }
	}
	coding.Matrix = func(chunk int) (rows, cols, rank int) {
		k := l.Chunks[chunk]
		return compress.Matrix(c, k.Len(), l.Tensors[k.Tensor].RowLen())
	}
	return coding
}

// NewCompressed returns a source of gradients that e computes, encoded with a codec for which
// CanCompress holds. seed is the run's seed. From then on e must compute gradients for nobody else.
// Closing e frees the memory of the result.
func NewCompressed(e *Engine, layout *kintsugi.Layout, codec compress.Codec, seed uint64) (*Compressed, error) {
	c := &Compressed{e: e, layout: layout, codec: codec, seed: seed, feedback: codec.Feedback(), open: make(map[kintsugi.PushID]leftOut)}
	c.handed.Store(true)
	var lengths []int
	for _, k := range layout.Chunks {
		lengths = append(lengths, k.Len())
	}
	var err error
	if c.enc, err = cuda.NewEncoder(e.link, codingOf(codec, layout), lengths); err != nil {
		return nil, err
	}
	if compress.AtRandom(codec) {
		c.seeds = make([]uint64, len(lengths))
	}
	e.final = c.final
	return c, nil
}

// final queues the encoding of the chunks of the values [lo, hi). The last layer comes first: for
// the chunks at the end of the vector it also queues the encoder's Start, and for those at its
// beginning the encoder's Finish.
func (c *Compressed) final(lo, hi int) {
	gradient := c.e.pass.grads
	if hi == c.layout.Values {
		c.enc.Start(c.e.link)
	}
	first := c.chunkAt(lo)
	c.enc.Encode(c.e.link, gradient, first, c.chunkAt(hi))
	if lo == 0 {
		c.enc.Finish(c.e.link, gradient)
	}
}

// chunkAt returns the first chunk that begins at value v or later. Chunks do not cross tensors, and
// layers begin with tensors.
func (c *Compressed) chunkAt(v int) int {
	i, _ := slices.BinarySearchFunc(c.layout.Chunks, v, func(k kintsugi.Chunk, v int) int { return cmp.Compare(k.Lo, v) })
	return i
}

// Gradient computes the gradient of a push, encodes it, and returns the mean loss. A push that is
// computed again is encoded as if for the first time. When ctx ends, Gradient returns early, with
// the error of ctx. A gradient that is not finite is a kintsugi.ErrNotFinite that names the tensor.
func (c *Compressed) Gradient(ctx context.Context, params []float32, id kintsugi.PushID, b model.Batch) (float64, error) {
	if c.e.closed {
		return 0, fmt.Errorf("gradient: %w", errClosed)
	}
	if err := c.e.d.CheckEvaluate(params, b); err != nil {
		return 0, err
	}
	sum := 0.0
	err := c.encode(id, func() (err error) {
		sum, _, err = c.e.compute(ctx, params, nil, true, b)
		return err
	})
	if err != nil {
		return 0, err
	}
	return sum / float64(len(b.Y)), nil
}

// Local encodes the pseudo-gradient of local steps. take takes them with a trainer of NewLocal on the
// same engine, and leaves it on the GPU. Otherwise Local is as Gradient.
func (c *Compressed) Local(id kintsugi.PushID, take func() error) error {
	return c.encode(id, func() error {
		c.e.final = nil // no gradient of a local step is encoded
		err := take()
		c.e.final = c.final
		if err != nil {
			return err
		}
		c.e.link.After(c.e.q)
		c.final(0, c.layout.Values)
		c.e.q.After(c.e.link)
		return c.e.q.Wait()
	})
}

// encode opens a push. compute queues its encoding, with final, and waits for it.
func (c *Compressed) encode(id kintsugi.PushID, compute func() error) error {
	if !c.handed.Load() {
		c.Dropped(c.last) // it will never be sent
	}
	c.Dropped(id)
	c.begin(id)
	if err := compute(); err != nil {
		c.Dropped(id)
		return fmt.Errorf("gradient of model %s: %w", c.e.d.Name, err)
	}
	if i := c.enc.NotFinite(); i >= 0 {
		c.Dropped(id)
		return fmt.Errorf("%w: gradient of %v: tensor %s; lower the learning rate or look at the data", kintsugi.ErrNotFinite, id, c.layout.TensorAt(i))
	}
	c.last = id
	c.handed.Store(false)
	return nil
}

// begin opens a push, which takes the residual with it.
func (c *Compressed) begin(id kintsugi.PushID) {
	for i := range c.seeds {
		c.seeds[i] = compress.SeedOf(c.seed, id, kintsugi.ChunkID(i))
	}
	gradient := c.e.pass.grow(&c.e.grads, 4*c.layout.Values)
	if !c.feedback {
		c.enc.Begin(gradient, 0, 0, c.seeds)
		return
	}
	p := leftOut{taken: c.residual, candidate: c.array()}
	c.residual, c.open[id] = 0, p
	c.enc.Begin(gradient, p.taken, p.candidate, c.seeds)
}

// Payload returns the payload of a chunk of the last computed gradient, and the squared norm of the
// values that it decodes to. The payload is valid until the next Gradient. Several goroutines may
// call Payload at once.
func (c *Compressed) Payload(chunk kintsugi.ChunkID) (payload []byte, squaredNorm float64) {
	c.handed.Store(true)
	return c.enc.Payload(int(chunk))
}

// Counted tells that a push was counted, as in compress.Feedback.
func (c *Compressed) Counted(id kintsugi.PushID) { c.settle(id, true) }

// Dropped tells that a push was dropped, as in compress.Feedback.
func (c *Compressed) Dropped(id kintsugi.PushID) { c.settle(id, false) }

func (c *Compressed) settle(id kintsugi.PushID, counted bool) {
	p, ok := c.open[id]
	if !ok {
		return
	}
	delete(c.open, id)
	if counted {
		p.taken, p.candidate = p.candidate, p.taken
	}
	c.release(p.candidate)
	switch {
	case p.taken == 0:
	case c.residual == 0:
		c.residual = p.taken
	default:
		c.add(c.residual, c.residual, p.taken)
		c.release(p.taken)
	}
}

// add queues z = x + y, before any work that is queued later.
func (c *Compressed) add(z, x, y cuda.Ptr) { c.e.pass.each("sum", z, x, y, c.enc.Size()/4) }

// Drop gives up the residual, with what open pushes have taken, and returns its norm.
func (c *Compressed) Drop() float64 {
	sum, any := c.array(), c.residual != 0
	if any {
		c.e.q.Copy(sum, c.residual, c.enc.Size())
	} else {
		c.e.q.Zero(sum, c.enc.Size())
	}
	for _, id := range slices.SortedFunc(maps.Keys(c.open), kintsugi.PushID.Compare) {
		if p := c.open[id]; p.taken != 0 {
			c.add(sum, sum, p.taken)
			any = true
		}
		c.release(c.open[id].taken)
		c.release(c.open[id].candidate)
	}
	clear(c.open)
	c.release(c.residual)
	c.residual = 0
	c.handed.Store(true)
	norm := c.norm(sum)
	c.release(sum)
	if !any {
		return 0
	}
	return norm
}

// norm returns the norm of an array with gaps. The gaps do not count.
func (c *Compressed) norm(x cuda.Ptr) float64 {
	host := c.e.pass.pin(&c.host, c.enc.Size())
	c.e.q.Out(host, x)
	if c.e.q.Wait() != nil {
		return math.NaN() // the next gradient says why
	}
	squared, at := 0.0, 0
	values := kernels.Floats(host)
	for _, k := range c.layout.Chunks {
		squared += kernels.SquaredNorm(values[at : at+k.Len()])
		at += ceil(k.Len(), 4) * 4
	}
	return math.Sqrt(squared)
}

// array returns an array with gaps, whose contents are unspecified.
func (c *Compressed) array() cuda.Ptr {
	if n := len(c.free); n > 0 {
		x := c.free[n-1]
		c.free = c.free[:n-1]
		return x
	}
	return c.e.q.Array(c.enc.Size())
}

func (c *Compressed) release(x cuda.Ptr) {
	if x != 0 {
		c.free = append(c.free, x)
	}
}
