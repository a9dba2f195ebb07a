// Sparse payloads. A gap is a uvarint: it ends with the first byte below 128. A block goes through the gaps of one
// payload, a byte for each thread: two scans tell each byte that ends a gap which entry it is and where the entry
// belongs. No two entries of a payload are for the same value, so the order in which they are added is that of payloads.
#include "kdev.cuh"

struct Sparse {
	const u8 *values, *gaps;
	u64 gap_bytes;
	f32 *dst; // of the chunk
	f32 weight;
	u32 width; // bytes of a value: 2, BF16, or 4
};

struct SparseArgs {
	const Sparse *payloads;
};

enum { THREADS = 256, WARPS = THREADS / 32 };

struct Scan {
	u32 count[WARPS];
	u32 move[WARPS];
};

DEVICE f32 entry(const Sparse &s, u64 j) {
	return s.width == 2 ? from_bf16(((const u16 *)s.values)[j]) : ((const f32 *)s.values)[j];
}

template <bool ADD> DEVICE void scatter(const SparseArgs &a, Scan &sh) {
	const Sparse &s = a.payloads[BLOCK];
	u64 entries = 0, place = 0; // of the tiles before
	for (u64 lo = 0; lo < s.gap_bytes; lo += THREADS) {
		const u64 at = lo + THREAD;
		const bool ends = at < s.gap_bytes && s.gaps[at] < 0x80;
		u32 gap = 0;
		if (ends) {
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
