// Decodes the payload of one chunk. Twin of Decode in kernels/decode.go; sparse.cu decodes Sparse16
// and Sparse32.
//
// A thread decodes eight values (operand.cuh) and a block 2048 consecutive ones. The grid covers
// the chunk. Blocks and threads share nothing, so there is no barrier.
#include "operand.cuh"

struct DecodeArgs {
	Operand operand; // its weight is ignored
	f32 *dst;
	u64 n; // values, fewer than 2³¹
};

enum { THREADS = 256 };

template <int ENCODING> DEVICE void decode(const DecodeArgs &a) {
	const u32 i = (u32)BLOCK * PER_THREAD * THREADS + at_of_thread(), n = (u32)a.n;
	if (i >= n) return;
	const bool second = i + APART < n;
	Raw<ENCODING> raw;
	raw.load_from(a.operand, i, second, n);
	Eight x;
#pragma unroll
	for (int e = 0; e < PER_THREAD; e++) x.v(e) = raw.value(e);
	store(a.dst, i, n, second, i + APART + 4 <= n, x);
}

KERNEL_OF(decode_fp32, DecodeArgs, THREADS, decode<FP32>)
KERNEL_OF(decode_bf16, DecodeArgs, THREADS, decode<BF16>)
KERNEL_OF(decode_fp16, DecodeArgs, THREADS, decode<FP16>)
KERNEL_OF(decode_int8, DecodeArgs, THREADS, decode<INT8>)
KERNEL_OF(decode_sign, DecodeArgs, THREADS, decode<SIGN>)
KERNEL_OF(decode_low_rank, DecodeArgs, THREADS, decode<LOW_RANK>)
