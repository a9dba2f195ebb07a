package compress

import "testing"

// One chunk, with feedback as a worker does it; bytes are those of its float32.
func BenchmarkEncode(b *testing.B) {
	const n = 65536
	x, carry, residual := drawn(0, n, 1), drawn(0, n, 2), make([]float32, n)
	for _, spec := range allSpecs {
		b.Run(spec, func(b *testing.B) {
			c, dst := mustParse(b, spec), []byte(nil)
			b.SetBytes(4 * n)
			b.ReportAllocs()
			for i := range b.N {
				dst = c.encode(dst[:0], x, carry, residual, 1024, uint64(i))
			}
		})
	}
}

// A frame; bytes are those of its payload.
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

// What deciding takes, of one frame: compare with the encoding of its two chunks.
func BenchmarkChoose(b *testing.B) {
	for _, spec := range []string{"fp32", "bf16", "int8"} {
		c, payload := frame(b, spec, 0)
		b.Run(spec, func(b *testing.B) {
			for range b.N {
				choose(payload, c.Encoding())
			}
		})
	}
}
