// The vocabulary in which the kernels are written. Each word has two definitions. The one below is
// for CUDA (NVRTC and nvcc). The one in emu/emu.h compiles the same kernels for a processor, so
// that tests can run them without a GPU.
//
// Rules for kernels:
//
//  - A kernel has one parameter, a struct named a. It holds only pointers and numbers of 4 or 8
//    bytes. A Go struct in package cuda or cuda/engine mirrors it field by field.
//  - An array that is accessed as vectors of four (Four, FourHalves) starts at a multiple of 16
//    bytes, and may be read up to the next multiple of 16 bytes behind its end. gemm.cu checks
//    alignment itself. The kernels of layer.cu and sequence.cu access single values, because the
//    parameters of a model lie in one array without gaps.
//  - A kernel declares its shared memory once, as one struct, with SHARED.
//  - If the bits of a result are specified, its arithmetic goes through mul, add, sub, quotient and
//    root. Each rounds once, to nearest even. No compiler flag can fuse or approximate them.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;

#if defined(KINTSUGI_EMU)
#include "emu/emu.h"
#else

// KERNEL defines a kernel whose blocks have `threads` threads. __grid_constant__ lets functions
// take the address of the parameter without a copy in local memory.
#define KERNEL(name, args, threads) \
	extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ args a)
// KERNEL_CROWD also promises that `blocks` blocks fit on one multiprocessor at the same time. The
// compiler then limits the registers of a thread accordingly.
#define KERNEL_CROWD(name, args, threads, blocks) \
	extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ args a)
// KERNEL_OF defines a kernel whose body is an instance of a template.
#define KERNEL_OF(name, args, threads, body) \
	KERNEL(name, args, threads) { body(a); }
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define SHARED(type, name) __shared__ type name

// Tells the compiler that an address is in global memory. It cannot know this about an address that
// was loaded from a table, and would emit generic loads and stores.
#define IN_GLOBAL(p) __builtin_assume(__isGlobal(p))

#define THREAD (threadIdx.x)
#define BLOCK ((u64)blockIdx.x)
#define BLOCK_Y ((u64)blockIdx.y)
#define BLOCK_Z ((u64)blockIdx.z)
#define BLOCKS ((u64)gridDim.x)

DEVICE void sync() { __syncthreads(); }
DEVICE void sync_warp() { __syncwarp(); }
template <class T> DEVICE T shuffle(T v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
template <class T> DEVICE T shuffle_down(T v, int by) { return __shfl_down_sync(0xffffffffu, v, by); }
template <class T> DEVICE T shuffle_up(T v, int by) { return __shfl_up_sync(0xffffffffu, v, by); }
template <class T> DEVICE T shuffle_xor(T v, int by) { return __shfl_xor_sync(0xffffffffu, v, by); }
DEVICE u32 ballot(bool p) { return __ballot_sync(0xffffffffu, p); }
DEVICE u32 atomic_add(u32 *p, u32 v) { return atomicAdd(p, v); }
DEVICE u64 atomic_min(u64 *p, u64 v) { return atomicMin(p, v); }

DEVICE f32 mul(f32 a, f32 b) { return __fmul_rn(a, b); }
DEVICE f32 add(f32 a, f32 b) { return __fadd_rn(a, b); }
DEVICE f32 sub(f32 a, f32 b) { return __fsub_rn(a, b); }
DEVICE f32 quotient(f32 a, f32 b) { return __fdiv_rn(a, b); }
DEVICE f32 root(f32 a) { return __fsqrt_rn(a); }
DEVICE f32 fused(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }
DEVICE f64 mul(f64 a, f64 b) { return __dmul_rn(a, b); }
DEVICE f64 add(f64 a, f64 b) { return __dadd_rn(a, b); }
DEVICE f64 sub(f64 a, f64 b) { return __dsub_rn(a, b); }
DEVICE f64 quotient(f64 a, f64 b) { return __ddiv_rn(a, b); }
DEVICE f64 root(f64 a) { return __dsqrt_rn(a); }
DEVICE f32 narrow(f64 a) { return __double2float_rn(a); }
DEVICE u32 bits_of(f32 v) { return __float_as_uint(v); }
DEVICE f32 from_bits(u32 b) { return __uint_as_float(b); }
DEVICE f32 floor_of(f32 v) { return floorf(v); }
DEVICE f32 exp_of(f32 v) { return expf(v); }
DEVICE f64 exp_of(f64 v) { return exp(v); }
DEVICE f64 log_of(f64 v) { return log(v); }
DEVICE int count_bits(u32 v) { return __popc(v); }
// Returns byte i of v, sign-extended to an int, in one instruction. The intrinsic __byte_perm
// ignores the selector bit that replicates a sign.
DEVICE int signed_byte(u32 v, u32 i) {
	int r;
	asm("prmt.b32 %0, %1, 0, %2;" : "=r"(r) : "r"(v), "r"(0x8880 | 0x1111 * i));
	return r;
}

// Rounds to the nearest TF32 (11 significant bits), ties away from zero.
DEVICE u32 round_tf32(f32 v) {
	u32 r;
	asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
	return r;
}
// Adds the product of a 16×8 and an 8×8 matrix, each distributed over the warp, to a 16×8 matrix.
// Lane 4·g + t holds:
//
//   a[0..3]  the first factor at (row, column) (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)
//   b[0..1]  the second factor at (t, g), (t + 4, g)
//   c[0..3]  the sum at (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
//
// All lanes of the warp must call it together.
DEVICE void multiply_tf32(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
	asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Rounds two values to the nearest BF16, ties to even, and packs them into one word, the first in
// the lower half. A value that is too large becomes infinite.
DEVICE u32 pair_bf16(f32 low, f32 high) {
	u32 r;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
	return r;
}
// The same for a 16×16 and a 16×8 matrix of BF16. A word holds two values that follow each other
// along k: the word in place of value w along k holds values 2w (lower half) and 2w + 1.
DEVICE void multiply_bf16(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// Four values of 16 bytes: the unit in which a thread loads and stores.
struct alignas(16) Four {
	f32 v[4];
};
struct alignas(8) FourHalves {
	u16 v[4];
};

// Rounds to the nearest BF16, ties to even. A value beyond the largest finite BF16 becomes that
// number, with its sign. Twin of roundBF16 in kernels/encode.go.
DEVICE u16 round_bf16(f32 v) {
	u32 b = bits_of(v), m = b & 0x7fffffff;
	m = m < 0x7f7f0000 ? m : 0x7f7f0000;
	m += 0x7fff + (m >> 16 & 1);
	return (u16)((b >> 16 & 0x8000) | m >> 16);
}

DEVICE f32 from_bf16(u16 h) { return from_bits((u32)h << 16); }

// Rounds to the nearest BF16, ties to even, for parameters that are sent to workers. An infinity
// stays one, and every NaN becomes 0x7fc0. Twin of toBF16 in kernels/host.go.
DEVICE u16 broadcast_bf16(f32 v) {
	u32 m = bits_of(v) & 0x7fffffff;
	if (m > 0x7f800000) return 0x7fc0;
	if (m == 0x7f800000) return (u16)(bits_of(v) >> 16);
	return round_bf16(v);
}

// Rounds to the nearest FP16, ties to even. A value beyond the largest finite FP16 becomes that
// number, with its sign. Twin of roundFP16 in kernels/encode.go, which explains the two cases.
DEVICE u16 round_fp16(f32 v) {
	u32 b = bits_of(v), m = b & 0x7fffffff;
	m = m < 0x477fe000 ? m : 0x477fe000;
	if (m < 0x38800000) {
		m = bits_of(add(from_bits(m), 0.5f)) - 0x3f000000;
	} else {
		m += 0xfff + (m >> 13 & 1);
		m = (m - 0x38000000) >> 13;
	}
	return (u16)((b >> 16 & 0x8000) | m);
}

DEVICE f32 from_fp16(u16 h) {
#if defined(__CUDA_ARCH__)
	f32 v; // every FP16 is exact as a float32
	asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(h));
	return v;
#else
	u32 sign = (u32)(h & 0x8000) << 16, exponent = h >> 10 & 0x1f, fraction = h & 0x3ff;
	if (exponent == 0) return from_bits(sign | bits_of(mul((f32)fraction, 5.9604644775390625e-8f)));
	return from_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
#endif
}

// Loads the four values from x[i] on. Those past the end of x are whatever memory holds there.
DEVICE Four load(const f32 *x, u64 i) {
	IN_GLOBAL(x);
	return *(const Four *)(x + i);
}

// Sets those of the four values from i on to 0 that are past the end; i < n. It is not part of
// load, so that a thread can issue several loads before it looks at the first result.
DEVICE void cut(Four &v, u64 i, u64 n) {
	if (i + 4 <= n) return;
#pragma unroll
	for (int e = 1; e < 4; e++)
		if (i + e >= n) v.v[e] = 0;
}

// Stores those of four values that are before the end; x has n values.
DEVICE void store(f32 *x, u64 i, u64 n, const Four &v) {
	IN_GLOBAL(x);
	if (i + 4 <= n) {
		*(Four *)(x + i) = v;
		return;
	}
#pragma unroll
	for (int e = 0; e < 4; e++)
		if (i + e < n) x[i + e] = v.v[e];
}

DEVICE void store(u16 *x, u64 i, u64 n, const FourHalves &v) {
	IN_GLOBAL(x);
	if (i + 4 <= n) {
		*(FourHalves *)(x + i) = v;
		return;
	}
#pragma unroll
	for (int e = 0; e < 4; e++)
		if (i + e < n) x[i + e] = v.v[e];
}

// Folds 16 partial sums into one by the tree that every device uses (fold in kernels/sums.go): lane
// i of a half warp passes partial sum i, and lane 0 of each half warp gets the total. The other
// lanes get values without meaning. All 32 lanes must call it, since a shuffle needs all of them.
DEVICE f64 fold(f64 lane) {
#pragma unroll
	for (int w = 8; w > 0; w /= 2) lane = add(lane, shuffle_down(lane, w));
	return lane;
}

// Returns the inclusive prefix sum of v over the threads of a block, and sets `all` to the sum over
// all threads. The block has WARPS warps, and all threads must call it.
//
// Its barrier makes the sums of all warps visible before a thread adds up those of lower warps. No
// barrier follows these reads. A second call with the same of_warp could therefore overwrite sums
// that a slow thread still has to read. Callers put a barrier between the calls, or alternate
// between two arrays: the barrier of the next call then shows that all threads have finished this
// one.
template <int WARPS> DEVICE u32 scan(u32 v, u32 (&of_warp)[WARPS], u32 &all) {
#pragma unroll
	for (int w = 1; w < 32; w *= 2) {
		const u32 other = shuffle_up(v, w);
		if (THREAD % 32 >= (u32)w) v += other;
	}
	if (THREAD % 32 == 31) of_warp[THREAD / 32] = v;
	sync();
	u32 before = 0;
	all = 0;
	for (u32 w = 0; w < WARPS; w++) {
		if (w == THREAD / 32) before = all;
		all += of_warp[w];
	}
	return before + v;
}

// The number of values that share a scale: the block of kernels.Encoding.
enum { GROUP = 256 };
DEVICE u64 groups(u64 n) { return (n + GROUP - 1) / GROUP; }

// Random bits for value i: a function of i and the key alone. Twin of kernels.Noise.
DEVICE u32 noise(u32 key_a, u32 key_b, u32 i) {
	u32 z = i * 0x9e3779b9 + key_a;
	z = (z ^ z >> 16) * 0x7feb352d;
	z ^= key_b;
	z = (z ^ z >> 15) * 0x846ca68b;
	return z ^ z >> 16;
}
