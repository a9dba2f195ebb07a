// Sparse payloads as they are written: of the largest values, select.cu, and of all that are not +0, named.cu.
#pragma once
#include "kdev.cuh"

// A chunk, and where its payload goes.
struct Chosen {
	const f32 *x, *carry; // carry: 0 for none
	f32 *residual;        // 0: nobody keeps it; else y without what is sent
	f32 *decoded;         // what is sent, and zeros
	u32 *index;           // of what is sent
	u8 *payload;
	u64 *bytes; // of the payload
	u64 n, k;   // k: how many are sent, where that is given
	u32 width;  // bytes of a value: 2, BF16, or 4
};

// The sums of v over the threads before this one, and over all.
template <int WARPS> DEVICE u32 before(u32 v, u32 (&of_warp)[WARPS], u32 &all) { return scan(v, of_warp, all) - v; }

DEVICE u32 uvarint_bytes(u32 v) {
	u32 n = 1;
	while (v >>= 7) n++;
	return n;
}

DEVICE u8 *put_uvarint(u8 *to, u32 v) {
	for (; v >= 0x80; v >>= 7) *to++ = (u8)(v | 0x80);
	*to++ = (u8)v;
	return to;
}

DEVICE u32 gap(const Chosen &a, u32 j) { return j ? a.index[j] - a.index[j - 1] - 1 : a.index[0]; }

// Writes the payload of the values whose index is there. A byte at a time: nothing in it is aligned, and it is small.
template <int WARPS> DEVICE void write_payload(const Chosen &a, u32 count, u32 (&of_warp)[2][WARPS]) {
	u32 size = 0, gaps;
	for (u32 j = THREAD; j < count; j += 32 * WARPS) size += uvarint_bytes(gap(a, j));
	before(size, of_warp[0], gaps);
	u8 *const values = a.payload + uvarint_bytes(count) + uvarint_bytes(gaps);
	u8 *const gap_bytes = values + (u64)a.width * count;
	if (THREAD == 0) {
		put_uvarint(put_uvarint(a.payload, count), gaps);
		*a.bytes = (u64)(gap_bytes - a.payload) + gaps;
	}
	u32 place = 0, turn = 1;
	for (u32 lo = 0; lo < count; lo += 32 * WARPS) {
		const u32 j = lo + THREAD, mine = j < count ? gap(a, j) : 0;
		u32 all;
		const u32 at = place + before(j < count ? uvarint_bytes(mine) : 0, of_warp[turn], all);
		turn ^= 1;
		if (j < count) {
			put_uvarint(gap_bytes + at, mine);
			const u32 value = bits_of(a.decoded[a.index[j]]) >> (a.width == 2 ? 16 : 0);
			for (u32 b = 0; b < a.width; b++) values[(u64)a.width * j + b] = (u8)(value >> 8 * b);
		}
		place += all;
	}
}
