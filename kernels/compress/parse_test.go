package compress

import (
	"errors"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		spec, name string
		encoding   kernels.Encoding
		feedback   bool
	}{
		{"fp32", "fp32", kernels.FP32, false},
		{"bf16", "bf16", kernels.BF16, true},
		{"fp16+huff0", "fp16+huff0", kernels.FP16, true},
		{"int8-nofeedback", "int8-nofeedback", kernels.Int8, false},
		{"int8:stochastic+auto", "int8:stochastic+auto", kernels.Int8, true},
		{"sign-nofeedback+s2", "sign-nofeedback+s2", kernels.Sign, false},
		{"topk:1e-2", "topk:0.01", kernels.Sparse16, true},
		{"topk:.5:fp32", "topk:0.5:fp32", kernels.Sparse32, true},
		{"topk:1e-7", "topk:1e-07", kernels.Sparse16, true},
		{"powersgd:04", "powersgd:4", kernels.LowRank, true},
		{"fp32+auto", "fp32+auto", kernels.FP32, false},
	} {
		got, err := Parse(c.spec)
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		if got.Name() != c.name || got.Encoding() != c.encoding || got.Feedback() != c.feedback {
			t.Errorf("%s is %s, %v, feedback %v; want %s, %v, %v", c.spec, got.Name(), got.Encoding(), got.Feedback(), c.name, c.encoding, c.feedback)
		}
	}
}

func TestWrongSpecsAreRefusedWithTheReason(t *testing.T) {
	for spec, reason := range map[string]string{
		"":                   "no such codec",
		"int4":               "no such codec",
		"INT8":               "no such codec",
		"int8:nearest":       `int8 takes no "nearest"`,
		"fp32-nofeedback":    "no feedback to turn off",
		"int8+":              "the lossless stage is",
		"int8+zstd":          "the lossless stage is",
		"int8+s2+s2":         "the lossless stage is",
		"int8+s2-nofeedback": "the lossless stage is",
		"topk":               "the density",
		"topk:0":             "the density",
		"topk:-1":            "the density",
		"topk:1.01":          "the density",
		"topk:NaN":           "the density",
		"topk:0.1:fp16":      "the values are sent as bf16, or as fp32",
		"topk:0.1:":          "the values are sent as bf16, or as fp32",
		"powersgd":           "the rank",
		"powersgd:0":         "the rank",
		"powersgd:65":        "the rank",
		"powersgd:2:2":       "the rank",
	} {
		_, err := Parse(spec)
		if !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%q: %v", spec, err)
			continue
		}
		for _, want := range append(Specs(), reason, "-nofeedback", "+auto") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: the error does not say %q: %v", spec, want, err)
			}
		}
	}
}

// A spec is an error, or a codec whose name is a spec of itself, and whose payloads decode.
func FuzzParse(f *testing.F) {
	for _, s := range append(allSpecs, "int8-nofeedback+s2", "topk:1e-300", "topk:0x1p-3", "powersgd:64+auto", "+", ":", "-nofeedback") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		c, err := Parse(spec)
		if err != nil {
			if !errors.Is(err, kintsugi.ErrUsage) {
				t.Fatal(err)
			}
			return
		}
		again, err := Parse(c.Name())
		if err != nil || again.Name() != c.Name() {
			t.Fatalf("%q is %q, and that is %v, %v", spec, c.Name(), again, err)
		}
		payload := c.Encode(nil, []float32{1, 0, -2, 3, 5, 8}, nil, 3, 0)
		if n, err := kernels.Check(c.Encoding(), 6, payload); err != nil || n != len(payload) || n > c.MaxBytes(6, 3) {
			t.Fatalf("%q encodes six values to %x: %d, %v", spec, payload, n, err)
		}
	})
}
