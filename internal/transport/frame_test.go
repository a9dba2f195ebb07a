package transport

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"testing"

	"google.golang.org/grpc/mem"
	"pgregory.net/rapid"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

func fullHeader(t *testing.T) Header {
	h := full(t, Header{})[0]
	h.Kind, h.Codec, h.Bytes = KindParameters, CodecOf(kernels.Sparse16, 2), MaxPayloadBytes
	h.Chunks.Hi = h.Chunks.Lo + 1
	return h
}

func TestHeadersSurviveTheWire(t *testing.T) {
	want := fullHeader(t)
	b := make([]byte, HeaderBytes)
	want.encode(b)
	if got, err := decodeHeader(b); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

// The bytes of version 1 are recorded here, so that a change of the format is a change of the
// version.
func TestTheHeaderIsWhatTheDocumentSays(t *testing.T) {
	h := Header{Kind: KindPush, Shard: 0x04, Push: kintsugi.PushID{Line: 0x08, Incarnation: 0x10, Version: 0x18, Slot: 0x20, Sequence: 0x24},
		Chunks: kintsugi.ChunkRange{Lo: 0x28, Hi: 0x2c}, Bytes: 0x30, CRC: 0x34}
	got := make([]byte, HeaderBytes)
	h.encode(got)
	want := make([]byte, HeaderBytes)
	for _, offset := range []int{0x04, 0x08, 0x10, 0x18, 0x20, 0x24, 0x28, 0x2c, 0x30, 0x34} {
		want[offset] = byte(offset) // each byte is its own offset
	}
	want[0], want[2] = 1, 1                         // version, kind
	copy(want[60:], []byte{0x3c, 0x06, 0xd3, 0x25}) // computed bit by bit, by another program
	if !bytes.Equal(got, want) {
		t.Errorf("got  % x\nwant % x", got, want)
	}
}

func TestEveryFlippedBitOfAHeaderIsNoticed(t *testing.T) {
	h := fullHeader(t)
	b := make([]byte, HeaderBytes)
	h.encode(b)
	for bit := range 8 * HeaderBytes {
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := decodeHeader(b); !errors.Is(err, kintsugi.ErrCorrupt) {
			t.Errorf("bit %d: got %v, want %v", bit, err, kintsugi.ErrCorrupt)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}

// A header with a right checksum can still be wrong.
func TestHeadersThatMakeNoSenseAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Header)
	}{
		{"kind 0", func(h *Header) { h.Kind = 0 }},
		{"kind 6", func(h *Header) { h.Kind = 6 }},
		{"record with chunks", func(h *Header) { h.Kind = KindRecord }},
		{"int4, which no gradient is sent in", func(h *Header) { h.Codec = CodecOf(kernels.Int4, 0) }},
		{"an encoding that is not known", func(h *Header) { h.Codec = CodecOf(15, 0) }},
		{"a lossless stage that is not known", func(h *Header) { h.Codec = CodecOf(kernels.FP32, 3) }},
		{"bit 6 of the codec", func(h *Header) { h.Codec |= 1 << 6 }},
		{"bit 7 of the codec", func(h *Header) { h.Codec |= 1 << 7 }},
		{"no chunks", func(h *Header) { h.Chunks.Hi = h.Chunks.Lo }},
		{"chunks backwards", func(h *Header) { h.Chunks.Hi = h.Chunks.Lo - 1 }},
		{"too large", func(h *Header) { h.Bytes = MaxPayloadBytes + 1 }},
	} {
		h := fullHeader(t)
		c.change(&h)
		b := make([]byte, HeaderBytes)
		h.encode(b)
		if _, err := decodeHeader(b); !errors.Is(err, kintsugi.ErrCorrupt) {
			t.Errorf("%s: got %v, want %v", c.name, err, kintsugi.ErrCorrupt)
		}
	}
	for offset, want := range map[int]error{0: kintsugi.ErrOtherModel, 3: kintsugi.ErrCorrupt} {
		h := fullHeader(t)
		b := make([]byte, HeaderBytes)
		h.encode(b)
		b[offset] = 0xff
		sealHeader(b)
		if _, err := decodeHeader(b); !errors.Is(err, want) {
			t.Errorf("byte %d is 2: got %v, want %v", offset, err, want)
		}
	}
}

// sealHeader corrects the checksum of a changed header.
func sealHeader(b []byte) {
	crc := Checksum(b[:offsetHeaderCRC])
	for i := range 4 {
		b[offsetHeaderCRC+i] = byte(crc >> (8 * i))
	}
}

// message returns the bytes of a frame, cut as gRPC might cut them: at every offset in cuts.
func message(t testing.TB, f *Frame, cuts ...int) mem.BufferSlice {
	data, err := codec{}.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return cut(data.Materialize(), cuts...)
}

func cut(b []byte, cuts ...int) mem.BufferSlice {
	var data mem.BufferSlice
	at := 0
	for _, c := range append(cuts, len(b)) {
		if c = min(c, len(b)); c > at {
			data = append(data, mem.SliceBuffer(b[at:c]))
			at = c
		}
	}
	return data
}

// land decodes a message as a receiver does.
func land(data mem.BufferSlice) ([]byte, error) {
	f, err := recvFrame(func(m any) error { return codec{}.Unmarshal(data, m) })
	if err != nil {
		return nil, err
	}
	defer f.Release()
	if err := f.find(nil); err != nil {
		return nil, err
	}
	dst := make([]byte, f.Bytes)
	return dst, f.CopyTo(dst)
}

// It does not matter where gRPC cuts a message, even inside the header or inside a value.
func TestFramesLandWhereverTheyAreCut(t *testing.T) {
	payload := filled(4000, 1)
	for _, cuts := range [][]int{nil, {64}, {1}, {63, 65}, {10, 20, 64, 67, 1001}, {64, 65, 66, 67, 68, 4063}} {
		got, err := land(message(t, frameOf(payload), cuts...))
		if err != nil || !bytes.Equal(got, payload) {
			t.Errorf("cut at %v: %v, equal: %v", cuts, err, bytes.Equal(got, payload))
		}
	}
}

func TestAFlippedPayloadBitIsCorrupt(t *testing.T) {
	b := message(t, frameOf(filled(1<<10, 1)), 700).Materialize()
	for bit := 8 * HeaderBytes; bit < 8*len(b); bit++ {
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := land(cut(b, 700)); !errors.Is(err, kintsugi.ErrCorrupt) {
			t.Fatalf("bit %d: got %v, want %v", bit, err, kintsugi.ErrCorrupt)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}

// A frame that is longer or shorter than its header says, or does not fill its chunks, is corrupt.
func TestFramesOfAnotherLengthAreCorrupt(t *testing.T) {
	b := message(t, frameOf(filled(1000, 1))).Materialize()
	for _, n := range []int{0, 1, 63, 64, 65, len(b) - 1} {
		if _, err := land(cut(b[:n])); !errors.Is(err, kintsugi.ErrCorrupt) {
			t.Errorf("%d of %d bytes: got %v, want %v", n, len(b), err, kintsugi.ErrCorrupt)
		}
	}
	if _, err := land(cut(append(b, 0))); !errors.Is(err, kintsugi.ErrCorrupt) {
		t.Errorf("a byte too many: got %v, want %v", err, kintsugi.ErrCorrupt)
	}
	f := frameOf(filled(1000, 1))
	f.data = cut(b)
	for _, n := range []int{0, 999, 1001} {
		if err := f.CopyTo(make([]byte, n)); !errors.Is(err, kintsugi.ErrCorrupt) {
			t.Errorf("into %d bytes: got %v, want %v", n, err, kintsugi.ErrCorrupt)
		}
	}
}

// What a header claims costs nothing: a decoder keeps what arrived and allocates no more.
func TestDecodingAllocatesNothingForClaims(t *testing.T) {
	h := Header{Kind: KindPush, Chunks: kintsugi.ChunkRange{Hi: 1 << 31}, Bytes: MaxPayloadBytes}
	b := make([]byte, HeaderBytes)
	h.encode(b)
	var before, after runtime.MemStats
	const n = 1000
	runtime.ReadMemStats(&before)
	for range n {
		if _, err := land(cut(b)); !errors.Is(err, kintsugi.ErrCorrupt) {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > 2<<10 {
		t.Errorf("a header that claims %d bytes costs %d bytes of memory", h.Bytes, each)
	}
}

// The ranges that travel together cover a shard without gap or overlap, in order, in whole chunks,
// and none is larger than a frame may be, for any model.
func TestFramesCoverTheirShard(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tensors []kintsugi.Tensor
		for i := range rapid.IntRange(1, 6).Draw(t, "tensors") {
			shape := []int{rapid.IntRange(1, 3000).Draw(t, "rows")}
			if rapid.Bool().Draw(t, "matrix") {
				shape = append(shape, rapid.OneOf(rapid.IntRange(1, 50), rapid.IntRange(1, 200_000)).Draw(t, "columns"))
			}
			tensors = append(tensors, kintsugi.Tensor{Name: fmt.Sprint(i), Shape: shape})
		}
		l, err := kintsugi.NewLayout(tensors)
		if err != nil {
			t.Fatal(err)
		}
		for _, shard := range l.Split(rapid.IntRange(1, 9).Draw(t, "shards")) {
			coverIt(t, l, shard, Frames(l, shard), func(n int) int { return 4 * n })
			size := rapid.SampledFrom([]func(n int) int{
				func(n int) int { return n + 4 },       // int8
				func(n int) int { return n/100*6 + 7 }, // one in a hundred
				func(n int) int { return 5*n + 6 },     // every value with its index, which is more than float32
			}).Draw(t, "size")
			coverIt(t, l, shard, FramesOf(l, shard, func(c kintsugi.Chunk) int { return size(c.Len()) }), size)
		}
	})
}

// coverIt checks the frames of a shard where n values take size(n) bytes.
func coverIt(t *rapid.T, l *kintsugi.Layout, shard kintsugi.ChunkRange, frames []kintsugi.ChunkRange, size func(n int) int) {
	next := shard.Lo
	for i, f := range frames {
		bytes, values := 0, 0
		for _, c := range l.Chunks[f.Lo:f.Hi] {
			bytes += size(c.Len())
			values += c.Len()
		}
		switch {
		case f.Lo != next || f.Lo >= f.Hi:
			t.Fatalf("frame [%d, %d) follows chunk %d", f.Lo, f.Hi, next)
		case bytes > MaxPayloadBytes:
			t.Fatalf("frame [%d, %d) has %d bytes", f.Lo, f.Hi, bytes)
		case values > MaxFrameValues:
			t.Fatalf("frame [%d, %d) stands for %d values", f.Lo, f.Hi, values)
		case bytes < FrameBytes && values < targetValues && i < len(frames)-1:
			t.Fatalf("frame [%d, %d) of %d bytes pays for a header of its own", f.Lo, f.Hi, bytes)
		}
		next = f.Hi
	}
	if next != shard.Hi {
		t.Fatalf("frames end at chunk %d, the shard [%d, %d) does not", next, shard.Lo, shard.Hi)
	}
}

// FuzzFrame: no bytes, cut anywhere, make the decoder panic. What it accepts has the length that it
// claims.
func FuzzFrame(f *testing.F) {
	whole := message(f, frameOf(filled(100, 1))).Materialize()
	f.Add(whole, uint16(64), true)
	f.Add(whole[:80], uint16(3), false)
	f.Add([]byte{}, uint16(0), false)
	f.Fuzz(func(t *testing.T, b []byte, at uint16, seal bool) {
		b = bytes.Clone(b)
		if seal && len(b) >= HeaderBytes {
			sealHeader(b) // otherwise no mutation would ever pass the checksum
		}
		payload, err := land(cut(b, int(at)))
		if err == nil && (len(payload) != len(b)-HeaderBytes || !bytes.Equal(payload, b[HeaderBytes:])) {
			t.Fatalf("%d bytes were accepted as a frame of %d", len(b), len(payload))
		}
		if err != nil && !errors.Is(err, kintsugi.ErrCorrupt) && !errors.Is(err, kintsugi.ErrOtherModel) {
			t.Fatalf("got %v, which names no condition", err)
		}
	})
}
