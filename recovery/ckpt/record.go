package ckpt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// FormatVersion is the newest version of the files of a checkpoint. Files of a newer version are
// refused. Each file is written in the oldest version that has everything in it, so that older
// programs can read it.
const FormatVersion = 3

// The earlier versions.
const (
	plainVersion     = 1 // no increments
	incrementVersion = 2 // no increments in int4
)

const (
	// align is the alignment of records and their payloads, in bytes: a cache line, and the
	// alignment of the widest vector loads, so that a reader may map a segment and compute on it in
	// place.
	align = 64

	headerBytes = 64

	kindChunk     = 1 // a record of chunk values
	kindIncrement = 2 // a record that is added to the values of an older one
	codecRaw      = 0 // float32, little endian

	maxArrays  = 3 // parameters and two arrays of state
	maxPayload = maxArrays * 4 * kintsugi.MaxChunkValues
)

var (
	segmentMagic = [4]byte{'K', 'I', 'N', 'S'}
	recordMagic  = [4]byte{'K', 'I', 'N', 'R'}
)

func checksum(b []byte) uint32 { return kernels.CRC32C(0, b) }

// padded returns n rounded up to the alignment of records.
func padded(n int) int { return (n + align - 1) / align * align }

// segmentHeader is the first 64 bytes of a segment.
type segmentHeader struct {
	Name        fileName
	Fingerprint uint64 // of the layout
	Range       kintsugi.ChunkRange
}

func (h segmentHeader) append(dst []byte) []byte {
	n := len(dst)
	dst = append(dst, segmentMagic[:]...)
	dst = binary.LittleEndian.AppendUint16(dst, plainVersion)
	dst = binary.LittleEndian.AppendUint16(dst, 0)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Name.Line))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Name.Step))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Name.Fence))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.Name.Shard))
	dst = binary.LittleEndian.AppendUint32(dst, h.Name.Attempt)
	dst = binary.LittleEndian.AppendUint64(dst, h.Fingerprint)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.Range.Lo))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.Range.Hi))
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	return binary.LittleEndian.AppendUint32(dst, checksum(dst[n:]))
}

// versionError says that a header is undamaged, but of a version that this program does not know.
type versionError int

func (v versionError) Error() string { return fmt.Sprintf("format version %d", int(v)) }

// checkHeader checks what every header has in every version: magic, version and checksum.
func checkHeader(b []byte, magic [4]byte) error {
	if len(b) < headerBytes {
		return fmt.Errorf("%d bytes, a header has %d", len(b), headerBytes)
	}
	if !bytes.Equal(b[:4], magic[:]) {
		return fmt.Errorf("begins with %q, want %q", b[:4], magic[:])
	}
	want := binary.LittleEndian.Uint32(b[60:])
	if got := checksum(b[:60]); got != want {
		return fmt.Errorf("header has CRC32C %08x, its field says %08x", got, want)
	}
	if v := binary.LittleEndian.Uint16(b[4:]); v < plainVersion || v > FormatVersion {
		return versionError(v)
	}
	return nil
}

func parseSegmentHeader(b []byte) (segmentHeader, error) {
	if err := checkHeader(b, segmentMagic); err != nil {
		return segmentHeader{}, err
	}
	le := binary.LittleEndian
	h := segmentHeader{
		Name: fileName{
			Line:    kintsugi.Line(le.Uint64(b[8:])),
			Step:    kintsugi.Step(le.Uint64(b[16:])),
			Fence:   kintsugi.Fence(le.Uint64(b[24:])),
			Shard:   kintsugi.ShardID(le.Uint32(b[32:])),
			Attempt: le.Uint32(b[36:]),
		},
		Fingerprint: le.Uint64(b[40:]),
		Range: kintsugi.ChunkRange{
			Lo: kintsugi.ChunkID(le.Uint32(b[48:])),
			Hi: kintsugi.ChunkID(le.Uint32(b[52:])),
		},
	}
	// There is only one encoding: reserved bytes are zero.
	if !bytes.Equal(h.append(nil), b[:headerBytes]) {
		return segmentHeader{}, errors.New("reserved bytes of the segment header are not zero")
	}
	return h, nil
}

// recordHeader is the 64 bytes before the payload of a chunk.
type recordHeader struct {
	Chunk      kintsugi.ChunkID
	Values     int // in each array
	Line       kintsugi.Line
	Step       kintsugi.Step
	Optimizer  uint64 // optimizer steps that the chunk has taken
	Arrays     int    // of state, after the parameters
	Rule       kintsugi.Rule
	Offset     int64  // of this header in its segment, so that a block from elsewhere is noticed
	PayloadCRC uint32 // CRC32C of the payload, without its padding

	Increment bool             // the values are those of an older record plus those of this one
	Encoding  kernels.Encoding // of the values in an increment
	Coasts    bool             // the values coast between two increments
}

// payload returns the length of the payload in bytes, without padding.
func (h recordHeader) payload() int {
	if h.Increment {
		return incrementBytes + codedBytes(h.Encoding, h.Values) + 2*h.Values*h.Arrays
	}
	return 4 * h.Values * (1 + h.Arrays)
}

// version returns the oldest format version that has such records.
func (h recordHeader) version() uint16 {
	switch {
	case !h.Increment:
		return plainVersion
	case h.Encoding != kernels.Int4:
		return incrementVersion
	}
	return FormatVersion
}

// bytes returns the length of the record in bytes, padding included.
func (h recordHeader) bytes() int { return headerBytes + padded(h.payload()) }

// put encodes the header into the first 64 bytes of dst.
func (h recordHeader) put(dst []byte) {
	le := binary.LittleEndian
	clear(dst[:headerBytes])
	copy(dst, recordMagic[:])
	le.PutUint16(dst[4:], h.version())
	dst[6], dst[7] = kindChunk, codecRaw
	if h.Increment {
		dst[6], dst[7] = kindIncrement, byte(h.Encoding)
	}
	if h.Coasts {
		dst[42] = 1
	}
	le.PutUint32(dst[8:], uint32(h.Chunk))
	le.PutUint32(dst[12:], uint32(h.Values))
	le.PutUint64(dst[16:], uint64(h.Line))
	le.PutUint64(dst[24:], uint64(h.Step))
	le.PutUint64(dst[32:], h.Optimizer)
	dst[40] = byte(h.Arrays)
	dst[41] = byte(h.Rule)
	le.PutUint32(dst[44:], uint32(h.payload()))
	le.PutUint64(dst[48:], uint64(h.Offset))
	le.PutUint32(dst[56:], h.PayloadCRC)
	le.PutUint32(dst[60:], checksum(dst[:60]))
}

// parseRecordHeader decodes a header and checks that it is consistent, so that memory may be
// allocated for the length that it states: at most maxPayload.
func parseRecordHeader(b []byte) (recordHeader, error) {
	if err := checkHeader(b, recordMagic); err != nil {
		return recordHeader{}, err
	}
	switch e := kernels.Encoding(b[7]); {
	case b[6] != kindChunk && b[6] != kindIncrement:
		return recordHeader{}, fmt.Errorf("record of kind %d; version %d has kinds %d and %d", b[6], FormatVersion, kindChunk, kindIncrement)
	case b[6] == kindChunk && b[7] != codecRaw, b[6] == kindIncrement && !adds(e):
		return recordHeader{}, fmt.Errorf("codec %d in a record of kind %d", b[7], b[6])
	}
	le := binary.LittleEndian
	values, arrays := le.Uint32(b[12:]), b[40]
	if values == 0 || values > kintsugi.MaxChunkValues || arrays > maxArrays-1 {
		return recordHeader{}, fmt.Errorf("%d values and %d state arrays; a chunk has 1 to %d values and at most %d arrays",
			values, arrays, kintsugi.MaxChunkValues, maxArrays-1)
	}
	h := recordHeader{
		Chunk:      kintsugi.ChunkID(le.Uint32(b[8:])),
		Values:     int(values),
		Line:       kintsugi.Line(le.Uint64(b[16:])),
		Step:       kintsugi.Step(le.Uint64(b[24:])),
		Optimizer:  le.Uint64(b[32:]),
		Arrays:     int(arrays),
		Rule:       kintsugi.Rule(b[41]),
		Offset:     int64(le.Uint64(b[48:])),
		PayloadCRC: le.Uint32(b[56:]),
		Increment:  b[6] == kindIncrement,
		Encoding:   kernels.Encoding(b[7]),
		Coasts:     b[6] == kindIncrement && b[42] == 1,
	}
	if h.Rule.Check() != nil || h.Rule.States() != h.Arrays {
		return recordHeader{}, fmt.Errorf("rule %d with %d state arrays", h.Rule, h.Arrays)
	}
	var again [headerBytes]byte
	h.put(again[:])
	if !bytes.Equal(again[:], b[:headerBytes]) {
		return recordHeader{}, errors.New("payload length or reserved bytes do not agree with the rest of the header")
	}
	return h, nil
}

// appendRecord appends a whole record. Of the header, it computes only h.PayloadCRC.
func appendRecord(dst []byte, h recordHeader, a Arrays) ([]byte, recordHeader) {
	start := len(dst)
	dst = slices.Grow(dst, h.bytes())[:start+h.bytes()]
	to := dst[start+headerBytes:]
	h.PayloadCRC = 0
	arrays := [...][]float32{a.Params, a.State[0], a.State[1]}
	for _, values := range arrays[:1+h.Arrays] {
		b := kernels.Bytes(values)
		h.PayloadCRC = kernels.CopyCRC32C(h.PayloadCRC, to[:len(b)], b)
		to = to[len(b):]
	}
	clear(to)
	h.put(dst[start:])
	return dst, h
}

// checkRecord checks the payload and the padding of a record with header h. b is the whole record.
func checkRecord(b []byte, h recordHeader) error {
	end := headerBytes + h.payload()
	if got := checksum(b[headerBytes:end]); got != h.PayloadCRC {
		return fmt.Errorf("values have CRC32C %08x, their header says %08x", got, h.PayloadCRC)
	}
	for _, p := range b[end:h.bytes()] {
		if p != 0 {
			return errors.New("padding is not zero")
		}
	}
	if h.Increment {
		_, err := parseIncrement(b, h)
		return err
	}
	return nil
}
