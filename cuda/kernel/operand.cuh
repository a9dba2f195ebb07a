// Operands of a step: gradients of one chunk, each in the encoding in which it was sent. The twin
// of these decoders is kernels/decode.go; kernels/encoding.go specifies the encodings.
//
// A thread takes eight values of a chunk at a time, as two vectors of four: those from i on, and
// those from i + 128 on. A warp thus takes 256 consecutive values, which share a scale, and its
// loads are coalesced.
//
// A chunk may end inside a vector. Then the vector's last values are whatever memory holds there,
// and the caller must ignore them.
#pragma once
#include "kdev.cuh"

enum Encoding { FP32 = 0, BF16 = 1, FP16 = 2, INT8 = 3, SIGN = 4, LOW_RANK = 7 };

// The payload of one operand. data and scales start at a multiple of 16 bytes; codes and sign bits
// may start at any multiple of 4.
struct alignas(16) Operand {
	const u8 *data;    // values, codes (INT8), sign bits (SIGN), or the factor P (LOW_RANK)
	const f32 *scales; // a scale for each 256 values (INT8, SIGN), the factor Q (LOW_RANK), else 0
	f32 weight;        // by which each decoded value is multiplied
	// Bits 0 to 7 are an Encoding. Bits 8 and up are the length of the run of operands that begins
	// here and has this encoding, itself included; it is 0 in decode.cu.
	u32 encoding;
	u32 cols, rank; // LOW_RANK: columns of the matrix, and columns of P and of Q; else 0
};

// The eight values of a thread: APART is the distance of its two vectors in values, PER_WARP the
// number of values of a warp.
enum { PER_THREAD = 8, APART = 128, PER_WARP = 256 };

// The eight values of a thread. In what follows, e is the number of a value among them, i is the
// index in the chunk of the first one, and `second` says whether the second vector begins before
// the end of the chunk.
struct Eight {
	Four part[2];
	DEVICE_MEMBER f32 &v(int e) { return part[e / 4].v[e % 4]; }
	DEVICE_MEMBER f32 v(int e) const { return part[e / 4].v[e % 4]; }
};

// Loads two vectors. The second one is zeros if it begins past the end.
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

// Stores the values that are before the end of x, which has n values. `whole` says that all eight
// are.
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

// Returns where the first value of a thread lies among those that the block takes at a time.
DEVICE u32 at_of_thread() { return THREAD / 32 * PER_WARP + THREAD % 32 * 4; }

// Raw holds eight values of an operand as they are loaded, still encoded. load_from only loads, and
// value(e) decodes value e. So a thread can issue the loads of several operands before it uses the
// first.
template <int ENCODING> struct Raw;

// Returns value e times the weight of its operand.
template <class R> DEVICE f32 weighted(const R &raw, f32 weight, int e) { return mul(weight, raw.value(e)); }

template <> struct Raw<FP32> {
	Eight x;
	DEVICE_MEMBER void load_from(const Operand &o, u32 i, bool second, u32) { x = load((const f32 *)o.data, i, second); }
	DEVICE_MEMBER f32 value(int e) const { return x.v(e); }
};

// Four values of 16 bits. Each word holds two, the first in its lower half.
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
	u32 signs[2]; // the signs of the vector's four values, in bits 28 to 31
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

// The product of the weight and a value of SIGN has only two possible results, so two
// multiplications serve all eight values. They usually differ in the sign bit alone. They are equal
// if the scale is itself negative: value() then sets a bit that is set already.
DEVICE f32 weighted(const Raw<SIGN> &raw, f32 weight, int e) {
	const u32 positive = bits_of(mul(weight, raw.scale)), negative = bits_of(mul(weight, from_bits(bits_of(raw.scale) | 0x80000000)));
	return from_bits(positive ^ ((positive ^ negative) & raw.sign(e)));
}

// Value at is in row at / cols and column at % cols of P·Qᵀ. load_from already decodes it, with the
// sum that kernels/encoding.go specifies: 2·rank loads for each value. Only decode.cu uses this. A
// step gets such an operand in decoded form.
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
