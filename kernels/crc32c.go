package kernels

import (
	"fmt"
	"hash/crc32"

	"github.com/kintsugi-ml/kintsugi/kernels/internal/carryless"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C returns the CRC32C of some bytes followed by b, where crc is the CRC32C of those bytes:
// crc32.Update with Castagnoli's polynomial. On processors that multiply without carry in wide
// vectors it is several times as fast.
func CRC32C(crc uint32, b []byte) uint32 {
	if len(b) >= foldedFrom && carryless.Wide {
		whole := len(b) / 64 * 64
		crc = carryless.Sum(crc, b[:whole])
		b = b[whole:]
	}
	return crc32.Update(crc, castagnoli, b)
}

// FoldsCRC32C reports whether CRC32C is faster than the standard library on this machine.
func FoldsCRC32C() bool { return carryless.Wide }

// CopyCRC32C copies src to dst and returns CRC32C(crc, src), in one pass. It panics unless both
// have the same length and do not overlap.
func CopyCRC32C(crc uint32, dst, src []byte) uint32 {
	if len(dst) != len(src) || overlap(dst, src) {
		panic(fmt.Sprintf("kernels: copy of %d bytes to %d, which must be as many and elsewhere", len(src), len(dst)))
	}
	whole := len(src) / 64 * 64
	switch {
	case carryless.Wide && len(src) >= foldedFrom:
		crc = carryless.Copy(crc, dst[:whole], src[:whole])
	case !carryless.Wide && carryless.Narrow && len(src) >= narrowFrom:
		crc = carryless.CopyNarrow(crc, dst[:whole], src[:whole])
	default:
		whole = 0
	}
	dst, src = dst[whole:], src[whole:]
	copy(dst, src)
	return crc32.Update(crc, castagnoli, src)
}

// The lengths in bytes from which on folding pays for the call of C, and for fetching memory that a
// plain copy would not fetch; each is at least 256.
const (
	foldedFrom = 1024
	narrowFrom = 8 << 10
)
