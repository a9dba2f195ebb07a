//go:build cgo && (amd64 || arm64) && !windows

package kernels

/*
#cgo noescape kin_encode
#cgo nocallback kin_encode
#cgo noescape kin_select
#cgo nocallback kin_select
#include "simd_encode.h"
*/
import "C"

import "unsafe"

func (d instructions) feed(x, carry, residual []float32, n int) C.kin_feed {
	f := C.kin_feed{x: pointer(x), carry: pointer(carry), residual: pointer(residual), n: C.size_t(n)}
	if d.past && pointer(residual) != pointer(carry) && pointer(residual) != pointer(x) {
		f.past = 1
	}
	return f
}

func (d instructions) streaming() Device {
	d.past = true
	return d
}

func (d instructions) EncodeBF16(dst []byte, x, carry, residual []float32) error {
	checkEncode("BF16", dst, 2*len(x), x, carry, residual)
	whole := d.encodeCodes(C.kin_to_bf16, dst, x, carry, residual)
	encodeBF16(dst, x, carry, residual, whole)
	return nil
}

func (d instructions) EncodeFP16(dst []byte, x, carry, residual []float32) error {
	checkEncode("FP16", dst, 2*len(x), x, carry, residual)
	whole := d.encodeCodes(C.kin_to_fp16, dst, x, carry, residual)
	encodeFP16(dst, x, carry, residual, whole)
	return nil
}

// encodeCodes encodes values in an encoding without scales. It returns how many of the first values
// it has encoded.
func (d instructions) encodeCodes(to C.int, dst []byte, x, carry, residual []float32) int {
	whole := len(x) / lanes * lanes
	if whole > 0 {
		f := d.feed(x, carry, residual, whole)
		f.codes = bytePointer(dst)
		C.kin_encode(d.set, to, f)
	}
	return whole
}

func (d instructions) EncodeInt8(dst []byte, x, carry, residual []float32) error {
	checkEncode("Int8", dst, Int8Bytes(len(x)), x, carry, residual)
	whole := d.encodeBlocks(C.kin_to_int8, dst, x, carry, residual, key{})
	encodeInt8(dst, x, carry, residual, nil, whole)
	return nil
}

func (d instructions) EncodeInt8Stochastic(dst []byte, x, carry, residual []float32, seed uint64) error {
	checkEncode("Int8", dst, Int8Bytes(len(x)), x, carry, residual)
	k := keyOf(seed)
	whole := d.encodeBlocks(C.kin_to_int8_stochastic, dst, x, carry, residual, k)
	encodeInt8(dst, x, carry, residual, &k, whole)
	return nil
}

func (d instructions) EncodeInt4(dst []byte, x, carry, residual []float32) error {
	checkEncode("Int4", dst, Int4Bytes(len(x)), x, carry, residual)
	whole := d.encodeBlocks(C.kin_to_int4, dst, x, carry, residual, key{})
	encodeInt4(dst, x, carry, residual, whole)
	return nil
}

func (d instructions) EncodeSign(dst []byte, x, carry, residual []float32) error {
	checkEncode("Sign", dst, SignBytes(len(x)), x, carry, residual)
	whole := d.encodeBlocks(C.kin_to_sign, dst, x, carry, residual, key{})
	encodeSign(dst, x, carry, residual, whole)
	return nil
}

// encodeBlocks encodes the values of all full blocks and returns how many values those are.
func (d instructions) encodeBlocks(to C.int, dst []byte, x, carry, residual []float32, k key) int {
	whole := len(x) / block * block
	if whole > 0 {
		f := d.feed(x, carry, residual, whole)
		f.scales, f.codes = bytePointer(dst), bytePointer(dst[4*blocks(len(x)):])
		f.a, f.b = C.uint32_t(k.a), C.uint32_t(k.b)
		C.kin_encode(d.set, to, f)
	}
	return whole
}

func (d instructions) Select(index []int32, value, x, carry, residual []float32) error {
	checkSelect(index, value, x, carry, residual)
	if carry != nil && residual == nil {
		p := borrow(len(x))
		defer scratches.Put(p)
		residual = *p
	}
	work := borrow(3 * (len(x) + C.kin_select_slack))
	defer scratches.Put(work)
	f := d.feed(x, carry, residual, len(x))
	f.past = 0 // no store past the caches: the selected values are cleared in residual soon after
	f.scales = (*C.uint8_t)(unsafe.Pointer(pointer(*work)))
	C.kin_select(d.set, f, C.size_t(len(index)), (*C.int32_t)(&index[0]), pointer(value))
	return nil
}
