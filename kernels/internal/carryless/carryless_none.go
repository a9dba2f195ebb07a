//go:build !cgo || !amd64 || windows

package carryless

// Without the C code, hash/crc32 does all the work. On arm64 it is as fast as memory.
const (
	Wide   = false
	Narrow = false
)

// Sum panics, as do the functions below.
func Sum(crc uint32, b []byte) uint32               { panic("carryless: not in this build") }
func Copy(crc uint32, dst, src []byte) uint32       { panic("carryless: not in this build") }
func CopyNarrow(crc uint32, dst, src []byte) uint32 { panic("carryless: not in this build") }
