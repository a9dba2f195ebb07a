// Squared norms ‖x‖² and squared distances ‖x − y‖² of chunks. Twin of addSquares and addDistances
// in kernels/sums.go. Sums are in 16 float64 lanes in order of the values, as lanes.cuh explains.
//
// A block takes one chunk, since its sum has one order. For each tile of 1024 values, all 256
// threads load four values each and write their squares to shared memory; then threads 0 to 15 add
// the squares to their lanes.
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

KERNEL(norms, NormArgs, THREADS) {
	SHARED(Tiles, tiles);
	const Pair p = a.pairs[BLOCK]; // a copy in registers, which no store can alias
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
		// One barrier for each tile is enough, because there are two tiles. Without it, the lanes
		// would add squares that are not written yet, and the other threads, which do not add,
		// could run ahead and overwrite a tile that is still being added up.
		sync(); // the tile is full, and the one before it has been summed
		if (THREAD < 16) add_lane<TILE>(lane, tiles.square[turn], THREAD, p.n - lo);
	}
	if (THREAD >= 32) return;
	lane = fold(lane);
	if (THREAD == 0) *p.result = lane;
}
