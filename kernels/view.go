package kernels

import (
	"fmt"
	"unsafe"
)

// Bytes returns the memory of x as bytes: little-endian on every machine Go and this package support
// with SIMD, which is also the byte order of the wire and of checkpoints. It copies nothing: the result
// aliases x.
func Bytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// Floats returns the memory of b as float32. b has a multiple of 4 bytes and begins at an address
// that is one; the bytes belong to both views.
func Floats(b []byte) []float32 {
	if len(b) == 0 {
		return nil
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if len(b)%4 != 0 || uintptr(p)%4 != 0 {
		panic(fmt.Sprintf("kernels: %d bytes at %p are no float32", len(b), p))
	}
	return unsafe.Slice((*float32)(p), len(b)/4)
}
