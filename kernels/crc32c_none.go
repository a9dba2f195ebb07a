//go:build !cgo || !amd64 || windows

package kernels

// Without the C code, hash/crc32 does all the work. On arm64 it is as fast as memory.
const (
	canFold       = false
	canFoldNarrow = false
)

func fold64(crc uint32, b []byte) uint32            { panic("not reached") }
func copyFold64(crc uint32, dst, src []byte) uint32 { panic("not reached") }
func copyFold16(crc uint32, dst, src []byte) uint32 { panic("not reached") }
