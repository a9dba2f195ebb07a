// Operands of a step, as they were sent, four values at a time. Of the last four of a chunk some may be past its end: they are what stands there, and who
// loads them lets them go.
#pragma once
#include "kdev.cuh"

enum Encoding { FP32 = 0, BF16 = 1, FP16 = 2, INT8 = 3, SIGN = 4, LOW_RANK = 7 };

struct Operand {
	const u8 *data;   // values, codes or signs; of LOW_RANK, P
	const f32 *scales; // of INT8 and SIGN; of LOW_RANK, Q
	f32 weight;
	u32 encoding; // and from bit 8 on, how many operands from here on have the same one
	u32 cols, rank; // of LOW_RANK
};

// Raw is what is loaded for four values. Loads of several operands are issued before the first is used.
template <int ENCODING> struct Raw;

template <> struct Raw<FP32> {
	Four x;
	DEVICE_MEMBER void load_from(const Operand &o, u64 i, u64) { x = load((const f32 *)o.data, i); }
	DEVICE_MEMBER f32 value(int e) const { return x.v[e]; }
};

struct RawHalves {
	FourHalves x;
	DEVICE_MEMBER void load_from(const Operand &o, u64 i, u64) {
		IN_GLOBAL(o.data);
		x = *(const FourHalves *)((const u16 *)o.data + i);
	}
};

template <> struct Raw<BF16> : RawHalves {
	DEVICE_MEMBER f32 value(int e) const { return from_bf16(x.v[e]); }
};

template <> struct Raw<FP16> : RawHalves {
	DEVICE_MEMBER f32 value(int e) const { return from_fp16(x.v[e]); }
};

template <> struct Raw<INT8> {
	u32 codes;
	f32 scale;
	DEVICE_MEMBER void load_from(const Operand &o, u64 i, u64) {
		IN_GLOBAL(o.data);
		IN_GLOBAL(o.scales);
		scale = o.scales[i / GROUP];
		codes = *(const u32 *)(o.data + i);
	}
	DEVICE_MEMBER f32 value(int e) const { return mul(scale, (f32)((i32)(codes << (24 - 8 * e)) >> 24)); }
};

template <> struct Raw<SIGN> {
	u32 signs;
	f32 scale;
	DEVICE_MEMBER void load_from(const Operand &o, u64 i, u64) {
		IN_GLOBAL(o.data);
		IN_GLOBAL(o.scales);
		scale = o.scales[i / GROUP];
		signs = (u32)o.data[i / 8] >> (i & 4);
	}
	DEVICE_MEMBER f32 value(int e) const { return from_bits(bits_of(scale) | (signs >> e & 1) << 31); }
};

template <> struct Raw<LOW_RANK> {
	Four x;
	DEVICE_MEMBER void load_from(const Operand &o, u64 i, u64 n) {
		const f32 *p = (const f32 *)o.data, *q = o.scales;
		u64 row = i / o.cols;
		u32 col = (u32)(i % o.cols);
#pragma unroll
		for (int e = 0; e < 4; e++) {
			f32 v = 0;
			if (i + e < n)
				for (u32 r = 0; r < o.rank; r++) v = add(v, mul(p[row * o.rank + r], q[(u64)col * o.rank + r]));
			x.v[e] = v;
			if (++col == o.cols) {
				col = 0;
				row++;
			}
		}
	}
	DEVICE_MEMBER f32 value(int e) const { return x.v[e]; }
};
