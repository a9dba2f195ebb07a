package machine

import (
	"io"
	"math"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// The bytes that an operation moves follow from its arguments. A bound computed from other bytes
// would mean nothing.
func TestCodecsMoveTheBytesThatTheyShould(t *testing.T) {
	want := map[[3]string]float64{ // bytes per value
		{"fp32", "encode", "alone"}: 8, {"fp32", "decode", "alone"}: 8, {"fp32", "check", "alone"}: 4,
		{"bf16", "encode", "alone"}: 6, {"bf16", "encode", "feedback"}: 14, {"bf16", "decode", "alone"}: 6, {"bf16", "check", "alone"}: 2,
		{"int8", "encode", "feedback"}: 13 + 4./256, {"sign", "encode", "feedback"}: 12 + 1./8 + 4./256, {"sign", "check", "alone"}: 1./8 + 4./256,
		{"topk:0.5:fp32", "select", "alone"}: 4, {"topk:0.5:fp32", "select", "feedback"}: 12,
		{"bytes", "crc32c", "folded"}: 4, {"bytes", "copy and crc32c", "folded"}: 8,
	}
	var codecs []compress.Codec
	for _, spec := range []string{"fp32", "bf16", "int8", "sign", "topk:0.5:fp32", "powersgd:1"} {
		c, err := compress.Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		codecs = append(codecs, c)
	}
	rows, err := CodecSpeed(t.Context(), KernelsConfig{Device: kernels.Best(), Sizes: []int{1 << 20}, Threads: []int{1, 2}, Pairs: 1, Progress: io.Discard}, codecs)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, r := range rows {
		moved, ok := want[[3]string{r.DType, r.Name, r.Variant}]
		if ok {
			seen++
			if got := float64(r.Bytes) / float64(r.Elements); math.Abs(got-moved) > 1e-9 {
				t.Errorf("%s of %s, %s, moves %v bytes a value, want %v", r.Name, r.DType, r.Variant, got, moved)
			}
		}
		if r.Seconds <= 0 || r.Fraction <= 0 || r.GradientGBPerS <= 0 {
			t.Errorf("%s of %s, %s, is not measured: %+v", r.Name, r.DType, r.Variant, r)
		}
	}
	if seen != 2*len(want) {
		t.Errorf("%d of %d operations are there", seen, 2*len(want))
	}
}
