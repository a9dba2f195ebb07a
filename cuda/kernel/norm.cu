// Squared norms ‖x‖² and squared distances ‖x − y‖² of chunks. Twin of addSquares and addDistances
// in kernels/sums.go. Sums are in 16 float64 lanes in order of the values, as lanes.cuh explains.
//
// A block takes one chunk, since its sum has one order. For each tile of 1024 values, all 256
// threads load four values each and write their squares to shared memory; then 16 threads of one
// warp add the squares to their lanes, while the loads of the next tile are on their way.
#include "lanes.cuh"

struct Pair {
	const f32 *x, *y; // y: 0 for a norm
	u64 n;            // values of x, and of y
	f64 *result;
};

struct NormArgs {
	const Pair *pairs; // one for each block
};

enum { THREADS = 256, TILE = 4 * THREADS };

// Shared memory: the squares of two tiles, used in turns.
struct alignas(16) Tiles {
	f64 square[2][TILE];
};

// A thread's four values of a tile.
struct Loaded {
	Four x, y; // y: only for a distance
};

DEVICE void fetch(const Pair &p, u64 i, Loaded &l) {
	if (i >= p.n) return;
	l.x = load(p.x, i);
	if (p.y) l.y = load(p.y, i);
}

KERNEL(norms, NormArgs, THREADS) {
	SHARED(Tiles, tiles);
	const Pair p = a.pairs[BLOCK]; // a copy in registers, which no store can alias
	// Each warp belongs to one of four schedulers: on Volta to that of its number mod 4 (Jia et al.,
	// 2018, by measurement). If the same warp added in all blocks, its scheduler would have more to
	// do than the others.
	const u32 warp = THREAD / 32, adds = BLOCK / 4 % (THREADS / 32), l = THREAD % 32;
	f64 lane = 0;
	int turn = 0;
	Loaded next = {};
	fetch(p, 4 * THREAD, next);
	for (u64 lo = 0; lo < p.n; lo += TILE, turn ^= 1) {
		const u64 i = lo + 4 * THREAD;
		if (i < p.n) {
			Four x = next.x;
			if (p.y) {
#pragma unroll
				for (int e = 0; e < 4; e++) x.v[e] = sub(x.v[e], next.y.v[e]);
			}
			put(tiles.square[turn], place(4 * THREAD), x, x);
		}
		// One barrier for each tile is enough, because there are two tiles. Without it, the lanes
		// would add squares that are not written yet, and the other threads, which do not add,
		// could run ahead and overwrite a tile that is still being added up.
		sync(); // the tile is full, and the one before it has been summed
		fetch(p, i + TILE, next);
		if (warp == adds && l < 16) add_lane<TILE>(lane, tiles.square[turn], l, p.n - lo);
	}
	if (warp != adds) return;
	lane = fold(lane);
	if (l == 0) *p.result = lane;
}
