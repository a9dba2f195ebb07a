package kernels

import "unsafe"

// Bytes returns the memory of x as bytes: little-endian on every machine Go and this package support
// with SIMD, which is also the byte order of the wire and of checkpoints. It copies nothing: the result
// aliases x.
func Bytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
