package compress

import (
	"encoding/binary"
	"math"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// device does the arithmetic of Encode. The devices of package kernels give equal bits and cannot
// be lost, so their errors are always nil.
var device = kernels.Best()

// fp32 sends every value unchanged.
type fp32 struct{}

func (fp32) encoding() kernels.Encoding { return kernels.FP32 }
func (fp32) maxBytes(n, _ int) int      { return 4 * n }

func (fp32) encode(_ kernels.Device, dst []byte, x, carry, residual []float32, _ int, _ uint64) []byte {
	if residual != nil {
		clear(residual)
	}
	if carry == nil {
		return append(dst, kernels.Bytes(x)...)
	}
	dst, to := extend(dst, 4*len(x))
	for i, v := range x {
		binary.LittleEndian.PutUint32(to[4*i:], math.Float32bits(v+carry[i]))
	}
	return dst
}

// halves rounds every value to a format of two bytes.
type halves struct{ format kernels.Encoding }

func (h halves) encoding() kernels.Encoding { return h.format }
func (halves) maxBytes(n, _ int) int        { return 2 * n }

func (h halves) encode(d kernels.Device, dst []byte, x, carry, residual []float32, _ int, _ uint64) []byte {
	dst, to := extend(dst, 2*len(x))
	if h.format == kernels.FP16 {
		d.EncodeFP16(to, x, carry, residual)
	} else {
		d.EncodeBF16(to, x, carry, residual)
	}
	return dst
}

// int8Blocks rounds each value to one of 255 levels of its block: to the nearest level, or at
// random, so that the mean over seeds is the value itself (Alistarh et al. 2017).
type int8Blocks struct{ stochastic bool }

func (int8Blocks) encoding() kernels.Encoding { return kernels.Int8 }
func (int8Blocks) maxBytes(n, _ int) int      { return kernels.Int8Bytes(n) }

func (e int8Blocks) encode(d kernels.Device, dst []byte, x, carry, residual []float32, _ int, seed uint64) []byte {
	dst, to := extend(dst, kernels.Int8Bytes(len(x)))
	if e.stochastic {
		d.EncodeInt8Stochastic(to, x, carry, residual, seed)
	} else {
		d.EncodeInt8(to, x, carry, residual)
	}
	return dst
}

// signs sends the sign of each value, and the mean magnitude of each block.
type signs struct{}

func (signs) encoding() kernels.Encoding { return kernels.Sign }
func (signs) maxBytes(n, _ int) int      { return kernels.SignBytes(n) }

func (signs) encode(d kernels.Device, dst []byte, x, carry, residual []float32, _ int, _ uint64) []byte {
	dst, to := extend(dst, kernels.SignBytes(len(x)))
	d.EncodeSign(to, x, carry, residual)
	return dst
}
