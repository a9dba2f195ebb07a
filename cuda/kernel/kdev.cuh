// The vocabulary that the kernels are written in. It has two meanings: CUDA's own, for NVRTC and nvcc, and that of
// emu/emu.h, which runs the same text on a processor.
//
// Every kernel has one parameter, a struct of pointers and numbers of 4 or 8 bytes, which Go fills with the same
// layout: package cuda. Every array starts at a multiple of 16 bytes, and may be read to the next one. What is shared by a block is one struct, declared
// once in a kernel. Arithmetic whose bits count goes through mul, add, sub, quotient and root: one rounding each, whatever
// flags a compiler is given.
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

#define KERNEL(name, args, threads) \
	extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ args a)
// The same, of which a multiprocessor runs so many blocks at once: the compiler keeps to the registers that leaves.
#define KERNEL_CROWD(name, args, threads, blocks) \
	extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ args a)
// Instances of a template that is a kernel's body.
#define KERNEL_OF(name, args, threads, body) \
	KERNEL(name, args, threads) { body(a); }
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define SHARED(type, name) __shared__ type name

// Tells the compiler what it cannot know of an address that was read from a table.
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
// acc + a·b. The product of two float32 is exact in float64, so fusing it changes no bits.
DEVICE f64 add_product(f64 acc, f32 a, f32 b) { return __fma_rn((f64)a, (f64)b, acc); }
DEVICE f32 narrow(f64 a) { return __double2float_rn(a); }
DEVICE u32 bits_of(f32 v) { return __float_as_uint(v); }
DEVICE f32 from_bits(u32 b) { return __uint_as_float(b); }
DEVICE f32 floor_of(f32 v) { return floorf(v); }
DEVICE f32 exp_of(f32 v) { return expf(v); }
DEVICE f64 exp_of(f64 v) { return exp(v); }
DEVICE f64 log_of(f64 v) { return log(v); }
DEVICE f32 tanh_of(f32 v) { return tanhf(v); }
DEVICE int count_bits(u32 v) { return __popc(v); }
// Byte number i of v, with its sign, in one instruction. (__byte_perm cannot extend a sign.)
DEVICE int signed_byte(u32 v, u32 i) {
	int r;
	asm("prmt.b32 %0, %1, 0, %2;" : "=r"(r) : "r"(v), "r"(0x8880 | 0x1111 * i));
	return r;
}

DEVICE u32 round_tf32(f32 v) {
	u32 r;
	asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
	return r;
}
// Adds the product of a 16×8 and an 8×8 matrix of a warp. Lane l = 4·g + t has rows g and g + 8 and columns t and t + 4 of
// the first, rows t and t + 4 and column g of the second, and rows g and g + 8 and columns 2·t and 2·t + 1 of the sum.
DEVICE void multiply_tf32(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
	asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Two values to the nearest BF16, ties to even; what is too large becomes infinite. The first is the lower half.
DEVICE u32 pair_bf16(f32 low, f32 high) {
	u32 r;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
	return r;
}
// The same of a 16×16 and a 16×8 matrix of BF16: a pair takes the place of each value, the even one of k below.
DEVICE void multiply_bf16(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// Four values, of 16 bytes: what a thread reads and writes at once.
struct alignas(16) Four {
	f32 v[4];
};
struct alignas(8) FourHalves {
	u16 v[4];
};

// The largest finite BF16 stands for what is beyond it.
DEVICE u16 round_bf16(f32 v) {
	u32 b = bits_of(v), m = b & 0x7fffffff;
	m = m < 0x7f7f0000 ? m : 0x7f7f0000;
	m += 0x7fff + (m >> 16 & 1);
	return (u16)((b >> 16 & 0x8000) | m >> 16);
}

DEVICE f32 from_bf16(u16 h) { return from_bits((u32)h << 16); }

// Infinities stay what they are, and there is one NaN: the rounding of parameters that are sent.
DEVICE u16 broadcast_bf16(f32 v) {
	u32 m = bits_of(v) & 0x7fffffff;
	if (m > 0x7f800000) return 0x7fc0;
	if (m == 0x7f800000) return (u16)(bits_of(v) >> 16);
	return round_bf16(v);
}

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
	f32 v; // exact, whatever the number
	asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(h));
	return v;
#else
	u32 sign = (u32)(h & 0x8000) << 16, exponent = h >> 10 & 0x1f, fraction = h & 0x3ff;
	if (exponent == 0) return from_bits(sign | bits_of(mul((f32)fraction, 5.9604644775390625e-8f)));
	return from_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
#endif
}

// Four values from i on. Those past the end of x are what stands there: an array may be read to the next multiple of 16 bytes.
DEVICE Four load(const f32 *x, u64 i) {
	IN_GLOBAL(x);
	return *(const Four *)(x + i);
}

// Sets those of four values from i < n on to 0 that are past the end. It is apart from load, so that several loads are under way before this looks at one.
DEVICE void cut(Four &v, u64 i, u64 n) {
	if (i + 4 <= n) return;
#pragma unroll
	for (int e = 1; e < 4; e++)
		if (i + e >= n) v.v[e] = 0;
}

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

// The sum of 16 lanes by the tree that all devices fold them by: lane i of a half warp has its own. The result is
// lane 0's. All threads of the warp take part.
DEVICE f64 fold(f64 lane) {
#pragma unroll
	for (int w = 8; w > 0; w /= 2) lane = add(lane, shuffle_down(lane, w));
	return lane;
}

// The sums of v over the threads of a block up to this one, and over all of its WARPS warps. Who calls it again takes another array, in
// turns: only the barrier in there says that all have read what the call before left.
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

// How many values share a scale.
enum { GROUP = 256 };
DEVICE u64 groups(u64 n) { return (n + GROUP - 1) / GROUP; }

// The random bits of a value, of its place and a key: kernels.Noise.
DEVICE u32 noise(u32 key_a, u32 key_b, u32 i) {
	u32 z = i * 0x9e3779b9 + key_a;
	z = (z ^ z >> 16) * 0x7feb352d;
	z ^= key_b;
	z = (z ^ z >> 15) * 0x846ca68b;
	return z ^ z >> 16;
}
