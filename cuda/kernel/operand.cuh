// Operands of a step, as they were sent, eight values of a thread at a time: four from i on, and four from i + 128 on, so that a warp has 256 in a row, which
// have one scale. Of the last four of a chunk some may be past its end: they are what stands there, and who loads them lets them go.
#pragma once
#include "kdev.cuh"

enum Encoding { FP32 = 0, BF16 = 1, FP16 = 2, INT8 = 3, SIGN = 4, LOW_RANK = 7 };

struct alignas(16) Operand {
	const u8 *data;   // values, codes or signs; of LOW_RANK, P
	const f32 *scales; // of INT8 and SIGN; of LOW_RANK, Q
	f32 weight;
	u32 encoding; // and from bit 8 on, how many operands from here on have the same one
	u32 cols, rank; // of LOW_RANK
};

// Where a thread's values are: two vectors, of which the second may be past the end of the chunk.
enum { PER_THREAD = 8, APART = 128, PER_WARP = 256 };

struct Eight {
	Four part[2];
	DEVICE_MEMBER f32 &v(int e) { return part[e / 4].v[e % 4]; }
	DEVICE_MEMBER f32 v(int e) const { return part[e / 4].v[e % 4]; }
};

template <class T> DEVICE void load_two(T (&to)[2], const T *from, u32 apart, bool second) {
	IN_GLOBAL(from);
	to[0] = *from;
	to[1] = second ? from[apart] : T();
}

DEVICE Eight load(const f32 *x, u32 i, bool second) {
	Eight r;
	load_two(r.part, (const Four *)(x + i), APART / 4, second);
	return r;
}

// Stores what is not past the end. whole: nothing is.
DEVICE void store(f32 *x, u32 i, u32 n, bool second, bool whole, const Eight &v) {
	IN_GLOBAL(x);
	if (whole) {
		*(Four *)(x + i) = v.part[0];
		*(Four *)(x + i + APART) = v.part[1];
		return;
	}
	store(x, i, n, v.part[0]);
	if (second) store(x, i + APART, n, v.part[1]);
}

// Where the first of a thread's values is among those of a block.
DEVICE u32 at_of_thread() { return THREAD / 32 * PER_WARP + THREAD % 32 * 4; }

// Raw is what is loaded for eight values. Loads of several operands are issued before the first is used.
template <int ENCODING> struct Raw;

template <class R> DEVICE f32 weighted(const R &raw, f32 weight, int e) { return mul(weight, raw.value(e)); }

template <> struct Raw<FP32> {
	Eight x;
	DEVICE_MEMBER void load_from(const Operand &o, u32 i, bool second, u32) { x = load((const f32 *)o.data, i, second); }
	DEVICE_MEMBER f32 value(int e) const { return x.v(e); }
};

// Two halves in each word, the first below.
struct alignas(8) FourPacked {
	u32 word[2];
};

struct RawHalves {
	FourPacked x[2];
	DEVICE_MEMBER void load_from(const Operand &o, u32 i, bool second, u32) { load_two(x, (const FourPacked *)((const u16 *)o.data + i), APART / 4, second); }
	DEVICE_MEMBER u32 word(int e) const { return x[e / 4].word[e / 2 % 2]; }
};

template <> struct Raw<BF16> : RawHalves {
	DEVICE_MEMBER f32 value(int e) const { return from_bits(e % 2 ? word(e) & 0xffff0000 : word(e) << 16); }
};

template <> struct Raw<FP16> : RawHalves {
	DEVICE_MEMBER f32 value(int e) const { return from_fp16((u16)(e % 2 ? word(e) >> 16 : word(e))); }
};

template <> struct Raw<INT8> {
	u32 codes[2];
	f32 scale;
	DEVICE_MEMBER void load_from(const Operand &o, u32 i, bool second, u32) {
		IN_GLOBAL(o.scales);
		scale = o.scales[i / GROUP];
		load_two(codes, (const u32 *)(o.data + i), APART / 4, second);
	}
	DEVICE_MEMBER f32 value(int e) const { return mul(scale, (f32)signed_byte(codes[e / 4], e % 4)); }
};

template <> struct Raw<SIGN> {
	u32 signs[2]; // those of the last value of a vector in the highest bits
	f32 scale;
	DEVICE_MEMBER void load_from(const Operand &o, u32 i, bool second, u32) {
		IN_GLOBAL(o.scales);
		scale = o.scales[i / GROUP];
		u8 eight[2];
		load_two(eight, o.data + i / 8, APART / 8, second);
#pragma unroll
		for (int r = 0; r < 2; r++) signs[r] = (u32)eight[r] << (28 - (i & 4));
	}
	DEVICE_MEMBER u32 sign(int e) const { return signs[e / 4] << (3 - e % 4); }
	DEVICE_MEMBER f32 value(int e) const { return from_bits(bits_of(scale) | (sign(e) & 0x80000000)); }
};

// The sign of a factor is that of the product. So there is one multiplication for all values, and one more which says whether the sign changes anything: where a
// scale is negative it does not.
DEVICE f32 weighted(const Raw<SIGN> &raw, f32 weight, int e) {
	const u32 positive = bits_of(mul(weight, raw.scale)), negative = bits_of(mul(weight, from_bits(bits_of(raw.scale) | 0x80000000)));
	return from_bits(positive ^ ((positive ^ negative) & raw.sign(e)));
}

template <> struct Raw<LOW_RANK> {
	Eight x;
	DEVICE_MEMBER void load_from(const Operand &o, u32 i, bool, u32 n) {
		const f32 *p = (const f32 *)o.data, *q = o.scales;
#pragma unroll
		for (int half = 0; half < 2; half++) {
			u32 at = i + half * APART, row = at / o.cols, col = at % o.cols;
#pragma unroll
			for (int e = 0; e < 4; e++) {
				f32 v = 0;
				if (at + e < n)
					for (u32 r = 0; r < o.rank; r++) v = add(v, mul(p[(u64)row * o.rank + r], q[(u64)col * o.rank + r]));
				x.part[half].v[e] = v;
				if (++col == o.cols) {
					col = 0;
					row++;
				}
			}
		}
	}
	DEVICE_MEMBER f32 value(int e) const { return x.v(e); }
};
