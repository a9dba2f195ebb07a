package ckpt

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Of all headers that could be written, those are read that say something that is possible.
func TestOnlyPossibleRecordHeadersAreRead(t *testing.T) {
	le := binary.LittleEndian
	states := map[kintsugi.Rule]int{
		kintsugi.RuleSGD: 0, kintsugi.RuleMomentum: 1, kintsugi.RuleNesterov: 1, kintsugi.RuleAdam: 2, kintsugi.RuleAdamW: 2,
		kintsugi.RuleAdd: 0, kintsugi.RuleAssign: 0, kintsugi.RuleAdagrad: 1, kintsugi.RuleLazyAdam: 2,
	}
	coded := map[kernels.Encoding]bool{kernels.Int8: true, kernels.Int4: true, kernels.Sign: true, kernels.BF16: true}
	kinds := []byte{0, kindChunk, kindIncrement, 9}
	lengths := []int{0, 1, 7, kintsugi.MaxChunkValues, kintsugi.MaxChunkValues + 1}
	accepted := 0
	for i := range len(kinds) * 12 * len(lengths) * 4 * 16 * 3 {
		pick := func(n int) (at int) { at, i = i%n, i/n; return at }
		kind, codec, coasts := kinds[pick(len(kinds))], byte(pick(12)), byte(pick(3))
		h := recordHeader{
			Chunk: 3, Values: lengths[pick(len(lengths))], Line: 4, Step: 5, Optimizer: 6, Arrays: pick(4), Rule: kintsugi.Rule(pick(16)),
			Offset: 7 * align, PayloadCRC: 8, Increment: kind == kindIncrement, Encoding: kernels.Encoding(codec), Coasts: coasts == 1,
		}
		var b [headerBytes]byte
		h.put(b[:])
		b[6], b[7], b[42] = kind, codec, coasts
		le.PutUint32(b[60:], checksum(b[:60]))
		n, known := states[h.Rule]
		possible := h.Values >= 1 && h.Values <= kintsugi.MaxChunkValues && known && h.Arrays == n
		switch kind {
		case kindChunk:
			possible = possible && codec == codecRaw && coasts == 0
		case kindIncrement:
			possible = possible && coded[h.Encoding] && coasts < 2
		default:
			possible = false
		}
		got, err := parseRecordHeader(b[:])
		if (err == nil) != possible || possible && got != h {
			t.Fatalf("%+v, kind %d, codec %d, byte %d: %+v, %v", h, kind, codec, coasts, got, err)
		}
		if possible {
			accepted++
		}
	}
	if accepted != 3*len(states)*(1+2*len(coded)) {
		t.Errorf("%d headers are possible", accepted)
	}
	for n := range headerBytes {
		if h, err := parseRecordHeader(make([]byte, n)); err == nil {
			t.Errorf("%d bytes are %+v", n, h)
		}
	}
}

// A segment's header is read as it is written, and no byte of it can say something else.
func TestASegmentHeaderHasOneEncoding(t *testing.T) {
	want := segmentHeader{
		Name: fileName{Line: 1, Step: 2, Fence: 3, Shard: 4, Attempt: 5}, Fingerprint: 6, Range: kintsugi.ChunkRange{Lo: 7, Hi: 8},
	}
	b := want.append(nil)
	if h, err := parseSegmentHeader(b); err != nil || h != want {
		t.Errorf("%+v, %v", h, err)
	}
	for i := range headerBytes - 4 {
		changed := slices.Clone(b)
		changed[i] ^= 0x10
		binary.LittleEndian.PutUint32(changed[60:], checksum(changed[:60]))
		if h, err := parseSegmentHeader(changed); err == nil && (h == want || !slices.Equal(h.append(nil), changed)) {
			t.Errorf("byte %d is not read: %+v", i, h)
		}
	}
}

// The planner is told what a chunk costs that is saved whole once and by increments until its chain
// is full.
func TestTheMeanBytesOfAChain(t *testing.T) {
	c := Increments{Encoding: kernels.Int8}
	for arrays := range 3 {
		part := recordHeader{Values: 1000, Arrays: arrays, Increment: true, Encoding: kernels.Int8}.payload()
		whole := recordHeader{Values: 1000, Arrays: arrays}.payload()
		if got, want := c.Bytes(1000, arrays), int64(whole+(maxChain-1)*part)/maxChain; got != want && got != want+1 {
			t.Errorf("%d bytes with %d arrays, want %d", got, arrays, want)
		}
	}
	if got, want := c.Bytes(1, 0), int64(recordHeader{Values: 1, Increment: true, Encoding: kernels.Int8}.payload()); got != want {
		t.Errorf("%d bytes for one value, want %d", got, want)
	}
}

func TestNoMoreIsReadThanAFileMayHave(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll(inDir("d")); err != nil {
		t.Fatal(err)
	}
	leave(t, mem, "d/f")
	if b, err := readAll(mem, testDir, "d/f", 10); err != nil || string(b) != "half of it" {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := readAll(mem, testDir, "d/f", 9); !errors.Is(err, kintsugi.ErrCorrupt) {
		t.Errorf("of a file that is too long: %q, %v", b, err)
	}
	if b, err := readAll(mem, testDir, "d", 10); !errors.Is(err, kintsugi.ErrCorrupt) {
		t.Errorf("of a directory: %q, %v", b, err)
	}
}

// An increment goes forward, and coasts only if its header says so.
func TestIncrementsThatGoNowhereAreRefused(t *testing.T) {
	for _, c := range []struct {
		base    kintsugi.Step
		coasts  bool
		coasted uint32
		share   float32
		ok      bool
	}{
		{4, false, 0, 0, true},
		{5, false, 0, 0, false},
		{6, false, 0, 0, false},
		{4, true, 3, 0.5, true},
		{4, true, 0, 0, true},
		{4, false, 3, 0, false},
		{4, false, 0, 0.5, false},
		{4, false, 0, float32(math.Copysign(0, -1)), false},
	} {
		h := recordHeader{Values: 3, Step: 5, Rule: kintsugi.RuleSGD, Increment: true, Encoding: kernels.BF16, Coasts: c.coasts}
		b := make([]byte, h.bytes())
		increment{Base: c.base, Coasted: c.coasted, Share: c.share}.put(b[headerBytes:])
		if inc, err := parseIncrement(b, h); (err == nil) != c.ok {
			t.Errorf("%+v: %+v, %v", c, inc, err)
		}
	}
}
