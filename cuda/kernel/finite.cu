// The first value that is not finite. The result is at first 2⁶⁴ − 1, which stays if there is none.
#include "kdev.cuh"

struct FiniteArgs {
	const f32 *x;
	u64 n;
	u64 *first;
};

enum { THREADS = 256, EACH = 4 };

DEVICE bool bad(f32 v) { return (bits_of(v) & 0x7f800000) == 0x7f800000; }

KERNEL(finite, FiniteArgs, THREADS) {
	Four x[EACH];
	const u64 lo = 4 * (BLOCK * THREADS * EACH + THREAD);
#pragma unroll
	for (int r = 0; r < EACH; r++) {
		const u64 i = lo + (u64)r * 4 * THREADS;
		x[r] = i < a.n ? load(a.x, i) : Four();
	}
	u64 first = ~0ull; // or past the end, where there may be anything
#pragma unroll
	for (int r = EACH - 1; r >= 0; r--)
#pragma unroll
		for (int e = 3; e >= 0; e--)
			if (bad(x[r].v[e])) first = lo + (u64)r * 4 * THREADS + e;
	if (first < a.n) atomic_min(a.first, first);
}
