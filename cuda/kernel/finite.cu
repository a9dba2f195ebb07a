// Finds the index of the first value that is infinite or NaN. Twin of firstNotFinite in
// kernels/host.go.
//
// A thread takes 16 values, as four vectors of four; a block takes 4096 consecutive values. A
// thread whose values are all finite touches no other memory. The others take the minimum of their
// indices with an atomic, whose result does not depend on the order of blocks. There is no barrier.
#include "kdev.cuh"

struct FiniteArgs {
	const f32 *x;
	u64 n;
	u64 *first; // the result; the host sets it to 2⁶⁴ − 1, which stays if all values are finite
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
	u64 first = ~0ull; // it may be the index of a value past the end of x
#pragma unroll
	for (int r = EACH - 1; r >= 0; r--)
#pragma unroll
		for (int e = 3; e >= 0; e--)
			if (bad(x[r].v[e])) first = lo + (u64)r * 4 * THREADS + e;
	if (first < a.n) atomic_min(a.first, first);
}
