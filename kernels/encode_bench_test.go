package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// The benchmarks measure the encoders. Bytes are those of the gradient alone, so that codecs can be
// compared: a residual reads and writes as many again. Sizes are a chunk that stays in the cache,
// and a model of 2²² values in chunks.

func benchmarkEncode(b *testing.B, size func(n int) int, encode func(d kernels.Device, dst []byte, x, carry, residual []float32)) {
	for _, n := range []int{chunkValues, modelValues} {
		x := values(rand.New(rand.NewPCG(1, 2)), n, false)
		dst, residual := make([]byte, size(chunkValues)), make([]float32, n)
		for _, feedback := range []bool{false, true} {
			for _, d := range kernels.Devices() {
				b.Run(fmt.Sprintf("values=%d/feedback=%v/device=%s", n, feedback, d.Name()), func(b *testing.B) {
					b.SetBytes(4 * int64(n))
					for b.Loop() {
						for lo := 0; lo < n; lo += chunkValues {
							var r []float32
							if feedback {
								r = residual[lo:][:chunkValues]
							}
							encode(d, dst, x[lo:][:chunkValues], r, r)
						}
					}
				})
			}
		}
	}
}

func BenchmarkEncodeBF16(b *testing.B) {
	benchmarkEncode(b, func(n int) int { return 2 * n }, func(d kernels.Device, dst []byte, x, carry, residual []float32) {
		d.EncodeBF16(dst, x, carry, residual)
	})
}

func BenchmarkEncodeFP16(b *testing.B) {
	benchmarkEncode(b, func(n int) int { return 2 * n }, func(d kernels.Device, dst []byte, x, carry, residual []float32) {
		d.EncodeFP16(dst, x, carry, residual)
	})
}

func BenchmarkEncodeInt8(b *testing.B) {
	benchmarkEncode(b, kernels.Int8Bytes, func(d kernels.Device, dst []byte, x, carry, residual []float32) {
		d.EncodeInt8(dst, x, carry, residual)
	})
}

func BenchmarkEncodeInt8Stochastic(b *testing.B) {
	benchmarkEncode(b, kernels.Int8Bytes, func(d kernels.Device, dst []byte, x, carry, residual []float32) {
		d.EncodeInt8Stochastic(dst, x, carry, residual, 1)
	})
}

func BenchmarkEncodeInt4(b *testing.B) {
	benchmarkEncode(b, kernels.Int4Bytes, func(d kernels.Device, dst []byte, x, carry, residual []float32) {
		d.EncodeInt4(dst, x, carry, residual)
	})
}

func BenchmarkEncodeSign(b *testing.B) {
	benchmarkEncode(b, kernels.SignBytes, func(d kernels.Device, dst []byte, x, carry, residual []float32) {
		d.EncodeSign(dst, x, carry, residual)
	})
}

func BenchmarkSelect(b *testing.B) {
	for _, share := range []int{1000, 100, 10} {
		k := (chunkValues + share - 1) / share
		index, value := make([]int32, k), make([]float32, k)
		b.Run(fmt.Sprintf("one in=%d", share), func(b *testing.B) {
			benchmarkEncode(b, func(int) int { return 0 }, func(d kernels.Device, _ []byte, x, carry, residual []float32) {
				d.Select(index, value, x, carry, residual)
			})
		})
	}
}
