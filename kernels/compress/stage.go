package compress

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Stage says how the payload of a frame is packed, without loss. It is stored in the frame's
// header: never renumber.
type Stage uint8

// The stages.
const (
	Plain Stage = 0 // not packed
	S2    Stage = 1 // one block of s2: removes repeated bytes, above all runs of zeros
	Huff0 Stage = 2 // Huffman codes for the byte of each value that holds the exponent; see docs/formats.md
)

// String returns the stage as it appears in a codec's spec, such as "s2".
func (s Stage) String() string {
	switch s {
	case Plain:
		return "plain"
	case S2:
		return "s2"
	case Huff0:
		return "huff0"
	}
	return fmt.Sprintf("stage %d", uint8(s))
}

// policy says which stage a codec tries.
type policy uint8

const (
	never policy = iota
	alwaysS2
	alwaysHuff0
	sampled // chosen for each frame from a sample of its bytes
)

var policies = map[string]policy{"s2": alwaysS2, "huff0": alwaysHuff0, "auto": sampled}

// apply is Codec.Pack.
func (p policy) apply(dst, payload []byte, e kernels.Encoding) ([]byte, Stage) {
	stage := Plain
	switch p {
	case alwaysS2:
		stage = S2
	case alwaysHuff0:
		stage = Huff0
	case sampled:
		stage = choose(payload, e)
	}
	packed := dst
	switch stage {
	case Plain:
		return dst, Plain
	case S2:
		packed = slices.Grow(dst, s2.MaxEncodedLen(len(payload)))
		packed = packed[:len(dst)+len(s2.Encode(packed[len(dst):cap(packed)], payload))]
	case Huff0:
		packed = packHuff0(dst, payload, e)
	}
	if len(packed)-len(dst) >= len(payload) {
		return packed[:len(dst)], Plain // the memory may be of use for the next frame
	}
	return packed, stage
}

// Unpack appends the payload that was packed into packed to dst and returns the extended slice. The
// payload's chunks have the encoding e. limit is the largest possible payload of those chunks, in
// bytes: a longer payload is an error, and no more memory than limit is allocated. Errors wrap
// kintsugi.ErrCorrupt; the result is then nil, and the memory behind the end of dst has unspecified
// contents.
func Unpack(dst []byte, s Stage, e kernels.Encoding, packed []byte, limit int) ([]byte, error) {
	switch s {
	case Plain:
		if len(packed) > limit {
			return nil, tooLong(len(packed), limit)
		}
		return append(dst, packed...), nil
	case S2:
		n, err := s2.DecodedLen(packed)
		if err != nil {
			return nil, fmt.Errorf("unpack a payload: %w: %w", err, kintsugi.ErrCorrupt)
		}
		if n > limit {
			return nil, tooLong(n, limit)
		}
		all, to := extend(dst, n)
		if _, err := s2.Decode(to[:n:n], packed); err != nil {
			return nil, fmt.Errorf("unpack a payload of %d bytes: %w: %w", n, err, kintsugi.ErrCorrupt)
		}
		return all, nil
	case Huff0:
		return unpackHuff0(dst, e, packed, limit)
	}
	return nil, fmt.Errorf("unpack a payload: %v is unknown: %w", s, kintsugi.ErrCorrupt)
}

func tooLong(n, limit int) error {
	return fmt.Errorf("unpack a payload: it has %d bytes, and its chunks have at most %d: %w", n, limit, kintsugi.ErrCorrupt)
}

func truncated(what string) error {
	return fmt.Errorf("unpack a payload: %s is cut off or no number: %w", what, kintsugi.ErrCorrupt)
}

// takeUvarint returns the number at the start of data and the bytes after it.
func takeUvarint(data []byte) (v int, rest []byte, ok bool) {
	u, n := binary.Uvarint(data)
	if n <= 0 || u > 1<<31-1 {
		return 0, nil, false
	}
	return int(u), data[n:], true
}
