package transport

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/grpc/mem"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// Sizes of a frame.
const (
	HeaderBytes     = 64
	MaxPayloadBytes = 1 << 20   // of chunks; a record has more where Sizes says so
	FrameBytes      = 256 << 10 // a frame is closed at the first chunk that reaches it: what is summed, copied and scanned one after the other stays in the cache
	targetValues    = 1 << 20   // or this, where few bytes stand for many values
	formatVersion   = 1
	offsetHeaderCRC = 60
	PlaceBytes      = 4 // unit of Header.Place: a float32

	// MaxFrameValues is how many values a frame stands for at most: few bytes may unpack to
	// whatever its chunks have room for.
	MaxFrameValues = targetValues - 1 + kintsugi.MaxChunkValues
)

// Kind says what a frame's payload is.
type Kind uint8

// The kinds.
const (
	KindPush       Kind = 1 // chunks of a gradient
	KindParameters Kind = 2 // chunks of a version of the parameters
	KindRecord     Kind = 3 // a kintsugi.ChainMessage; no chunks
	KindUpdate     Kind = 4 // chunks of the scaled sum of a step
	KindVersion    Kind = 6 // no chunks: what a reader asked for has changed in this version was sent
	KindState      Kind = 5 // chunks of an array of a snapshot: the parameters, then the arrays of optimizer state
	KindMemory     Kind = 7 // no chunks: the name of memory of the sender, in which payloads of frames with the same Sequence lie

	lastKind = KindMemory
)

// hasChunks reports whether the frame has chunks.
func (k Kind) hasChunks() bool { return k != KindRecord && k != KindVersion && k != KindMemory }

// Codec says how a payload is encoded: each chunk by a kernels.Encoding, and what that gives by a lossless
// stage, or none. The stages are those of package compress.
type Codec uint8

const (
	encodingBits = 4
	stageBits    = 2
)

// The bounds of what a codec may name. Encodings behind the last one are those of checkpoints.
const (
	lastEncoding = kernels.LowRank
	lastStage    = compress.Huff0
)

// CodecOf returns the codec of an encoding and a lossless stage.
func CodecOf(e kernels.Encoding, stage compress.Stage) Codec {
	return Codec(e) | Codec(stage)<<encodingBits
}

// Encoding returns how each chunk is encoded.
func (c Codec) Encoding() kernels.Encoding { return kernels.Encoding(c & (1<<encodingBits - 1)) }

// Stage returns the lossless stage.
func (c Codec) Stage() compress.Stage { return compress.Stage(c >> encodingBits) }

// known reports whether this program can read the codec.
func (c Codec) known() bool { return c.Encoding() <= lastEncoding && c.Stage() <= lastStage }

// Checksum returns the CRC32C of b.
func Checksum(b []byte) uint32 { return kernels.CRC32C(0, b) }

// Header describes the payload of a frame.
type Header struct {
	Kind   Kind
	Codec  Codec
	Shard  kintsugi.ShardID
	Push   kintsugi.PushID     // of a push; else only Line and Version are set, and Sequence, the array of a snapshot or the borrowed memory of Place, from 0
	Chunks kintsugi.ChunkRange // whole chunks, by their number in the model
	Bytes  uint32              // of the payload
	CRC    uint32              // CRC32C of the payload
	Place  uint32              // of the payload in the memory that both sides of the stream have, in PlaceBytes; 0: it follows the header
}

// Frame is one message of the data plane.
type Frame struct {
	Header

	// Payload is what a sender hands over. It must not change until Done, which is called at most once,
	// from any goroutine: once the bytes have been written, or are given up. A client's first 256 KiB on
	// a stream are kept, to be sent again elsewhere, until the server answers or more is sent. After
	// Send has failed, or the connection was lost, Done may never come, and the memory is gRPC's for
	// good: leave it to the garbage collector.
	Payload []byte
	Done    func()

	data   mem.BufferSlice // what a receiver got: header, and payload if it was sent
	shared []byte          // the payload where it was not: shared memory
	memory *shm.Segment    // which stays mapped as long as the frame is in use
	err    error           // why it is no frame
}

// Shared returns the payload of a received frame where it lies, if that is memory that both sides
// have: not checked, and the sender's to change until it is told what became of what the frame is
// part of. Otherwise nil.
func (f *Frame) Shared() []byte { return f.shared }

// Release gives a received frame's memory back. The frame must not be used afterwards.
func (f *Frame) Release() {
	f.data.Free()
	f.data = nil
}

// CopyTo copies the payload of a received frame into dst, the bytes of its chunks, and checks it. Another
// length and a wrong checksum are errors that wrap kintsugi.ErrCorrupt; dst then holds garbage.
func (f *Frame) CopyTo(dst []byte) error {
	if len(dst) != int(f.Bytes) {
		return fmt.Errorf("%w: frame of chunks [%d, %d) has %d bytes, want %d", kintsugi.ErrCorrupt, f.Chunks.Lo, f.Chunks.Hi, f.Bytes, len(dst))
	}
	at, crc := 0, uint32(0)
	if f.shared != nil {
		crc = kernels.CopyCRC32C(0, dst, f.shared)
	}
	f.pieces(func(p []byte) {
		crc = kernels.CopyCRC32C(crc, dst[at:at+len(p)], p) // it fits: Unmarshal has compared the lengths
		at += len(p)
	})
	return f.compare(crc)
}

// Check checks the payload of a received frame where it lies.
func (f *Frame) Check() error {
	crc := Checksum(f.shared)
	f.pieces(func(p []byte) { crc = kernels.CRC32C(crc, p) })
	return f.compare(crc)
}

// pieces calls g for the pieces in which the payload has travelled, if it has.
func (f *Frame) pieces(g func([]byte)) {
	skip := HeaderBytes
	for _, b := range f.data {
		p := b.ReadOnlyData()
		if skip >= len(p) {
			skip -= len(p)
			continue
		}
		g(p[skip:])
		skip = 0
	}
}

func (f *Frame) compare(crc uint32) error {
	if crc != f.CRC {
		return fmt.Errorf("%w: frame of shard %d, chunks [%d, %d): CRC32C %08x, header says %08x",
			kintsugi.ErrCorrupt, f.Shard, f.Chunks.Lo, f.Chunks.Hi, crc, f.CRC)
	}
	return nil
}

// encode writes the header of f in its 64 bytes.
func (h *Header) encode(b []byte) {
	le := binary.LittleEndian
	le.PutUint16(b[0:], formatVersion)
	b[2], b[3] = byte(h.Kind), byte(h.Codec)
	le.PutUint32(b[4:], uint32(h.Shard))
	le.PutUint64(b[8:], uint64(h.Push.Line))
	le.PutUint64(b[16:], uint64(h.Push.Incarnation))
	le.PutUint64(b[24:], uint64(h.Push.Version))
	le.PutUint32(b[32:], uint32(h.Push.Slot))
	le.PutUint32(b[36:], h.Push.Sequence)
	le.PutUint32(b[40:], uint32(h.Chunks.Lo))
	le.PutUint32(b[44:], uint32(h.Chunks.Hi))
	le.PutUint32(b[48:], h.Bytes)
	le.PutUint32(b[52:], h.CRC)
	le.PutUint32(b[56:], h.Place)
	le.PutUint32(b[offsetHeaderCRC:], Checksum(b[:offsetHeaderCRC]))
}

// decodeHeader reads and checks a header. Every error wraps kintsugi.ErrCorrupt, but for another format version,
// which wraps kintsugi.ErrOtherModel. Every version keeps its number and the header's checksum where they
// are, so that an old program can tell a newer one from damage.
func decodeHeader(b []byte) (Header, error) {
	le := binary.LittleEndian
	if len(b) < HeaderBytes {
		return Header{}, fmt.Errorf("%w: frame of %d bytes has no header", kintsugi.ErrCorrupt, len(b))
	}
	if got, want := Checksum(b[:offsetHeaderCRC]), le.Uint32(b[offsetHeaderCRC:]); got != want {
		return Header{}, fmt.Errorf("%w: frame header has CRC32C %08x, says %08x", kintsugi.ErrCorrupt, got, want)
	}
	if v := le.Uint16(b[0:]); v != formatVersion {
		return Header{}, fmt.Errorf("%w: frame format %d, this program reads %d", kintsugi.ErrOtherModel, v, formatVersion)
	}
	h := Header{
		Kind: Kind(b[2]), Codec: Codec(b[3]), Shard: kintsugi.ShardID(le.Uint32(b[4:])),
		Push: kintsugi.PushID{
			Line: kintsugi.Line(le.Uint64(b[8:])), Incarnation: kintsugi.Incarnation(le.Uint64(b[16:])),
			Version: kintsugi.Step(le.Uint64(b[24:])), Slot: kintsugi.Slot(le.Uint32(b[32:])), Sequence: le.Uint32(b[36:]),
		},
		Chunks: kintsugi.ChunkRange{Lo: kintsugi.ChunkID(le.Uint32(b[40:])), Hi: kintsugi.ChunkID(le.Uint32(b[44:]))},
		Bytes:  le.Uint32(b[48:]), CRC: le.Uint32(b[52:]), Place: le.Uint32(b[56:]),
	}
	switch {
	case h.Kind < KindPush || h.Kind > lastKind:
		return h, fmt.Errorf("%w: frame of unknown kind %d", kintsugi.ErrCorrupt, h.Kind)
	case !h.Codec.known():
		return h, fmt.Errorf("%w: frame of unknown codec %d", kintsugi.ErrCorrupt, h.Codec)
	case !h.Kind.hasChunks() && h.Chunks != kintsugi.ChunkRange{}:
		return h, fmt.Errorf("%w: record of the chunk range [%d, %d), want none", kintsugi.ErrCorrupt, h.Chunks.Lo, h.Chunks.Hi)
	case h.Kind.hasChunks() && h.Chunks.Lo >= h.Chunks.Hi:
		return h, fmt.Errorf("%w: frame of the empty chunk range [%d, %d)", kintsugi.ErrCorrupt, h.Chunks.Lo, h.Chunks.Hi)
	case h.Bytes > MaxPayloadBytes && h.Kind != KindRecord: // that is as long as the message, which was let in
		return h, fmt.Errorf("%w: frame of %d bytes, at most %d are allowed", kintsugi.ErrCorrupt, h.Bytes, MaxPayloadBytes)
	}
	return h, nil
}

// Frames cuts the chunks in r into the ranges that travel together: as many whole chunks as reach FrameBytes
// of float32, so that small chunks do not pay a header each and no frame exceeds MaxPayloadBytes.
func Frames(l *kintsugi.Layout, r kintsugi.ChunkRange) []kintsugi.ChunkRange {
	return FramesOf(l, r, func(c kintsugi.Chunk) int { return 4 * c.Len() })
}

// FramesOf is Frames for chunks that are encoded: bytes returns the most that a chunk takes, which is less
// than half of what a frame may have. A frame ends with the first chunk that makes it FrameBytes or a Mi of
// values: a frame is encoded as a whole before it is sent, and few bytes may stand for many values.
func FramesOf(l *kintsugi.Layout, r kintsugi.ChunkRange, bytes func(kintsugi.Chunk) int) []kintsugi.ChunkRange {
	var frames []kintsugi.ChunkRange
	for lo := r.Lo; lo < r.Hi; {
		hi, size, values := lo, 0, 0
		for hi < r.Hi && size < FrameBytes && values < targetValues {
			size += bytes(l.Chunks[hi])
			values += l.Chunks[hi].Len()
			hi++
		}
		frames = append(frames, kintsugi.ChunkRange{Lo: lo, Hi: hi})
		lo = hi
	}
	return frames
}
