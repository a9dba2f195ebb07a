//go:build cgo && amd64 && !windows

package kernels

/*
#cgo noescape kin_crc32c
#cgo nocallback kin_crc32c
#cgo noescape kin_copy_crc32c
#cgo nocallback kin_copy_crc32c
#cgo noescape kin_copy_crc32c_narrow
#cgo nocallback kin_copy_crc32c_narrow
#include "crc32c.h"
*/
import "C"

var (
	canFold       = C.kin_crc32c_detect() != 0
	canFoldNarrow = C.kin_copy_crc32c_narrow_detect() != 0
)

// fold64 is CRC32C of b, whose length is a multiple of 64 bytes and at least 256.
func fold64(crc uint32, b []byte) uint32 {
	return uint32(C.kin_crc32c(C.uint32_t(crc), bytePointer(b), C.size_t(len(b))))
}

func copyFold64(crc uint32, dst, src []byte) uint32 {
	return uint32(C.kin_copy_crc32c(C.uint32_t(crc), bytePointer(dst), bytePointer(src), C.size_t(len(src))))
}

// copyFold16 is copyFold64 with vectors of 16 bytes.
func copyFold16(crc uint32, dst, src []byte) uint32 {
	return uint32(C.kin_copy_crc32c_narrow(C.uint32_t(crc), bytePointer(dst), bytePointer(src), C.size_t(len(src))))
}
