package compress

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// frame returns the payload of chunks of one kind, as a frame has them.
func frame(t testing.TB, spec string, kind int) (Codec, []byte) {
	t.Helper()
	c := mustParse(t, spec)
	var payload []byte
	for i, n := range []int{65536, 65536, 1000, 120, 1} {
		payload = c.Encode(payload, drawn(kind, n, uint64(i)), nil, 8, 1)
	}
	return c, payload
}

func TestWhatIsPackedIsUnpacked(t *testing.T) {
	race.Skip(t)
	for _, spec := range allSpecs {
		for kind := range 2 {
			for _, stage := range []string{"+s2", "+huff0", "+auto"} {
				c, payload := frame(t, spec+stage, kind)
				for _, n := range []int{len(payload), 4000, 40, 8, 4, 0} {
					if n > len(payload) || n%width(c.Encoding()) != 0 {
						continue
					}
					packed, s := c.Pack([]byte{9}, payload[:n])
					if packed[0] != 9 {
						t.Fatalf("%s of %d bytes has changed what was there", c.Name(), n)
					}
					packed = packed[1:]
					if s == Plain {
						if len(packed) != 0 {
							t.Fatalf("%s of %d bytes packs nothing, and appends %d", c.Name(), n, len(packed))
						}
						continue
					}
					if len(packed) >= n {
						t.Errorf("%s packs %d bytes into %d", c.Name(), n, len(packed))
					}
					got, err := Unpack([]byte{7}, s, c.Encoding(), packed, n)
					if err != nil || !bytes.Equal(got, append([]byte{7}, payload[:n]...)) {
						t.Errorf("%s of %d bytes comes back as %d others: %v", c.Name(), n, len(got), err)
					}
					if _, err := Unpack(nil, s, c.Encoding(), packed, n-1); !errors.Is(err, kintsugi.ErrCorrupt) {
						t.Errorf("%s: %d bytes are unpacked where %d are allowed: %v", c.Name(), n, n-1, err)
					}
				}
			}
		}
	}
}

// The cases say what packing saves, relative to the payload, and what auto chooses.
func TestPackedSizes(t *testing.T) {
	const normal, layered, either = 0, 1, Stage(255) // either: both are close
	for _, c := range []struct {
		spec     string
		kind     int
		s2, huff float64 // size after packing over size before; 1: not packed
		auto     Stage
	}{
		{"fp32", normal, 1, 0.84, Huff0},
		{"fp32", layered, 0.70, 0.88, S2},
		{"bf16", normal, 1, 0.67, Huff0},
		{"bf16", layered, 0.71, 0.76, S2},
		{"fp16", normal, 1, 0.86, Huff0},
		{"int8", normal, 1, 0.94, Plain},
		{"int8", layered, 0.73, 0.77, S2},
		{"sign", normal, 1, 1, Plain},
		{"topk:0.01", normal, 1, 0.77, Huff0},
		{"powersgd:2", normal, 1, 0.93, either},
	} {
		size := func(stage string) float64 {
			codec, payload := frame(t, c.spec+stage, c.kind)
			packed, s := codec.Pack(nil, payload)
			if s == Plain {
				return 1
			}
			return float64(len(packed)) / float64(len(payload))
		}
		if s2, huff := size("+s2"), size("+huff0"); s2 > c.s2+0.03 || s2 < c.s2-0.03 || huff > c.huff+0.03 || huff < c.huff-0.03 {
			t.Errorf("%s, %s: s2 leaves %.3f and huff0 %.3f, want %.2f and %.2f", c.spec, kinds[c.kind].name, s2, huff, c.s2, c.huff)
		}
		codec, payload := frame(t, c.spec+"+auto", c.kind)
		if _, s := codec.Pack(nil, payload); c.auto != either && s != c.auto {
			t.Errorf("%s, %s: auto chooses %v, want %v", c.spec, kinds[c.kind].name, s, c.auto)
		}
	}
}

func TestUnpackRefusesWhatIsNotPacked(t *testing.T) {
	c, payload := frame(t, "bf16+huff0", 0)
	packed, _ := c.Pack(nil, payload)
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0x07}
	for name, b := range map[string]struct {
		stage  Stage
		packed []byte
	}{
		"a stage from the future":     {3, payload},
		"nothing, as s2":              {S2, nil},
		"nothing, as huff0":           {Huff0, nil},
		"a huge length, as s2":        {S2, huge},
		"a huge length, as huff0":     {Huff0, huge},
		"half a value":                {Huff0, []byte{1, 0}},
		"the stored part alone":       {Huff0, packed[:len(payload)/2+3]},
		"all but the last byte":       {Huff0, packed[:len(packed)-1]},
		"one byte more":               {Huff0, append(bytes.Clone(packed), 0)},
		"a block of an unknown kind":  {Huff0, []byte{2, 0, 1<<2 | 3, 5}},
		"a raw block that is longer":  {Huff0, []byte{2, 0, 2<<2 | blockRaw, 5, 6}},
		"a code without a table":      {Huff0, []byte{2, 0, 1<<2 | blockHuff, 5}},
		"plain bytes that are longer": {Plain, make([]byte, len(payload)+1)},
	} {
		if got, err := Unpack(nil, b.stage, c.Encoding(), b.packed, len(payload)); !errors.Is(err, kintsugi.ErrCorrupt) {
			t.Errorf("%s is unpacked to %d bytes: %v", name, len(got), err)
		}
	}
}

// A packed payload that ends too early is refused, wherever it ends.
func TestUnpackRefusesWhatEndsTooEarly(t *testing.T) {
	for spec, want := range map[string]Stage{"int8+huff0": Huff0, "bf16+huff0": Huff0, "fp32+huff0": Huff0, "fp32+s2": S2} {
		c, payload := frame(t, spec, 0)
		payload = payload[:4000]
		if want == S2 { // it finds repetitions only
			for i := range payload {
				payload[i] = payload[i%100]
			}
		}
		packed, stage := c.Pack(nil, payload)
		if stage != want {
			t.Fatalf("%s is packed by %v", spec, stage)
		}
		for n := range packed {
			if got, err := Unpack(nil, stage, c.Encoding(), packed[:n:n], len(payload)); !errors.Is(err, kintsugi.ErrCorrupt) {
				t.Fatalf("%s: the first %d of %d bytes are unpacked to %d: %v", spec, n, len(packed), len(got), err)
			}
		}
		if got, err := Unpack(nil, stage, c.Encoding(), packed, len(payload)); err != nil || !bytes.Equal(got, payload) {
			t.Errorf("%s: all %d bytes: %v", spec, len(packed), err)
		}
	}
}

// A length that bytes merely claim takes no memory: two gigabytes here, while four bytes are
// allowed. The memory that is used is for the error, and for tables of the decoder.
func TestUnpackTakesNoMemoryForALengthThatIsOnlyClaimed(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0x07, 1, 2, 3}
	for _, s := range []Stage{Plain, S2, Huff0} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Unpack(nil, s, kernels.FP32, huge, 4); !errors.Is(err, kintsugi.ErrCorrupt) {
			t.Errorf("%v: %v", s, err)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("%v: an error takes %d bytes", s, took)
		}
	}
}

// Bytes that are not packed are an error, and no more than limit bytes are returned.
func FuzzUnpack(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, spec := range []string{"fp32+s2", "fp32+huff0", "bf16+huff0", "int8+huff0"} {
		c := mustParse(f, spec)
		x := make([]float32, 400)
		for i := range x[:300] {
			x[i] = float32(rng.NormFloat64())
		}
		packed, s := c.Pack(nil, c.Encode(nil, x, nil, 1, 0))
		f.Add(uint8(s), uint8(c.Encoding()), packed, uint16(1600))
	}
	f.Add(uint8(Huff0), uint8(kernels.BF16), []byte{2, 0, 2, 5}, uint16(2))
	f.Fuzz(func(t *testing.T, stage, encoding uint8, packed []byte, limit uint16) {
		s, e := Stage(stage%4), kernels.Encoding(encoding%8)
		got, err := Unpack(nil, s, e, packed, int(limit))
		switch {
		case err == nil && len(got) > int(limit):
			t.Fatalf("%d bytes came out, at most %d are allowed", len(got), limit)
		case err != nil && !errors.Is(err, kintsugi.ErrCorrupt):
			t.Fatal(err)
		}
		again, err2 := Unpack(make([]byte, 3, 3+int(limit)), s, e, packed, int(limit))
		if (err == nil) != (err2 == nil) || err == nil && !bytes.Equal(again[3:], got) {
			t.Fatalf("unpacked to other bytes in other memory: %v, %v", err, err2)
		}
	})
}

// A payload of any bytes is unpacked to what it was.
func FuzzPack(f *testing.F) {
	f.Add(uint8(1), []byte("a payload that is a payload that is a payload"))
	f.Add(uint8(0), make([]byte, 64))
	f.Fuzz(func(t *testing.T, encoding uint8, payload []byte) {
		e := kernels.Encoding(encoding % 8)
		payload = payload[:len(payload)/4*4]
		for _, p := range []policy{alwaysS2, alwaysHuff0, sampled} {
			packed, s := p.apply(nil, payload, e)
			if s == Plain {
				continue
			}
			if got, err := Unpack(nil, s, e, packed, len(payload)); err != nil || !bytes.Equal(got, payload) {
				t.Fatalf("%v: %d bytes came back as %d: %v", s, len(payload), len(got), err)
			}
		}
	})
}
