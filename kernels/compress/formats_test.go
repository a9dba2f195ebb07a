package compress

import (
	"bytes"
	"encoding/hex"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// hexBlocks returns the blocks in hexadecimal on the formats page, by the name in each line.
func hexBlocks(t *testing.T, heading string) map[string][]byte {
	t.Helper()
	page, err := os.ReadFile("../../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n"+heading+"\n")
	_, block, _ := strings.Cut(section, "\n```\n")
	block, _, ok := strings.Cut(block, "\n```\n")
	if !ok {
		t.Fatalf("the page has no block under %q", heading)
	}
	samples := make(map[string][]byte)
	for line := range strings.Lines(block) {
		name, digits, _ := strings.Cut(line, " ")
		b, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		samples[name] = b
	}
	return samples
}

// The samples on the page are what the codecs write, and what every later release must read.
func TestTheFormatsPageShowsWhatIsWritten(t *testing.T) {
	samples := hexBlocks(t, "## Payloads")
	x := []float32{1, -2, 0, 0.5}
	const level, wide = float32(2) / 127, float32(2) / 7
	values := map[string][]float32{"int8": {64 * level, -2, 0, 32 * level}, "int4": {3 * wide, -2, 0, 2 * wide}, "sign": {0.875, -0.875, 0.875, 0.875}}
	check := func(name string, e kernels.Encoding, written []byte) {
		if e.String() != name {
			t.Errorf("%s is written as %v", name, e)
		}
		if !bytes.Equal(written, samples[name]) {
			t.Errorf("%s is %x, and on the page %x", name, written, samples[name])
		}
		want := values[name]
		if want == nil {
			want = x
		}
		got := make([]float32, len(x))
		if n, err := kernels.Check(e, len(x), samples[name]); err != nil || n != len(samples[name]) {
			t.Errorf("%s: the sample is checked to have %d bytes: %v", name, n, err)
			return
		}
		if err := kernels.Host.Decode(got, e, samples[name]); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: the sample is decoded to %v, want %v: %v", name, got, want, err)
		}
	}
	for spec, name := range map[string]string{
		"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "int8": "int8", "sign": "sign",
		"topk:1": "sparse16", "topk:1:fp32": "sparse32", "powersgd:1": "lowrank",
	} {
		c := mustParse(t, spec)
		check(name, c.Encoding(), c.Encode(nil, x, nil, 1, 0))
	}
	written := make([]byte, kernels.Int4Bytes(len(x))) // no codec of gradients writes it
	if err := device.EncodeInt4(written, x, nil, nil); err != nil {
		t.Fatal(err)
	}
	check("int4", kernels.Int4, written)
	if len(samples) != 9 {
		t.Errorf("the page has %d samples, want one for each encoding", len(samples))
	}
}

// packedSample returns the payload from which the files of testdata were packed: with an exponent
// that varies, digits that do not compress, and a third of zeros.
func packedSample(t *testing.T, spec string) (Codec, []byte) {
	x := make([]float32, 3000)
	for i := range x[:2000] {
		x[i] = float32(mix(uint64(i))%8192) / 4096
	}
	c := mustParse(t, spec)
	return c, c.Encode(nil, x, nil, 1, 0)
}

// Files of the first release stay readable, whatever a later release or library packs them to.
func TestPackedSamplesStayReadable(t *testing.T) {
	for _, s := range []struct {
		file, spec string
		stage      Stage
	}{
		{"fp32.s2", "fp32+s2", S2}, {"fp32.huff0", "fp32+huff0", Huff0}, {"bf16.huff0", "bf16+huff0", Huff0}, {"int8.huff0", "int8+huff0", Huff0},
	} {
		c, payload := packedSample(t, s.spec)
		packed, err := os.ReadFile("testdata/" + s.file)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Unpack(nil, s.stage, c.Encoding(), packed, len(payload)); err != nil || !bytes.Equal(got, payload) {
			t.Errorf("%s: %d bytes come out, want %d: %v", s.file, len(got), len(payload), err)
		}
	}
}

// The bytes of a packed payload may be damaged. Then there is an error, or other bytes result, but
// never more than allowed.
func TestDamagedBytesDoNoHarm(t *testing.T) {
	for _, spec := range []string{"fp32+s2", "bf16+huff0", "int8+huff0"} {
		c, payload := packedSample(t, spec)
		packed, s := c.Pack(nil, payload)
		for i := 0; i < len(packed); i += 1 + i/64 { // mostly where the tables and lengths are
			damaged := bytes.Clone(packed)
			damaged[i] ^= byte(1 + mix(uint64(i))%255)
			if got, err := Unpack(nil, s, c.Encoding(), damaged, len(payload)); err == nil && len(got) > len(payload) {
				t.Fatalf("%s: with byte %d damaged %d bytes come out, at most %d are allowed", spec, i, len(got), len(payload))
			}
		}
	}
}
