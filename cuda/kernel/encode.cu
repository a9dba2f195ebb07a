// Encodes gradients as BF16, FP16, Int8 and Sign, with error feedback. An encoder encodes y = x +
// carry, and writes to residual what the payload loses: y minus the value that is decoded from it.
// Twin of kernels/encode.go and kernels/encode_int8.go.
//
// Block (b, c) of the grid takes part b of chunk c: 2048 values. The grid is as wide as the longest
// chunk needs, so blocks of shorter chunks may have nothing to do. A thread has eight values, as
// two vectors of four. In int8 and sign, a warp takes a group of 256 values with one scale: lane l
// has the four from 4·l on and the four from 128 + 4·l on. All stay in registers between the scale
// and the codes, so each value is loaded once.
#include "kdev.cuh"

// One chunk of n values. residual may be the same array as x or carry.
struct EncodeArgs {
	const f32 *x, *carry; // carry: what earlier payloads left out; 0 for none
	f32 *residual;        // receives what is left; 0: not wanted
	u8 *dst;              // receives the halves, codes or sign bits; at a multiple of 4 bytes
	f32 *scales;          // receives the scale of each group; 0 for BF16 and FP16
	u64 n;
	u32 key_a, key_b; // the key of noise, for rounding at random
};

struct Encodes {
	const EncodeArgs *chunks; // one for each row of the grid
};

enum { THREADS = 256, WARPS = THREADS / 32 };

// Returns two vectors of y, `apart` values from each other. It issues all loads before it uses one.
// A vector that begins past the end is zeros; values past the end in another vector are whatever
// memory holds there.
DEVICE void fed(const EncodeArgs &a, u64 lo, u64 apart, Four (&y)[2]) {
	Four c[2] = {};
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const u64 i = lo + r * apart;
		y[r] = i < a.n ? load(a.x, i) : Four();
		if (a.carry && i < a.n) c[r] = load(a.carry, i);
	}
	if (!a.carry) return;
#pragma unroll
	for (int r = 0; r < 2; r++)
#pragma unroll
		for (int e = 0; e < 4; e++) y[r].v[e] = add(y[r].v[e], c[r].v[e]);
}

// Stores to residual what a vector y loses if it is decoded as d.
DEVICE void lose(const EncodeArgs &a, u64 i, const Four &y, const Four &d) {
	Four r;
#pragma unroll
	for (int e = 0; e < 4; e++) r.v[e] = sub(y.v[e], d.v[e]);
	store(a.residual, i, a.n, r);
}

// The body of the encoders to 16 bits. Encoding 1 is BF16 and 2 is FP16, as in operand.cuh. A
// thread's two vectors are 1024 values apart.
template <int ENCODING> DEVICE void halves(const Encodes &all) {
	const EncodeArgs a = all.chunks[BLOCK_Y]; // a copy in registers, which no store can alias
	const u64 lo = 4 * (BLOCK * 2 * THREADS + THREAD);
	Four y[2];
	fed(a, lo, 4 * THREADS, y);
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const u64 i = lo + (u64)r * 4 * THREADS;
		if (i >= a.n) return;
		FourHalves h;
		Four d;
#pragma unroll
		for (int e = 0; e < 4; e++) {
			h.v[e] = ENCODING == 1 ? round_bf16(y[r].v[e]) : round_fp16(y[r].v[e]);
			d.v[e] = ENCODING == 1 ? from_bf16(h.v[e]) : from_fp16(h.v[e]);
		}
		store((u16 *)a.dst, i, a.n, h);
		if (a.residual) lose(a, i, y[r], d);
	}
}

KERNEL_OF(encode_bf16, Encodes, THREADS, halves<1>)
KERNEL_OF(encode_fp16, Encodes, THREADS, halves<2>)

// Rounds up with a probability equal to the distance from the integer below, to within 2⁻²⁴. Twin
// of roundAtRandom in kernels/encode_int8.go.
DEVICE f32 round_at_random(f32 v, u32 noise) {
	f32 below = floor_of(v);
	if (mul((f32)(noise >> 8), 5.9604644775390625e-8f) < sub(v, below)) below = add(below, 1.0f);
	return below < -127.0f ? -127.0f : below > 127.0f ? 127.0f : below;
}

// The largest scale whose product with 127 is finite: maxInt8Scale of package kernels.
#define MOST_SCALE from_bits(0x7c010203)

// Returns the scale of a group, to all lanes of its warp: the largest magnitude divided by 127, or
// 0 if that is not a normal number. As integers, the bits of magnitudes order as the magnitudes do.
// All lanes must call it, with zeros for the values past the end.
DEVICE f32 scale_of(const Four (&y)[2]) {
	u32 most = 0;
#pragma unroll
	for (int r = 0; r < 2; r++)
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const u32 m = bits_of(y[r].v[e]) & 0x7fffffff;
			most = most > m ? most : m;
		}
#pragma unroll
	for (int w = 16; w > 0; w /= 2) {
		const u32 other = shuffle_xor(most, w);
		most = most > other ? most : other;
	}
	const f32 scale = quotient(from_bits(most), 127.0f);
	if (scale > MOST_SCALE) return MOST_SCALE;
	return bits_of(scale) < 0x00800000 ? 0.0f : scale;
}

// The body of the encoders to Int8. Warps share nothing, so there is no barrier. A warp without a
// group returns whole, before any shuffle.
template <bool RANDOM> DEVICE void int8(const Encodes &all) {
	const EncodeArgs a = all.chunks[BLOCK_Y];
	const u64 group = BLOCK * WARPS + THREAD / 32, lo = group * GROUP + 4 * (THREAD % 32);
	if (group >= groups(a.n)) return;
	Four y[2];
	fed(a, lo, 128, y);
#pragma unroll
	for (int r = 0; r < 2; r++)
		if (lo + 128 * r < a.n) cut(y[r], lo + 128 * r, a.n);
	const f32 scale = scale_of(y), inverse = scale == 0 ? 0.0f : quotient(1.0f, scale);
	if (THREAD % 32 == 0) a.scales[group] = scale;
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const u64 i = lo + 128 * r;
		if (i >= a.n) return;
		u32 codes = 0;
		Four d;
#pragma unroll
		for (int e = 0; e < 4; e++) {
			f32 v = mul(y[r].v[e], inverse);
			if (RANDOM) v = round_at_random(v, noise(a.key_a, a.key_b, (u32)(i + e)));
			// The last bits of 1.5·2²³ + v are v, rounded to nearest even.
			const u32 q = bits_of(add(v, 12582912.0f)) & 0xff;
			codes |= q << 8 * e;
			d.v[e] = mul(scale, (f32)((i32)(q << 24) >> 24));
		}
		if (i + 4 <= a.n) {
			*(u32 *)(a.dst + i) = codes;
		} else {
			for (u64 e = 0; i + e < a.n; e++) a.dst[i + e] = (u8)(codes >> 8 * e);
		}
		if (a.residual) lose(a, i, y[r], d);
	}
}

KERNEL_OF(encode_int8, Encodes, THREADS, int8<false>)
KERNEL_OF(encode_int8_random, Encodes, THREADS, int8<true>)

// Shared memory, 8 KiB: the values of each warp's group.
struct alignas(16) Groups {
	f32 y[WARPS][GROUP];
};

// The body of the encoder to Sign. The scale of a group is its mean magnitude, a sum in 16 lanes
// like those of lanes.cuh. Lanes 0 to 15 of the warp add 16 values each, which the other lanes have
// loaded, so the values go through shared memory.
DEVICE void sign(const Encodes &all, Groups &sh) {
	const EncodeArgs a = all.chunks[BLOCK_Y];
	const u32 lane = THREAD % 32;
	const u64 group = BLOCK * WARPS + THREAD / 32, begin = group * GROUP, lo = begin + 4 * lane;
	if (group >= groups(a.n)) return;
	const u32 values = a.n - begin < GROUP ? (u32)(a.n - begin) : GROUP;
	f32 *mine = sh.y[THREAD / 32];
	Four y[2];
	fed(a, lo, 128, y);
#pragma unroll
	for (int r = 0; r < 2; r++) *(Four *)(mine + 128 * r + 4 * lane) = y[r];
	// The group is whole. Without this barrier, lanes would read values that are not stored yet. No
	// barrier of the block is needed, since each warp has its own part.
	sync_warp();
	f64 sum = 0;
	if (lane < 16)
		for (u32 i = lane; i < values; i += 16) sum = add(sum, (f64)from_bits(bits_of(mine[i]) & 0x7fffffff));
	sum = fold(sum);
	const f32 scale = narrow(quotient(shuffle(sum, 0), (f64)values));
	if (lane == 0) a.scales[group] = scale;
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const u64 i = lo + 128 * r;
		u32 signs = 0;
		Four d;
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const u32 s = i + e < a.n ? bits_of(y[r].v[e]) >> 31 : 0;
			signs |= s << e;
			d.v[e] = from_bits(bits_of(scale) | s << 31);
		}
		signs |= shuffle_down(signs, 1) << 4; // bits of two lanes make a byte
		if (i >= a.n) continue;
		if (lane % 2 == 0) a.dst[i / 8] = (u8)signs;
		if (a.residual) lose(a, i, y[r], d);
	}
}

KERNEL(encode_sign, Encodes, THREADS) {
	SHARED(Groups, sh);
	sign(a, sh);
}
