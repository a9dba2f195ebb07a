package compress

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// BenchmarkEncode encodes a chunk with feedback, as a worker does. Bytes are those of its float32.
func BenchmarkEncode(b *testing.B) {
	const n = 65536
	x, carry, residual := drawn(0, n, 1), drawn(0, n, 2), make([]float32, n)
	for _, spec := range allSpecs {
		b.Run(spec, func(b *testing.B) {
			c, dst := mustParse(b, spec), []byte(nil)
			b.SetBytes(4 * n)
			b.ReportAllocs()
			for i := range b.N {
				dst = c.encode(device, dst[:0], x, carry, residual, 1024, uint64(i))
			}
		})
	}
}

// BenchmarkEncodeSparse encodes a chunk in rows of 16 values, of which one row in so many is touched.
// Bytes are those of its float32.
func BenchmarkEncodeSparse(b *testing.B) {
	const n, row = 65536, 16
	for _, every := range []int{n, 100, 10, 1} {
		b.Run(fmt.Sprintf("one-in=%d", every), func(b *testing.B) {
			c, dst, x := mustParse(b, "sparse"), []byte(nil), make([]float32, n)
			for lo := 0; lo < n && every < n; lo += row * every {
				copy(x[lo:lo+row], drawn(0, row, uint64(lo)))
			}
			b.SetBytes(4 * n)
			b.ReportAllocs()
			for b.Loop() {
				dst = c.encode(device, dst[:0], x, nil, nil, row, 0)
			}
		})
	}
}

// BenchmarkPack packs a frame. Bytes are those of its payload.
func BenchmarkPack(b *testing.B) {
	for _, spec := range []string{"fp32+s2", "fp32+huff0", "bf16+huff0", "int8+huff0"} {
		for _, kind := range []int{0, 1} {
			c, payload := frame(b, spec, kind)
			packed, s := c.Pack(nil, payload)
			b.Run("pack/"+spec+"/"+kinds[kind].name, func(b *testing.B) {
				b.SetBytes(int64(len(payload)))
				b.ReportAllocs()
				for range b.N {
					packed, _ = c.Pack(packed[:0], payload)
				}
			})
			if s == Plain {
				continue
			}
			packed, s = c.Pack(packed[:0], payload)
			b.Run("unpack/"+spec+"/"+kinds[kind].name, func(b *testing.B) {
				b.SetBytes(int64(len(payload)))
				b.ReportAllocs()
				for range b.N {
					if _, err := Unpack(make([]byte, 0, len(payload)), s, c.Encoding(), packed, len(payload)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkChoose measures the time of choosing a stage, relative to the time in which a worker
// encodes a frame and computes its checksum. The two are timed in turn.
func BenchmarkChoose(b *testing.B) {
	for _, spec := range []string{"bf16", "int8", "topk:0.01"} {
		b.Run(spec, func(b *testing.B) {
			const n = 65536
			c, x, carry, residual := mustParse(b, spec), drawn(0, n, 1), drawn(0, n, 2), make([]float32, n)
			var encoding, choosing []time.Duration
			var payload []byte
			var sums uint32
			for range b.N {
				start := time.Now()
				payload = c.encode(device, payload[:0], x, carry, residual, 64, 1)
				payload = c.encode(device, payload, x, carry, residual, 64, 2)
				sums += kernels.CRC32C(0, payload)
				encoded := time.Now()
				choose(payload, c.Encoding())
				encoding, choosing = append(encoding, encoded.Sub(start)), append(choosing, time.Since(encoded))
			}
			runtime.KeepAlive(sums)
			slices.Sort(encoding)
			slices.Sort(choosing)
			b.ReportMetric(100*float64(choosing[b.N/2])/float64(encoding[b.N/2]), "%")
		})
	}
}
