// Gradients to payloads, with error feedback: y = x + carry is encoded, and what the payload loses of it is left in
// residual. The encoders with scales give a group of 256 values to a warp, eight to each thread: four from 4·lane on,
// and four from 128 + 4·lane on, so that the scale is known before anything is read twice.
#include "kdev.cuh"

struct EncodeArgs {
	const f32 *x, *carry; // carry: 0 for none
	f32 *residual;        // 0: nobody keeps it
	u8 *dst;              // halves, codes or signs
	f32 *scales;          // of groups
	u64 n;
	u32 key_a, key_b; // of what is rounded at random
};

// Several chunks at once: block (x, y) takes the values number x of chunk y, if it has as many.
struct Encodes {
	const EncodeArgs *chunks;
};

enum { THREADS = 256, WARPS = THREADS / 32 };

// Two vectors of y for each thread, all of them loaded before any is used. What is past the end is anything, or zeros where the whole vector is.
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

DEVICE void lose(const EncodeArgs &a, u64 i, const Four &y, const Four &d) {
	Four r;
#pragma unroll
	for (int e = 0; e < 4; e++) r.v[e] = sub(y.v[e], d.v[e]);
	store(a.residual, i, a.n, r);
}

template <int ENCODING> DEVICE void halves(const Encodes &all) {
	const EncodeArgs a = all.chunks[BLOCK_Y]; // a copy: no store can change it
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

DEVICE f32 round_at_random(f32 v, u32 noise) {
	f32 below = floor_of(v);
	if (mul((f32)(noise >> 8), 5.9604644775390625e-8f) < sub(v, below)) below = add(below, 1.0f);
	return below < -127.0f ? -127.0f : below > 127.0f ? 127.0f : below;
}

// The largest scale whose product with 127 is finite.
#define MOST_SCALE from_bits(0x7c010203)

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
			const u32 q = bits_of(add(v, 12582912.0f)) & 0xff; // in its last bits stands v, rounded
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

struct alignas(16) Groups {
	f32 y[WARPS][GROUP];
};

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
		signs |= shuffle_down(signs, 1) << 4; // a byte is of two threads
		if (i >= a.n) continue;
		if (lane % 2 == 0) a.dst[i / 8] = (u8)signs;
		if (a.residual) lose(a, i, y[r], d);
	}
}

KERNEL(encode_sign, Encodes, THREADS) {
	SHARED(Groups, sh);
	sign(a, sh);
}
