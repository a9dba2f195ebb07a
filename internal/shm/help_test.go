package shm

import (
	"hash/crc32"
	"unsafe"
)

func uintptrOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }
