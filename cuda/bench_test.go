//go:build gpu && cgo && linux

package cuda

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// bench is a rig for a benchmark.
type bench struct {
	*testing.B
	*Rig
}

// values returns the number of values of an operation: 1 GiB of float32, many times the size of a
// GPU's cache, and with -short what an emulation can do.
func values() int {
	if testing.Short() {
		return 3 * rigChunk
	}
	return 1 << 28
}

func newBench(b *testing.B) bench {
	r, err := openTest(b).NewRig()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := r.Close(); err != nil {
			b.Error(err)
		}
	})
	return bench{b, r}
}

// measure reports the median rate of an operation, and its ratio to that of a copy.
func (r bench) measure(w Work) {
	r.Helper()
	rate := r.median(w)
	r.ReportMetric(float64(w.Bytes)/rate*1e3, "ms")
	copyRate := r.median(r.Copy(4 * values()))
	r.ReportMetric(rate/1e9, "GB/s")
	r.ReportMetric(rate/copyRate, "of-copy")
	r.ReportMetric(copyRate/1e9, "copy-GB/s")
	r.ReportMetric(0, "ns/op") // the GPU's clock is used instead
}

// warmup is how long an operation is repeated before it is measured. Meanwhile arrays are drawn on
// the host, and a GPU without work for that long has lower clocks for a while.
const warmup = 50 * time.Millisecond

// median returns the median of the bytes moved per second.
func (r bench) median(w Work) float64 {
	warm, runs := warmup, 21
	if testing.Short() {
		warm, runs = 0, 1
	}
	for begin, i := time.Now(), 0; warm > 0 && (i < 3 || time.Since(begin) < warm) && r.Err() == nil; i++ {
		r.Seconds(w, 1)
	}
	var seconds []float64
	for range runs {
		seconds = append(seconds, r.Seconds(w, 1))
	}
	if err := r.Err(); err != nil {
		r.Fatal(err)
	}
	slices.Sort(seconds)
	return float64(w.Bytes) / seconds[len(seconds)/2]
}

// BenchmarkStep makes a step of all chunks of a model at once, with k operands in an encoding, and
// a rule.
func BenchmarkStep(b *testing.B) {
	for _, rule := range []kernels.Rule{kernels.SGD, kernels.Momentum, kernels.Adam} {
		for _, e := range []kernels.Encoding{kernels.FP32, kernels.BF16, kernels.Int8, kernels.Sign} {
			for _, k := range []int{1, 4, 8} {
				if rule != kernels.Adam && k != 4 || e == kernels.Sign && k != 8 {
					continue
				}
				b.Run(fmt.Sprintf("%v/%v/k=%d", rule, e, k), func(b *testing.B) {
					r := newBench(b)
					r.measure(r.Step(rule, e, k, values()/4))
				})
			}
		}
	}
}

// BenchmarkEncode encodes gradients with error feedback. The residual is written over the one
// before.
func BenchmarkEncode(b *testing.B) {
	for _, c := range []struct {
		encoding kernels.Encoding
		random   bool
	}{{kernels.BF16, false}, {kernels.FP16, false}, {kernels.Int8, false}, {kernels.Int8, true}, {kernels.Sign, false}} {
		name := "encode_" + c.encoding.String()
		if c.random {
			name += "_random"
		}
		b.Run(name, func(b *testing.B) {
			r := newBench(b)
			r.measure(r.Encode(c.encoding, c.random, values()))
		})
	}
}

// BenchmarkSelect selects the largest values with error feedback, and of a gradient alone.
func BenchmarkSelect(b *testing.B) {
	for _, share := range []float64{0.001, 0.01, 0.1} {
		for _, feedback := range []bool{true, false} {
			name := map[bool]string{true: "feedback", false: "alone"}[feedback]
			b.Run(fmt.Sprintf("%s/%v", name, share), func(b *testing.B) {
				r := newBench(b)
				r.measure(r.Select(share, feedback, values()))
			})
		}
	}
}

// BenchmarkEncodeLargest encodes chunks with error feedback.
func BenchmarkEncodeLargest(b *testing.B) {
	for _, share := range []float64{0.001, 0.01, 0.1} {
		b.Run(fmt.Sprint(share), func(b *testing.B) {
			r := newBench(b)
			r.measure(r.EncodeLargest(share, values()/4))
		})
	}
}

// BenchmarkEncodeLowRank encodes chunks as factors, with error feedback.
func BenchmarkEncodeLowRank(b *testing.B) {
	for _, rank := range []int{1, 2, 4} {
		b.Run(fmt.Sprint(rank), func(b *testing.B) {
			r := newBench(b)
			r.measure(r.EncodeLowRank(rank, values()/4))
		})
	}
}

// BenchmarkEncodeNamed encodes chunks of which a share is not 0.
func BenchmarkEncodeNamed(b *testing.B) {
	for _, share := range []float64{0.01, 0.1} {
		b.Run(fmt.Sprint(share), func(b *testing.B) {
			r := newBench(b)
			r.measure(r.EncodeNamed(share, values()/4))
		})
	}
}

// BenchmarkNorms measures the distance of every chunk to a saved copy.
func BenchmarkNorms(b *testing.B) {
	r := newBench(b)
	r.measure(r.Distance(values()))
}

// BenchmarkFinite checks every value for NaN and infinities.
func BenchmarkFinite(b *testing.B) {
	r := newBench(b)
	r.measure(r.Finite(values()))
}

// BenchmarkLink copies pinned memory to the GPU and back. It also copies back in pieces as int8
// payloads of gradients are: those of a layer's chunks, which lie beside each other, at a time.
func BenchmarkLink(b *testing.B) {
	for _, chunks := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("chunks=%d", chunks), func(b *testing.B) { link(b, chunks*kernels.Int8Bytes(rigChunk)) })
	}
}

func link(b *testing.B, payload int) {
	r := newBench(b)
	n := values()
	host, err := r.d.c.HostAlloc(n)
	if err != nil {
		b.Fatal(err)
	}
	at := r.array(n)
	out := r.median(Work{Bytes: n, queue: func() { r.o.fail(r.d.c.CopyOut(host, at, r.d.stream)) }})
	payload = min(payload, n)
	pieces := r.median(Work{Bytes: n / payload * payload, queue: func() {
		for lo := 0; lo+payload <= n; lo += payload {
			r.o.fail(r.d.c.CopyOut(host[lo:lo+payload], at+driver.Ptr(lo), r.d.stream))
		}
	}})
	in := r.median(Work{Bytes: n, queue: func() { r.o.fail(r.d.c.CopyIn(at, host, r.d.stream)) }})
	r.ReportMetric(in/1e9, "in-GB/s")
	r.ReportMetric(pieces/1e9, "GB/s")
	r.ReportMetric(out/1e9, "copy-GB/s")
	r.ReportMetric(pieces/out, "of-copy")
	r.ReportMetric(0, "ns/op")
	if err := r.d.c.HostFree(host); err != nil {
		b.Error(err)
	}
}

// BenchmarkLaunch measures the cost of a launch: of many launches of a tiny kernel, without waiting
// in between. host-us is when the host has queued them, and us when the GPU has run them. It counts
// them itself, since it is run with -benchtime 1x.
func BenchmarkLaunch(b *testing.B) {
	r := newBench(b)
	args := finiteArgs{x: r.array(16), n: 4, first: r.array(8)}
	launches, runs := 1000, 21 // a stream takes about that many before the host has to wait
	if testing.Short() {
		launches, runs = 10, 1
	}
	var queued, done []float64
	for run := range 1 + runs {
		start := time.Now()
		for range launches {
			launch(r.o, "finite", "finite", line(1), finiteThreads, &args)
		}
		q := time.Since(start)
		r.o.fail(r.d.c.Synchronize(r.d.stream))
		if run > 0 { // the first run loads the kernel
			queued, done = append(queued, q.Seconds()), append(done, time.Since(start).Seconds())
		}
	}
	if err := r.Err(); err != nil {
		b.Fatal(err)
	}
	slices.Sort(queued)
	slices.Sort(done)
	b.ReportMetric(1e6*queued[runs/2]/float64(launches), "host-us")
	b.ReportMetric(1e6*done[runs/2]/float64(launches), "us")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkProduct multiplies matrices on the GPU, by the kernels and by cuBLAS if there is one.
func BenchmarkProduct(b *testing.B) {
	for _, size := range [][3]int{{4096, 4096, 4096}, {1000, 1000, 1000}, {64, 128, 784}, {784, 128, 64}} {
		m, n, k := size[0], size[1], size[2]
		name := fmt.Sprintf("%dx%dx%d", m, n, k)
		if testing.Short() {
			m, n, k = min(m, 96), min(n, 96), min(k, 96)
		}
		for _, kernel := range slices.Sorted(maps.Keys(productKernels)) {
			side := productKernels[kernel]
			b.Run(kernel+"/"+name, func(b *testing.B) {
				r := newBench(b)
				args := gemmArgs{
					a: r.array(4 * m * k), b: r.array(4 * k * n), c: r.array(4 * m * n), m: uint64(m), n: uint64(n), k: uint64(k),
					lda: uint64(k), ldb: uint64(n), ldc: uint64(n), inners: 1,
				}
				r.product(m, n, k, func() { launch(r.o, "gemm", kernel, [3]int{ceil(n, side), ceil(m, side), 1}, 256, &args) })
			})
		}
		for _, precision := range []Precision{FP32, TF32, BF16} {
			b.Run(fmt.Sprintf("cublas_%s/%s", strings.ToLower(precision.String()), name), func(b *testing.B) { benchLibrary(b, m, n, k, precision) })
		}
	}
}

// product reports the rate of products.
func (r bench) product(m, n, k int, queue func()) {
	rate := r.median(Work{Bytes: 2 * m * n * k, queue: queue})
	r.ReportMetric(2*float64(m)*float64(n)*float64(k)/rate*1e3, "ms")
	r.ReportMetric(rate/1e12, "TFLOP/s")
	r.ReportMetric(0, "ns/op")
}

func benchLibrary(b *testing.B, m, n, k int, precision Precision) {
	r := newBench(b)
	library, err := r.d.c.BLAS(emulate.Library(b))
	if err != nil {
		b.Skipf("it measures cuBLAS, which is not here: put the folder of one on LD_LIBRARY_PATH: %v", err)
	}
	defer library.Close()
	if err := library.Configure(r.d.stream, r.o.room(blasWorkspace), blasWorkspace, precision); err != nil {
		b.Fatal(err)
	}
	p := Product{A: r.array(4 * m * k), B: r.array(4 * k * n), C: r.array(4 * m * n), M: m, N: n, K: k, LDA: k, LDB: n, LDC: n, Batch: 1}
	r.product(m, n, k, func() { r.o.fail(library.Multiply(&p)) })
}
