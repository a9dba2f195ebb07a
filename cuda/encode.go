package cuda

import (
	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// encodeArgs mirrors EncodeArgs of kernel/encode.cu, and encodes its Encodes.
type encodeArgs struct {
	x, carry, residual, dst, scales driver.Ptr
	n                               uint64
	keyA, keyB                      uint32
}

type encodes struct{ chunks driver.Ptr }

const (
	encodeThreads = 256
	perHalves     = 8 * encodeThreads // values for each block of threads
	perScaled     = encodeThreads / 32 * 256
)

// EncodeBF16 implements kernels.Encoder.
func (d *Device) EncodeBF16(dst []byte, x, carry, residual []float32) error {
	kernels.CheckEncode("BF16", dst, 2*len(x), x, carry, residual)
	return d.encode("encode_bf16", perHalves, dst, 0, encodeArgs{}, x, carry, residual)
}

// EncodeFP16 implements kernels.Encoder.
func (d *Device) EncodeFP16(dst []byte, x, carry, residual []float32) error {
	kernels.CheckEncode("FP16", dst, 2*len(x), x, carry, residual)
	return d.encode("encode_fp16", perHalves, dst, 0, encodeArgs{}, x, carry, residual)
}

// EncodeInt8 implements kernels.Encoder.
func (d *Device) EncodeInt8(dst []byte, x, carry, residual []float32) error {
	kernels.CheckEncode("Int8", dst, kernels.Int8Bytes(len(x)), x, carry, residual)
	return d.encode("encode_int8", perScaled, dst, ceil(len(x), 256), encodeArgs{}, x, carry, residual)
}

// EncodeInt8Stochastic implements kernels.Encoder.
func (d *Device) EncodeInt8Stochastic(dst []byte, x, carry, residual []float32, seed uint64) error {
	kernels.CheckEncode("Int8", dst, kernels.Int8Bytes(len(x)), x, carry, residual)
	a, b := kernels.RoundingKey(seed)
	return d.encode("encode_int8_random", perScaled, dst, ceil(len(x), 256), encodeArgs{keyA: a, keyB: b}, x, carry, residual)
}

// EncodeInt4 implements kernels.Encoder, on the host. Only checkpoints use Int4, and the host
// writes those, so there is no GPU kernel for it.
func (d *Device) EncodeInt4(dst []byte, x, carry, residual []float32) error {
	return kernels.Best().EncodeInt4(dst, x, carry, residual)
}

// EncodeSign implements kernels.Encoder.
func (d *Device) EncodeSign(dst []byte, x, carry, residual []float32) error {
	kernels.CheckEncode("Sign", dst, kernels.SignBytes(len(x)), x, carry, residual)
	return d.encode("encode_sign", perScaled, dst, ceil(len(x), 256), encodeArgs{}, x, carry, residual)
}

// encode runs an encoder whose thread blocks take per values each. The payload starts with the
// given number of scales.
func (d *Device) encode(kernel string, per int, dst []byte, scales int, args encodeArgs, x, carry, residual []float32) error {
	if len(x) == 0 {
		return nil
	}
	return d.do(kernel, func(o *op) {
		args.x, args.carry, args.n = o.floats(x), o.floats(carry), uint64(len(x))
		args.residual = o.resultFloats(residual)
		args.scales, args.dst = o.result(dst[:4*scales]), o.result(dst[4*scales:])
		launch(o, "encode", kernel, line(ceil(len(x), per)), encodeThreads, &encodes{chunks: table(o, []encodeArgs{args})})
	})
}
