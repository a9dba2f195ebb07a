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

// Sizes of a frame, in bytes unless stated otherwise.
const (
	HeaderBytes     = 64
	MaxPayloadBytes = 1 << 20 // limit for the payload of a frame with chunks; a record may be longer, see Sizes
	// A frame ends with the first chunk that reaches FrameBytes. Frames of this size stay in the
	// cache while they are summed, copied and checked.
	FrameBytes      = 256 << 10
	targetValues    = 1 << 20 // in values: a frame of encoded chunks also ends when it reaches this
	formatVersion   = 1
	offsetHeaderCRC = 60
	PlaceBytes      = 4 // unit of Header.Place: the size of a float32

	// MaxFrameValues is the largest number of values that a frame may decode to. It matters because
	// few encoded bytes may decode to very many values.
	MaxFrameValues = targetValues - 1 + kintsugi.MaxChunkValues
)

// Kind is the kind of a frame's payload.
type Kind uint8

// The kinds.
const (
	KindPush       Kind = 1 // chunks of a gradient
	KindParameters Kind = 2 // chunks of a version of the parameters
	KindRecord     Kind = 3 // a kintsugi.ChainMessage; no chunks
	KindUpdate     Kind = 4 // chunks of the scaled sum of a step
	KindVersion    Kind = 6 // no chunks: ends an answer of changed chunks and says of which version they are
	KindState      Kind = 5 // chunks of one array of a snapshot: the parameters, or an array of optimizer state
	KindMemory     Kind = 7 // no chunks: the name of memory of the sender; frames with the same Sequence have their payloads in it

	lastKind = KindMemory
)

// hasChunks reports whether a frame of this kind has chunks.
func (k Kind) hasChunks() bool { return k != KindRecord && k != KindVersion && k != KindMemory }

// Codec says how a payload is encoded: a kernels.Encoding for each chunk, followed by a lossless
// stage (package compress) or none.
type Codec uint8

const (
	encodingBits = 4
	stageBits    = 2
)

// The limits of what a codec may name. Encodings after the last one are used in checkpoints only.
const (
	lastEncoding = kernels.LowRank
	lastStage    = compress.Huff0
)

// CodecOf returns the codec that consists of an encoding and a lossless stage.
func CodecOf(e kernels.Encoding, stage compress.Stage) Codec {
	return Codec(e) | Codec(stage)<<encodingBits
}

// Encoding returns the encoding of each chunk.
func (c Codec) Encoding() kernels.Encoding { return kernels.Encoding(c & (1<<encodingBits - 1)) }

// Stage returns the lossless stage.
func (c Codec) Stage() compress.Stage { return compress.Stage(c >> encodingBits) }

// known reports whether this program can decode the codec.
func (c Codec) known() bool { return c.Encoding() <= lastEncoding && c.Stage() <= lastStage }

// Checksum returns the CRC32C of b.
func Checksum(b []byte) uint32 { return kernels.CRC32C(0, b) }

// Header describes the payload of a frame.
type Header struct {
	Kind  Kind
	Codec Codec
	Shard kintsugi.ShardID
	// Of a push: its id. Of other kinds, only Line, Version and Sequence are set. Sequence counts
	// from 0: it is the array of a snapshot, or the borrowed memory that Place refers to.
	Push   kintsugi.PushID
	Chunks kintsugi.ChunkRange // whole chunks, by their index in the model
	Bytes  uint32              // length of the payload
	CRC    uint32              // CRC32C of the payload
	// Where the payload is in the shared memory of the stream, in units of PlaceBytes; 0: it
	// follows the header.
	Place uint32
}

// Frame is one message of the data plane.
type Frame struct {
	Header

	// Payload is the payload to send. It must not change until Done is called. Done is called at
	// most once, from any goroutine, when the bytes have been written or given up. gRPC keeps the
	// first 256 KiB that a client sends on a stream, to send them again on another connection,
	// until the server answers or more is sent. After Send has failed or the connection was lost,
	// Done may never be called. The memory then belongs to gRPC: leave it to the garbage collector.
	Payload []byte
	Done    func()

	data   mem.BufferSlice // of a received frame: the header, and the payload if it was sent
	shared []byte          // the payload if it is in shared memory
	memory *shm.Segment    // stays mapped as long as the frame is in use
	err    error           // why the frame is invalid
}

// Shared returns the payload of a received frame in place if it is in shared memory, otherwise nil.
// The payload has not been checked. The sender may change it as soon as it hears what became of the
// push or answer that the frame belongs to.
func (f *Frame) Shared() []byte { return f.shared }

// Release frees the memory of a received frame. The frame must not be used afterwards.
func (f *Frame) Release() {
	f.data.Free()
	f.data = nil
}

// CopyTo copies the payload of a received frame to dst and checks it. dst has the length of the
// payload. A wrong length or checksum is an error that wraps kintsugi.ErrCorrupt; the contents of
// dst are then undefined.
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

// Check checks the checksum of a received frame's payload in place. Errors wrap
// kintsugi.ErrCorrupt.
func (f *Frame) Check() error {
	crc := Checksum(f.shared)
	f.pieces(func(p []byte) { crc = kernels.CRC32C(crc, p) })
	return f.compare(crc)
}

// pieces calls g for the pieces of a payload that was received with its frame.
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

// encode writes the header to the first 64 bytes of b.
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

// decodeHeader reads and checks a header. Errors wrap kintsugi.ErrCorrupt, except for another
// format version, which is a kintsugi.ErrOtherModel. In every version, the version number and the
// checksum of the header are at the same offset, so that an old program can tell a newer version
// from damage.
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
	case h.Bytes > MaxPayloadBytes && h.Kind != KindRecord: // a record is as long as its message, whose length was checked
		return h, fmt.Errorf("%w: frame of %d bytes, at most %d are allowed", kintsugi.ErrCorrupt, h.Bytes, MaxPayloadBytes)
	}
	return h, nil
}

// Frames divides the chunks in r into ranges, one for each frame: as many whole chunks as reach
// FrameBytes of float32. So small chunks share a header, and no frame exceeds MaxPayloadBytes.
func Frames(l *kintsugi.Layout, r kintsugi.ChunkRange) []kintsugi.ChunkRange {
	return FramesOf(l, r, func(c kintsugi.Chunk) int { return 4 * c.Len() })
}

// FramesOf is Frames for encoded chunks. bytes returns the largest size of an encoded chunk, which
// must be less than half of MaxPayloadBytes. A frame ends with the first chunk that reaches
// FrameBytes, or 2²⁰ values: a frame is encoded completely before it is sent, and few bytes may
// stand for many values.
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
