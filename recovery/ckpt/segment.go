package ckpt

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// readSegmentHeader reads the header of a segment, which must be that of its name. The error is a
// Damage only if the bytes are wrong for good.
func readSegmentHeader(f io.ReaderAt, file string) (segmentHeader, error) {
	var b [headerBytes]byte
	if err := readFull(f, b[:], 0); err != nil {
		return segmentHeader{}, unreadable(file, 0, err)
	}
	h, err := parseSegmentHeader(b[:])
	if v, ok := errors.AsType[versionError](err); ok {
		return h, newer(file, int(v), FormatVersion)
	}
	if err != nil {
		return h, damaged(file, 0, "%w", err)
	}
	if want, _ := parseIn(segmentDir, file); h.Name != want {
		return h, misplaced(file, h)
	}
	return h, nil
}

// misplaced is the damage of a segment that has the header of another.
func misplaced(file string, h segmentHeader) error {
	return damaged(file, 0, "this is the header of %s/%s with fingerprint %016x", segmentDir, h.Name.shard(), h.Fingerprint)
}

// readRecord reads the record at an offset of a segment into buffer, which grows if it is too
// small. The record's header must be right, and belong there; checkRecord checks the rest. The
// error is a Damage only if the bytes are wrong for good.
func readRecord(f io.ReaderAt, file string, pos int64, buffer []byte) ([]byte, recordHeader, error) {
	var header [headerBytes]byte
	if err := readFull(f, header[:], pos); err != nil {
		return buffer, recordHeader{}, unreadable(file, pos, err)
	}
	h, err := parseRecordHeader(header[:])
	if v, ok := errors.AsType[versionError](err); ok {
		return buffer, h, newer(file, int(v), FormatVersion)
	}
	if err == nil && h.Offset != pos {
		err = fmt.Errorf("the record there was written at offset %d", h.Offset)
	}
	if name, _ := parseIn(segmentDir, file); err == nil && (h.Line != name.Line || h.Step != name.Step) {
		err = fmt.Errorf("the record there is of line %d step %d", h.Line, h.Step)
	}
	if err != nil {
		return buffer, h, damaged(file, pos, "%w", err)
	}
	b := slices.Grow(buffer[:0], h.bytes())[:h.bytes()]
	copy(b, header[:])
	if err := readFull(f, b[headerBytes:], pos+headerBytes); err != nil {
		return b, h, unreadable(file, pos, err)
	}
	return b, h, nil
}
