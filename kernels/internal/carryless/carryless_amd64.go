//go:build cgo && amd64 && !windows

package carryless

/*
#cgo CFLAGS: -std=c11 -O3
#cgo noescape kin_crc32c
#cgo nocallback kin_crc32c
#cgo noescape kin_copy_crc32c
#cgo nocallback kin_copy_crc32c
#cgo noescape kin_copy_crc32c_narrow
#cgo nocallback kin_copy_crc32c_narrow
#include "crc32c.h"
*/
import "C"

import "unsafe"

var (
	// Wide reports whether this processor multiplies without carry in vectors of 64 bytes.
	Wide = C.kin_crc32c_detect() != 0
	// Narrow reports whether it does so in vectors of 16 bytes.
	Narrow = C.kin_copy_crc32c_narrow_detect() != 0
)

// Sum returns the CRC32C of some bytes followed by b, where crc is the CRC32C of those bytes. The
// length of b is a multiple of 64, at least 256, here and below. It needs Wide.
func Sum(crc uint32, b []byte) uint32 {
	return uint32(C.kin_crc32c(C.uint32_t(crc), pointer(b), C.size_t(len(b))))
}

// Copy copies src to dst, which is as long and elsewhere, and returns Sum(crc, src). It needs Wide.
func Copy(crc uint32, dst, src []byte) uint32 {
	return uint32(C.kin_copy_crc32c(C.uint32_t(crc), pointer(dst), pointer(src), C.size_t(len(src))))
}

// CopyNarrow is Copy with vectors of 16 bytes. It needs Narrow.
func CopyNarrow(crc uint32, dst, src []byte) uint32 {
	return uint32(C.kin_copy_crc32c_narrow(C.uint32_t(crc), pointer(dst), pointer(src), C.size_t(len(src))))
}

func pointer(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }
