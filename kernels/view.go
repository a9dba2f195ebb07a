package kernels

import (
	"fmt"
	"unsafe"
)

// Bytes returns the memory of x as bytes, without a copy: the result aliases x. The bytes are
// little-endian, which is also the byte order of the wire and of checkpoints.
func Bytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// Floats returns the memory of b as float32, without a copy: the result aliases b. It panics unless
// the length and the address of b are multiples of 4. An empty b gives nil.
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
