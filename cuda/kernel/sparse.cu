// Decodes sparse payloads: sparse_add adds their entries to a sum, and sparse_assign writes them to
// values that the host has set to +0. Twin of the cursor in kernels/decode.go; kernels/encoding.go
// specifies the format.
//
// A gap is a uvarint, which ends with the first byte below 0x80. A block takes one payload and goes
// through its gap bytes in tiles of 256, with one byte for each thread. The thread whose byte ends
// a gap decodes that gap. Two prefix sums over the block then tell the thread the number of its
// entry and its index in the chunk.
//
// The entries of a payload name different values, so no two threads access the same one. Two
// payloads of one chunk may name the same value. The host launches them one after the other, so
// that they are added in their order.
#include "kdev.cuh"

// One payload. Its values and gaps are separate arrays, so that the values are aligned.
struct Sparse {
	const u8 *values, *gaps;
	u64 gap_bytes;
	f32 *dst;   // the values of the chunk
	f32 weight; // sparse_add multiplies each value by it
	u32 width;  // bytes of a value: 2 (BF16) or 4 (float32)
};

struct SparseArgs {
	const Sparse *payloads; // one for each block
};

enum { THREADS = 256, WARPS = THREADS / 32 };

// Shared memory for the two scans of a tile. The scans alternate between two arrays, so the barrier
// in each also protects the other's array from the next tile.
struct Scan {
	u32 count[WARPS];
	u32 move[WARPS];
};

// Returns the value of entry j.
DEVICE f32 entry(const Sparse &s, u64 j) {
	return s.width == 2 ? from_bf16(((const u16 *)s.values)[j]) : ((const f32 *)s.values)[j];
}

// The body. The number of an entry is the count of gaps that end before its own. Its index in the
// chunk is the sum of gap + 1 over the gaps up to its own, minus 1.
template <bool ADD> DEVICE void scatter(const SparseArgs &a, Scan &sh) {
	const Sparse &s = a.payloads[BLOCK];
	u64 entries = 0, place = 0; // entries, and values passed over, in the tiles before
	for (u64 lo = 0; lo < s.gap_bytes; lo += THREADS) {
		const u64 at = lo + THREAD;
		const bool ends = at < s.gap_bytes && s.gaps[at] < 0x80;
		u32 gap = 0;
		if (ends) {
			// The gap may begin in the tile before, so its bytes are read again from memory.
			u64 first = at;
			while (first > 0 && s.gaps[first - 1] >= 0x80) first--;
			for (u64 b = at + 1; b-- > first;) gap = gap << 7 | (s.gaps[b] & 0x7f);
		}
		u32 count, move;
		const u32 nth = scan(ends, sh.count, count), to = scan(ends ? gap + 1 : 0, sh.move, move);
		if (ends) {
			f32 *p = s.dst + place + to - 1;
			const f32 v = entry(s, entries + nth - 1);
			*p = ADD ? add(*p, mul(s.weight, v)) : v;
		}
		entries += count;
		place += move;
	}
}

KERNEL(sparse_add, SparseArgs, THREADS) {
	SHARED(Scan, sh);
	scatter<true>(a, sh);
}

KERNEL(sparse_assign, SparseArgs, THREADS) {
	SHARED(Scan, sh);
	scatter<false>(a, sh);
}
