package cuda

import (
	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// decodeArgs mirrors DecodeArgs of kernel/decode.cu.
type decodeArgs struct {
	operand operand
	dst     driver.Ptr
	n       uint64
}

// sparse mirrors Sparse of kernel/sparse.cu.
type sparse struct {
	values, gaps driver.Ptr
	gapBytes     uint64
	dst          driver.Ptr
	weight       float32
	width        uint32
}

type sparseArgs struct{ payloads driver.Ptr }

const (
	decodeThreads = 256
	perDecode     = 8 * decodeThreads // values for each block of threads
)

var decoders = map[kernels.Encoding]string{
	kernels.FP32: "decode_fp32", kernels.BF16: "decode_bf16", kernels.FP16: "decode_fp16", kernels.Int8: "decode_int8",
	kernels.Sign: "decode_sign", kernels.LowRank: "decode_low_rank",
}

// Decode implements kernels.Device.
func (d *Device) Decode(dst []float32, e kernels.Encoding, data []byte) error {
	kernels.CheckPayload(e, len(dst), data)
	if len(dst) == 0 {
		return nil
	}
	return d.do("decode", func(o *op) { o.decode(o.resultFloats(dst), len(dst), newPart(e, len(dst), data, o.bytes)) })
}

// decode queues the decoding of a payload of n values to dst.
func (o *op) decode(dst driver.Ptr, n int, p part) {
	o.countable(n)
	if p.sparse == nil {
		args := decodeArgs{operand: p.operand, dst: dst, n: uint64(n)}
		launch(o, "decode", decoders[kernels.Encoding(p.encoding)], line(ceil(n, perDecode)), decodeThreads, &args)
		return
	}
	if o.err == nil {
		o.fail(o.d.c.Fill(dst, 0, 4*n, o.d.stream))
	}
	if s := *p.sparse; s.gapBytes > 0 {
		s.dst = dst
		launch(o, "sparse", "sparse_assign", line(1), decodeThreads, &sparseArgs{payloads: table(o, []sparse{s})})
	}
}
