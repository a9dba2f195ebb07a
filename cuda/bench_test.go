//go:build gpu && cgo && linux

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// rig is a device with arrays of its own, for measurements: what is timed touches no memory of the host.
type rig struct {
	*testing.B
	*Device
	o          *op
	begin, end driver.Event
}

// values is how many values an operation has: 1 GiB of float32, many times what a GPU's cache holds. With -short, what an
// emulation can do.
func values() int {
	if testing.Short() {
		return 3 * chunkValues
	}
	return 1 << 28
}

// chunkValues is the size of most chunks of a large model.
const chunkValues = 1 << 16

func newRig(b *testing.B) *rig {
	d := openTest(b)
	r := &rig{B: b, Device: d, o: &op{d: d}}
	var err error
	if r.begin, err = d.c.NewEvent(); err == nil {
		r.end, err = d.c.NewEvent()
	}
	r.must(err)
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// array returns n bytes on the GPU, repeats of random values: a GPU is faster on zeros.
func (r *rig) array(n int) driver.Ptr {
	const piece = 1 << 22
	at := r.o.room(n)
	r.must(r.o.err)
	rng := rand.New(rand.NewPCG(uint64(n), uint64(at)))
	x := make([]float32, piece/4)
	for i := range x {
		x[i] = float32(math.Abs(rng.NormFloat64())) * 1e-3
	}
	first := r.o.floats(x)
	r.o.flush()
	for lo := 0; lo < n; lo += piece {
		r.must(r.c.Copy(at+driver.Ptr(lo), first, min(piece, n-lo), r.stream))
	}
	r.must(r.c.Synchronize(r.stream))
	return at
}

// measure runs f, which queues one operation that moves so many bytes, and reports the median rate, and its part of the
// rate of a copy.
func (r *rig) measure(bytes int, f func()) {
	r.Helper()
	r.o.flush()
	rate := r.median(bytes, f)
	r.ReportMetric(float64(bytes)/rate*1e3, "ms")
	n := 4 * values()
	from, to := r.array(n), r.array(n)
	copyRate := r.median(2*n, func() { r.must(r.c.Copy(to, from, n, r.stream)) })
	r.ReportMetric(rate/1e9, "GB/s")
	r.ReportMetric(rate/copyRate, "of-copy")
	r.ReportMetric(copyRate/1e9, "copy-GB/s")
	r.ReportMetric(0, "ns/op") // the events' times are the ones that count
	r.must(r.o.err)
	r.o.reset()
}

func (r *rig) median(bytes int, f func()) float64 {
	warm, runs := 3, 21
	if testing.Short() {
		warm, runs = 0, 1
	}
	var seconds []float64
	for i := range warm + runs {
		r.must(r.c.Record(r.begin, r.stream))
		f()
		r.must(r.o.err)
		r.must(r.c.Record(r.end, r.stream))
		s, err := r.c.Elapsed(r.begin, r.end)
		r.must(err)
		if i >= warm {
			seconds = append(seconds, s)
		}
	}
	slices.Sort(seconds)
	return float64(bytes) / seconds[len(seconds)/2]
}

// BenchmarkStep steps all chunks of a model at once: k operands in an encoding and a rule. Bytes are those of all arrays,
// each read or written once.
func BenchmarkStep(b *testing.B) {
	for _, rule := range []kernels.Rule{kernels.SGD, kernels.Momentum, kernels.Adam} {
		for _, e := range []kernels.Encoding{kernels.FP32, kernels.BF16, kernels.Int8, kernels.Sign} {
			for _, k := range []int{1, 4, 8} {
				if rule != kernels.Adam && k != 4 || e == kernels.Sign && k != 8 {
					continue
				}
				b.Run(fmt.Sprintf("%v/%v/k=%d", rule, e, k), func(b *testing.B) { benchStep(b, rule, e, k) })
			}
		}
	}
}

func benchStep(b *testing.B, rule kernels.Rule, e kernels.Encoding, k int) {
	r := newRig(b)
	n := max(values()/4, chunkValues)
	payload := map[kernels.Encoding]int{kernels.FP32: 4 * chunkValues, kernels.BF16: 2 * chunkValues, kernels.Int8: kernels.Int8Bytes(chunkValues), kernels.Sign: kernels.SignBytes(chunkValues)}[e]
	chunks := n / chunkValues
	params, state0, state1 := r.array(4*n), r.array(4*n), r.array(4*n)
	products := r.array(32 * chunks)
	var operands []driver.Ptr
	for range k {
		operands = append(operands, r.array(payload*chunks))
	}
	var chunkTable []chunk
	for i := range chunks {
		at := driver.Ptr(4 * chunkValues * i)
		c := chunk{n: chunkValues, params: params + at, next: params + at, products: products + driver.Ptr(32*i), count: uint64(k)}
		if rule.States() > 0 {
			c.state0, c.nextState0 = state0+at, state0+at
		}
		if rule.States() > 1 {
			c.state1, c.nextState1 = state1+at, state1+at
		}
		var ops []operand
		for _, o := range operands {
			p := operand{data: o + driver.Ptr(payload*i), weight: 1, encoding: uint32(e)}
			if e == kernels.Int8 || e == kernels.Sign {
				p.scales, p.data = p.data, p.data+4*chunkValues/256
			}
			ops = append(ops, p)
		}
		c.operands = r.o.operands(ops)
		chunkTable = append(chunkTable, c)
	}
	args := stepArgs{chunks: table(r.o, chunkTable), coefficients: (&kernels.Step{Scale: 0.25, Scalars: kernels.Scalars{LearningRate: 1e-4, Momentum: 0.9, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Correction1: 1, Correction2: 1}}).Coefficients()}
	bytes := k*payload*chunks + 8*n + 8*n*rule.States()
	r.measure(bytes, func() { launch(r.o, "step", "step_"+rule.String(), line(chunks), stepThreads, &args) })
}

// BenchmarkEncode encodes gradients with error feedback, the residual over what is carried.
func BenchmarkEncode(b *testing.B) {
	for _, c := range []struct {
		kernel   string
		per      int
		encoding kernels.Encoding
	}{
		{"encode_bf16", perHalves, kernels.BF16}, {"encode_fp16", perHalves, kernels.FP16}, {"encode_int8", perScaled, kernels.Int8},
		{"encode_int8_random", perScaled, kernels.Int8}, {"encode_sign", perScaled, kernels.Sign},
	} {
		b.Run(c.kernel, func(b *testing.B) {
			r := newRig(b)
			n := values()
			size := map[kernels.Encoding]int{kernels.BF16: 2 * n, kernels.FP16: 2 * n, kernels.Int8: n + n/64, kernels.Sign: n/8 + n/64}[c.encoding]
			args := encodeArgs{x: r.array(4 * n), carry: r.array(4 * n), dst: r.array(size), scales: r.array(n / 64), n: uint64(n), keyA: 1, keyB: 2}
			args.residual = args.carry
			all := encodes{chunks: table(r.o, []encodeArgs{args})}
			r.measure(12*n+size, func() { launch(r.o, "encode", c.kernel, line(ceil(n, c.per)), encodeThreads, &all) })
		})
	}
}

// BenchmarkSelect selects with error feedback, and from a gradient alone. Bytes are those of one pass: x and what is carried are read, the
// residual is written.
func BenchmarkSelect(b *testing.B) {
	for _, share := range []float64{0.001, 0.01, 0.1} {
		b.Run(fmt.Sprintf("feedback/%v", share), func(b *testing.B) { benchSelect(b, share, true) })
		b.Run(fmt.Sprintf("alone/%v", share), func(b *testing.B) { benchSelect(b, share, false) })
	}
}

func benchSelect(b *testing.B, share float64, feedback bool) {
	r := newRig(b)
	n := values()
	k := int(float64(n) * share)
	tiles := ceil(n, selectTile)
	args := selectArgs{x: r.array(4 * n), n: uint64(n), index: r.array(4 * k), value: r.array(4 * k), tiles: uint64(tiles)}
	bytes := 4*n + 8*k
	if feedback {
		args.carry, args.y = r.array(4*n), r.array(4*n)
		args.residual = args.y
		bytes += 8 * n
	}
	args.above, args.ties = r.array(4*tiles), r.array(4*tiles)
	args.threshold, args.histogram = r.array(16), r.o.zeros(4*selectBins)
	start := table(r.o, []threshold{{known: 31, k: uint64(k)}})
	r.measure(bytes, func() {
		r.must(r.c.Copy(args.threshold, start, 16, r.stream))
		r.o.selectPasses(&args)
	})
}

// BenchmarkEncodeLargest encodes chunks with error feedback, a block for each. Bytes are those of one pass: x and what is carried are read, what is left
// and the payload are written.
func BenchmarkEncodeLargest(b *testing.B) {
	for _, share := range []float64{0.001, 0.01, 0.1} {
		b.Run(fmt.Sprint(share), func(b *testing.B) {
			r := newRig(b)
			n := max(values()/4, chunkValues)
			chunks, k := n/chunkValues, int(math.Ceil(chunkValues*share))
			most := ceil(kernels.MaxSparseBytes(kernels.Sparse16, chunkValues, k), vector) * vector
			x, carry, residual, decoded := r.array(4*n), r.array(4*n), r.array(4*n), r.array(4*n)
			index, payload, bytes := r.array(4*k*chunks), r.array(most*chunks), r.array(8*chunks)
			var all []chosen
			for i := range chunks {
				at := driver.Ptr(4 * chunkValues * i)
				all = append(all, chosen{
					x: x + at, carry: carry + at, residual: residual + at, decoded: decoded + at, index: index + driver.Ptr(4*k*i),
					payload: payload + driver.Ptr(most*i), bytes: bytes + driver.Ptr(8*i), n: chunkValues, k: uint64(k), width: 2,
				})
			}
			args := choices{chunks: table(r.o, all)}
			r.measure(12*n+3*k*chunks, func() { launch(r.o, "select", "select_encode", line(chunks), selectThreads, &args) })
		})
	}
}

// BenchmarkNorms is the distance of every chunk to a saved copy.
func BenchmarkNorms(b *testing.B) {
	r := newRig(b)
	n := values()
	x, y, result := r.array(4*n), r.array(4*n), r.array(8*n/chunkValues)
	var pairs []pair
	for i := range n / chunkValues {
		at := driver.Ptr(4 * chunkValues * i)
		pairs = append(pairs, pair{x: x + at, y: y + at, n: chunkValues, result: result + driver.Ptr(8*i)})
	}
	args := normArgs{pairs: table(r.o, pairs)}
	r.measure(8*n, func() { launch(r.o, "norm", "norms", line(len(pairs)), normThreads, &args) })
}

// BenchmarkFinite looks at every value.
func BenchmarkFinite(b *testing.B) {
	r := newRig(b)
	n := values()
	args := finiteArgs{x: r.array(4 * n), n: uint64(n), first: r.array(8)}
	r.measure(4*n, func() { launch(r.o, "finite", "finite", line(ceil(n, perFinite)), finiteThreads, &args) })
}

// BenchmarkLink copies pinned memory to the GPU and back, and back in pieces: each the payload of a chunk in int8.
func BenchmarkLink(b *testing.B) {
	r := newRig(b)
	n := values()
	host, err := r.c.HostAlloc(n)
	r.must(err)
	at := r.array(n)
	out := r.median(n, func() { r.must(r.c.CopyOut(host, at, r.stream)) })
	payload := kernels.Int8Bytes(chunkValues)
	chunks := r.median(n/payload*payload, func() {
		for lo := 0; lo+payload <= n; lo += payload {
			r.must(r.c.CopyOut(host[lo:lo+payload], at+driver.Ptr(lo), r.stream))
		}
	})
	r.ReportMetric(r.median(n, func() { r.must(r.c.CopyIn(at, host, r.stream)) })/1e9, "in-GB/s")
	r.ReportMetric(out/1e9, "out-GB/s")
	r.ReportMetric(chunks/1e9, "chunks-GB/s")
	r.ReportMetric(chunks/out, "of-copy")
	r.ReportMetric(0, "ns/op")
	r.must(r.c.HostFree(host))
	r.o.reset()
}

// BenchmarkLaunch is what a launch costs: many of a kernel with next to nothing to do, without waiting in between.
func BenchmarkLaunch(b *testing.B) {
	r := newRig(b)
	args := finiteArgs{x: r.array(16), n: 4, first: r.array(8)}
	for b.Loop() {
		launch(r.o, "finite", "finite", line(1), finiteThreads, &args)
	}
	r.must(r.o.err)
	r.must(r.c.Synchronize(r.stream))
}

// gemmArgs is GemmArgs of kernel/gemm.cu, of one product without anything behind it.
type gemmArgs struct {
	a, b, _, c    driver.Ptr
	m, n, k       uint64
	lda, ldb, ldc uint64
	inners        uint64
	_             [6]uint64
	_             [2]uint32
}

// BenchmarkProduct multiplies matrices that are on the GPU.
func BenchmarkProduct(b *testing.B) {
	for _, size := range [][3]int{{4096, 4096, 4096}, {1000, 1000, 1000}, {64, 128, 784}, {784, 128, 64}} {
		for _, kernel := range []string{"gemm_fp32", "gemm_tf32"} {
			b.Run(fmt.Sprintf("%s/%dx%dx%d", kernel, size[0], size[1], size[2]), func(b *testing.B) {
				m, n, k := size[0], size[1], size[2]
				if testing.Short() {
					m, n, k = min(m, 96), min(n, 96), min(k, 96)
				}
				r := newRig(b)
				args := gemmArgs{
					a: r.array(4 * m * k), b: r.array(4 * k * n), c: r.array(4 * m * n), m: uint64(m), n: uint64(n), k: uint64(k),
					lda: uint64(k), ldb: uint64(n), ldc: uint64(n), inners: 1,
				}
				rate := r.median(2*m*n*k, func() { launch(r.o, "gemm", kernel, [3]int{ceil(n, 64), ceil(m, 64), 1}, 256, &args) })
				r.ReportMetric(rate/1e12, "TFLOP/s")
				r.ReportMetric(0, "ns/op")
				r.o.reset()
			})
		}
	}
}
