package cuda

import (
	"math"
	"math/rand/v2"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Rig times operations on arrays that are on the GPU, by the GPU's clock. It queues an operation
// while the GPU is busy with something else, so that the times contain no work of the host. It is
// for benchmarks. One goroutine uses it, and nothing else may use its device. After an error its
// methods do nothing; see [Rig.Err].
type Rig struct {
	d          *Device
	o          *op
	begin, end driver.Event
	ahead      rowSumsArgs // work that the GPU does first
}

// rowSumsArgs mirrors RowSumsArgs of kernel/layer.cu.
type rowSumsArgs struct {
	sum, x        driver.Ptr
	rows, columns uint64
}

// Work is an operation on its arrays, for [Rig.Seconds].
type Work struct {
	Values int // of each array
	Bytes  int // that must move: each array is read or written once
	queue  func()
}

// layerThreads is the number of threads of a block of kernel/layer.cu.
const layerThreads = 256

// rigGrain divides the number of values of each array, so that each array of an operation is
// aligned.
const rigGrain = 1 << 12

// rigChunk is the size of most chunks of a large model, in values.
const rigChunk = 1 << 16

// NewRig returns a rig on the device. Close it before the device.
func (d *Device) NewRig() (*Rig, error) {
	r := &Rig{d: d, o: &op{d: d}}
	for _, e := range []*driver.Event{&r.begin, &r.end} {
		at, err := d.c.NewTimer()
		r.o.fail(err)
		*e = at
	}
	at, err := d.c.Alloc(4*aheadValues + vector)
	r.o.fail(err)
	r.queue(func() { r.o.fail(d.c.Fill(at, 0, 4*aheadValues, d.stream)) })
	r.ahead = rowSumsArgs{sum: at + 4*aheadValues, x: at, rows: 1, columns: aheadValues}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return r, nil
}

// Err returns the first error.
func (r *Rig) Err() error { return r.d.judge("measure", r.o.err) }

// Reset frees the arrays of all operations. The operations must not be used afterwards.
func (r *Rig) Reset() {
	r.o.fail(r.d.c.Synchronize(r.d.stream))
	r.o.fail(r.d.scratch.free(r.d.c)) // freed, since the next operation may need arrays of other sizes
	r.o.reset()
}

// Close frees the rig's memory and returns its first error.
func (r *Rig) Close() error {
	if r.d.lost == nil {
		r.Reset()
		r.o.fail(r.d.c.Free(r.ahead.x))
		r.o.fail(r.d.c.CloseEvent(r.begin))
		r.o.fail(r.d.c.CloseEvent(r.end))
	}
	return r.Err()
}

// aheadValues is the length of a sum that one warp computes in a few dozen microseconds. In that
// time an event and the first kernels of an operation are queued. The values take little of a
// cache.
const aheadValues = 1 << 17

// Seconds runs the operation times times in a row and returns the mean time of one, in seconds.
func (r *Rig) Seconds(w Work, times int) float64 {
	ahead := r.ahead // a copy without Go pointers: C gets its address
	launch(r.o, "layer", "row_sums", line(1), layerThreads, &ahead)
	r.queue(func() { r.o.fail(r.d.c.Record(r.begin, r.d.stream)) })
	for range times {
		r.queue(w.queue)
	}
	var seconds float64
	r.queue(func() { r.o.fail(r.d.c.Record(r.end, r.d.stream)) })
	r.queue(func() {
		s, err := r.d.c.Elapsed(r.begin, r.end)
		r.o.fail(err)
		seconds = s / float64(times)
	})
	return seconds
}

func (r *Rig) queue(f func()) {
	if r.o.err == nil {
		f()
	}
}

// ordinary draws four bytes that are an ordinary float32, and also two ordinary BF16 values.
// Infinities among the operands of a step would send division and square root down their slow
// paths.
func ordinary(rng *rand.Rand) float32 {
	draw := func() uint32 { return math.Float32bits(float32(math.Abs(rng.NormFloat64())) * 1e-3) }
	return math.Float32frombits(draw()&0xffff0000 | draw()>>16)
}

// array returns n bytes on the GPU that repeat random values: a GPU is faster on zeros.
func (r *Rig) array(n int) driver.Ptr {
	piece := min(1<<22, ceil(n, vector)*vector)
	at := r.o.room(n)
	rng := rand.New(rand.NewPCG(uint64(n), uint64(at)))
	x := make([]float32, piece/4)
	for i := range x {
		x[i] = ordinary(rng)
	}
	first := r.o.floats(x)
	r.o.flush()
	for lo := 0; lo < n; lo += piece {
		r.queue(func() { r.o.fail(r.d.c.Copy(at+driver.Ptr(lo), first, min(piece, n-lo), r.d.stream)) })
	}
	r.o.fail(r.d.c.Synchronize(r.d.stream))
	return at
}

// round rounds n to a number of values that operations take: whole chunks of rigChunk values, or
// one smaller chunk.
func round(n int) (values, chunk int) {
	if n >= rigChunk {
		return n / rigChunk * rigChunk, rigChunk
	}
	n = max(1, n/rigGrain) * rigGrain
	return n, n
}

// Copy copies n bytes within the GPU. Its time is the bound that memory sets.
func (r *Rig) Copy(n int) Work {
	n = max(n, vector)
	from, to := r.array(n), r.array(n)
	return Work{Values: n / 4, Bytes: 2 * n, queue: func() { r.o.fail(r.d.c.Copy(to, from, n, r.d.stream)) }}
}

// Step steps all chunks of a model of about n values at once, with k operands in FP32, BF16, FP16,
// Int8 or Sign, and with SGD, Momentum or Adam.
func (r *Rig) Step(rule kernels.Rule, e kernels.Encoding, k, n int) Work {
	n, each := round(n)
	chunks, size := n/each, 4*each
	if e != kernels.FP32 {
		size = denseKernels[e].bytes(each)
	}
	var operands []driver.Ptr
	for range k {
		operands = append(operands, r.array(size*chunks))
	}
	params, products := r.array(4*n), r.array(32*chunks)
	var state [2]driver.Ptr
	for i := range rule.States() {
		state[i] = r.array(4 * n)
	}
	chunkTable := make([]chunk, chunks)
	for i := range chunkTable {
		at := driver.Ptr(4 * each * i)
		c := chunk{n: uint64(each), params: params + at, next: params + at, products: products + driver.Ptr(32*i), count: uint64(k)}
		if rule.States() > 0 {
			c.state0, c.nextState0 = state[0]+at, state[0]+at
		}
		if rule.States() > 1 {
			c.state1, c.nextState1 = state[1]+at, state[1]+at
		}
		c.operands = r.o.operands(payloads(operands, e, size*i, each))
		chunkTable[i] = c
	}
	args := stepArgs{chunks: table(r.o, chunkTable), coefficients: (&kernels.Step{Scale: 0.25, Scalars: kernels.Scalars{LearningRate: 1e-4, Momentum: 0.9, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Correction1: 1, Correction2: 1}}).Coefficients()}
	return Work{
		Values: n, Bytes: k*size*chunks + 8*n + 8*n*rule.States(),
		queue: func() { launch(r.o, "step", "step_"+rule.String(), line(chunks), stepThreads, &args) },
	}
}

// payloads returns the operands of a chunk of n values. Their payloads begin at byte lo of each
// array.
func payloads(arrays []driver.Ptr, e kernels.Encoding, lo, n int) []operand {
	var ops []operand
	for _, a := range arrays {
		o := operand{data: a + driver.Ptr(lo), weight: 1, encoding: uint32(e)}
		if e == kernels.Int8 || e == kernels.Sign {
			o.scales, o.data = o.data, o.data+driver.Ptr(4*n/256)
		}
		ops = append(ops, o)
	}
	return ops
}

// Encode encodes a gradient of about n values with error feedback, in BF16, FP16, Int8 (to nearest
// or at random) or Sign. The residual is written over the carry.
func (r *Rig) Encode(e kernels.Encoding, random bool, n int) Work {
	n, _ = round(n)
	kind := denseKernels[e]
	if random {
		kind.kernel += "_random"
	}
	size := kind.bytes(n)
	args := encodeArgs{x: r.array(4 * n), carry: r.array(4 * n), dst: r.array(size), scales: r.array(n / 64), n: uint64(n), keyA: 1, keyB: 2}
	args.residual = args.carry
	all := encodes{chunks: table(r.o, []encodeArgs{args})}
	return Work{Values: n, Bytes: 12*n + size, queue: func() { launch(r.o, "encode", kind.kernel, line(ceil(n, kind.per)), encodeThreads, &all) }}
}

// Select selects a share of about n values, the largest ones, with error feedback or from a
// gradient alone. Bytes is the traffic of one pass: it reads the gradient and the carry, and writes
// the residual and the selection.
func (r *Rig) Select(share float64, feedback bool, n int) Work {
	n, _ = round(n)
	k := max(1, int(float64(n)*share))
	args := selectArgs{x: r.array(4 * n), n: uint64(n), k: uint64(k), index: r.array(4 * k), value: r.array(4 * k)}
	bytes := 4*n + 8*k
	if feedback {
		args.carry, args.y = r.array(4*n), r.array(4*n)
		args.residual = args.y
		bytes += 8 * n
	}
	r.o.selectMemory(&args)
	return Work{Values: n, Bytes: bytes, queue: func() { r.o.selectPasses(&args) }}
}

// EncodeLargest encodes the chunks of a gradient of about n values with error feedback, a share of
// each chunk in BF16. Bytes is the traffic of one pass: it reads the gradient and the carry, and
// writes the residual and the payload, with one byte for each gap.
func (r *Rig) EncodeLargest(share float64, n int) Work {
	n, each := round(n)
	chunks, k := n/each, max(1, int(float64(each)*share))
	most := ceil(kernels.MaxSparseBytes(kernels.Sparse16, each, k), vector) * vector
	x, carry, residual, decoded := r.array(4*n), r.array(4*n), r.array(4*n), r.array(4*n)
	index, payload, bytes := r.array(4*k*chunks), r.array(most*chunks), r.array(8*chunks)
	var all []chosen
	for i := range chunks {
		at := driver.Ptr(4 * each * i)
		all = append(all, chosen{
			x: x + at, carry: carry + at, residual: residual + at, decoded: decoded + at, index: index + driver.Ptr(4*k*i),
			payload: payload + driver.Ptr(most*i), bytes: bytes + driver.Ptr(8*i), n: uint64(each), k: uint64(k), width: 2,
		})
	}
	args := choices{chunks: table(r.o, all)}
	return Work{Values: n, Bytes: 12*n + 3*k*chunks, queue: func() { launch(r.o, "select", "select_encode", line(chunks), selectThreads, &args) }}
}

// EncodeLowRank encodes the chunks of a gradient of about n values, seen as matrices of 64 rows, as
// factors of the given rank, with error feedback. Bytes is the traffic of one pass: it reads the
// gradient and the carry, and writes the residual and the payload.
func (r *Rig) EncodeLowRank(rank, n int) Work {
	n, each := round(n)
	chunks, rows, cols := n/each, 64, each/64
	numbers := rank * (rows + cols)
	x, carry, residual, decoded := r.array(4*n), r.array(4*n), r.array(4*n), r.array(4*n)
	columns, factors := r.array(8*numbers*chunks), r.array(4*numbers*chunks)
	var all []matrix
	for i := range chunks {
		at, p := driver.Ptr(4*each*i), columns+driver.Ptr(8*numbers*i)
		all = append(all, matrix{
			x: x + at, carry: carry + at, residual: residual + at, decoded: decoded + at, p: p, q: p + driver.Ptr(8*rank*rows), factors: factors + driver.Ptr(4*numbers*i),
			limit: kernels.MostFactor(rank), rows: uint32(rows), cols: uint32(cols), rank: uint32(rank), keyA: uint32(i), keyB: 2,
		})
	}
	args := matrices{chunks: table(r.o, all)}
	return Work{Values: n, Bytes: 12*n + 4*numbers*chunks, queue: func() { launch(r.o, "lowrank", "low_rank_encode", line(chunks), lowRankThreads, &args) }}
}

// EncodeNamed encodes the chunks of a gradient of about n values, of which a share is not 0: the
// first rows of each chunk. Bytes is the traffic of one pass: it reads the gradient and writes the
// payload, with one byte for each gap. The payload stays on the GPU, since the link is measured by
// itself.
func (r *Rig) EncodeNamed(share float64, n int) Work {
	n, each := round(n)
	chunks, k := n/each, max(1, int(float64(each)*share))
	most := ceil(kernels.MaxSparseBytes(kernels.Sparse32, each, each), vector) * vector
	x, decoded, touched := r.o.zeros(4*n), r.array(4*n), r.array(4*k)
	index, payload, bytes := r.array(4*n), r.array(most*chunks), r.array(8*chunks)
	var all []named
	for i := range chunks {
		at := driver.Ptr(4 * each * i)
		r.queue(func() { r.o.fail(r.d.c.Copy(x+at, touched, 4*k, r.d.stream)) })
		all = append(all, named{chosen: chosen{
			x: x + at, decoded: decoded + at, index: index + at, payload: payload + driver.Ptr(most*i), bytes: bytes + driver.Ptr(8*i), n: uint64(each), width: 4,
		}})
	}
	args := allNamed{chunks: table(r.o, all)}
	return Work{Values: n, Bytes: 4*n + 5*k*chunks, queue: func() { launch(r.o, "named", "named_encode", line(chunks), namedThreads, &args) }}
}

// Distance computes the squared distance of every chunk of about n values to a saved copy.
func (r *Rig) Distance(n int) Work {
	n, each := round(n)
	x, y, result := r.array(4*n), r.array(4*n), r.array(8*n/each)
	var pairs []pair
	for i := range n / each {
		at := driver.Ptr(4 * each * i)
		pairs = append(pairs, pair{x: x + at, y: y + at, n: uint64(each), result: result + driver.Ptr(8*i)})
	}
	args := normArgs{pairs: table(r.o, pairs)}
	return Work{Values: n, Bytes: 8 * n, queue: func() { launch(r.o, "norm", "norms", line(len(pairs)), normThreads, &args) }}
}

// Finite checks about n values.
func (r *Rig) Finite(n int) Work {
	n, _ = round(n)
	args := finiteArgs{x: r.array(4 * n), n: uint64(n), first: r.array(8)}
	return Work{Values: n, Bytes: 4 * n, queue: func() { launch(r.o, "finite", "finite", line(ceil(n, perFinite)), finiteThreads, &args) }}
}
