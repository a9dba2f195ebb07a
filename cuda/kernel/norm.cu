// Squared norms and distances of chunks, a block for each: the sums are in 16 lanes, in order of the values.
#include "lanes.cuh"

struct Pair {
	const f32 *x, *y; // y: 0 for a norm
	u64 n;
	f64 *result;
};

struct NormArgs {
	const Pair *pairs;
};

enum { THREADS = 256, TILE = 4 * THREADS };

struct alignas(16) Tiles {
	f64 square[2][TILE];
};

KERNEL(norms, NormArgs, THREADS) {
	SHARED(Tiles, tiles);
	const Pair p = a.pairs[BLOCK]; // a copy: no store can change it
	f64 lane = 0;
	int turn = 0;
	for (u64 lo = 0; lo < p.n; lo += TILE, turn ^= 1) {
		const u64 i = lo + 4 * THREAD;
		if (i < p.n) {
			Four x = load(p.x, i);
			if (p.y) {
				const Four y = load(p.y, i);
#pragma unroll
				for (int e = 0; e < 4; e++) x.v[e] = sub(x.v[e], y.v[e]);
			}
			put(tiles.square[turn], place(4 * THREAD), x, x);
		}
		sync(); // the tile is full, and the one before it has been summed
		if (THREAD < 16) add_lane<TILE>(lane, tiles.square[turn], THREAD, p.n - lo);
	}
	if (THREAD >= 32) return;
	lane = fold(lane);
	if (THREAD == 0) *p.result = lane;
}
