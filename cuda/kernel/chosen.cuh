// Sparse payloads, as the encoders write them: Sparse16 and Sparse32 of kernels/encoding.go.
// select.cu sends the largest values of a chunk, named.cu those that are not +0. The twin of
// write_payload is AppendSparse in kernels/select.go.
#pragma once
#include "kdev.cuh"

// A chunk of n values to encode, and where the results go. It encodes y = x + carry.
struct Chosen {
	const f32 *x, *carry; // carry: what earlier payloads left out; 0 for none
	f32 *residual;        // receives y minus the decoded values; 0: not wanted
	f32 *decoded;         // receives what the payload decodes to, +0 included
	u32 *index;           // receives the indices of the values that are sent, ascending
	u8 *payload;          // has room for the longest payload
	u64 *bytes;           // receives the length of the payload
	u64 n, k;             // k: how many of the largest values to send; named.cu ignores it
	u32 width;            // bytes of a value in the payload: 2 (BF16) or 4 (float32)
};

// Returns the sum of v over the threads before this one, and sets `all` to the sum over the block.
// The rules of scan apply.
template <int WARPS> DEVICE u32 before(u32 v, u32 (&of_warp)[WARPS], u32 &all) { return scan(v, of_warp, all) - v; }

// Returns the number of bytes of v as a uvarint.
DEVICE u32 uvarint_bytes(u32 v) {
	u32 n = 1;
	while (v >>= 7) n++;
	return n;
}

// Writes v as a uvarint and returns the address behind it.
DEVICE u8 *put_uvarint(u8 *to, u32 v) {
	for (; v >= 0x80; v >>= 7) *to++ = (u8)(v | 0x80);
	*to++ = (u8)v;
	return to;
}

// Returns gap j of a payload: the number of values between the ones that entries j − 1 and j name.
DEVICE u32 gap(const Chosen &a, u32 j) { return j ? a.index[j] - a.index[j - 1] - 1 : a.index[0]; }

// Writes the payload of the `count` values whose indices are in a.index. One block writes it: each
// thread takes one entry of every 32 · WARPS. It stores single bytes, because nothing in a payload
// is aligned, and a payload is small.
//
// A thread reads entries of index and decoded that other threads have written, so the caller must
// put a barrier before the call. The barriers in here are those of scan, which tells each thread
// where its gap goes. The two arrays of of_warp are used in turns.
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
