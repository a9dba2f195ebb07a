// The k values of y = x + carry that are largest in magnitude, of equal ones those of lower index: exact, and in order of
// index. The k-th magnitude is found 11, 10 and 10 bits at a time; then each tile counts what it has to write, a scan
// tells it where, and it writes. No step depends on the order in which blocks run.
#include "kdev.cuh"

// What is known of the k-th largest magnitude.
struct Threshold {
	u32 least; // its bits from known on
	u32 known;
	u64 k; // how many of those that share these bits are among the k largest
};

struct SelectArgs {
	const f32 *x, *carry; // carry: 0 for none
	f32 *y;               // 0: it is x
	f32 *residual;        // 0: nobody keeps it; else y
	u64 n;
	Threshold *threshold;
	u32 *histogram; // of BINS, zero at first and after select_digit
	u32 *above, *ties; // of each tile, then of those before it
	i32 *index;
	f32 *value;
	u64 tiles;
};

enum { THREADS = 256, WARPS = THREADS / 32, BINS = 2048, COPIES = 4, ROUNDS = 4, TILE = ROUNDS * 4 * THREADS };

struct alignas(16) Histograms {
	u32 count[COPIES][BINS]; // gradients crowd into few bins: warps that share one would wait for each other
};

DEVICE void clear(Histograms &h) {
	for (u32 b = THREAD; b < BINS; b += THREADS)
#pragma unroll
		for (int c = 0; c < COPIES; c++) h.count[c][b] = 0;
	sync();
}

DEVICE void merge(Histograms &h, u32 *histogram) {
	sync();
	for (u32 b = THREAD; b < BINS; b += THREADS) {
		u32 all = 0;
#pragma unroll
		for (int c = 0; c < COPIES; c++) all += h.count[c][b];
		if (all) atomic_add(histogram + b, all);
	}
}

DEVICE Four at(const f32 *y, u64 i, u64 n) { return i < n ? load(y, i, n) : Four(); }
DEVICE u32 magnitude(f32 v) { return bits_of(v) & 0x7fffffff; }
DEVICE u32 width(u32 known) { return known == 31 ? 11 : 10; }

DEVICE void count_values(Histograms &h, const Four &y, u64 i, u64 n, u32 least, u32 known) {
	const u32 shift = known - width(known);
	u32 *mine = h.count[THREAD / 32 % COPIES];
#pragma unroll
	for (int e = 0; e < 4; e++) {
		const u32 m = magnitude(y.v[e]);
		if (i + e < n && m >> known == least >> known) atomic_add(mine + (m >> shift & ((1u << width(known)) - 1)), 1);
	}
}

// Adds what is carried, keeps y, and counts the first digit.
KERNEL(select_feed, SelectArgs, THREADS) {
	SHARED(Histograms, h);
	clear(h);
	for (u64 tile = BLOCK; tile < a.tiles; tile += BLOCKS) {
#pragma unroll
		for (int r = 0; r < ROUNDS; r++) {
			const u64 i = tile * TILE + 4 * (r * THREADS + THREAD);
			if (i >= a.n) break;
			Four y = load(a.x, i, a.n);
			if (a.carry) {
				const Four c = load(a.carry, i, a.n);
#pragma unroll
				for (int e = 0; e < 4; e++) y.v[e] = add(y.v[e], c.v[e]);
			}
			if (a.y) store(a.y, i, a.n, y);
			count_values(h, y, i, a.n, 0, 31);
		}
	}
	merge(h, a.histogram);
}

// Counts the next digit among the values that share what is known.
KERNEL(select_count, SelectArgs, THREADS) {
	SHARED(Histograms, h);
	clear(h);
	const f32 *y = a.y ? a.y : a.x;
	const u32 least = a.threshold->least, known = a.threshold->known;
	for (u64 tile = BLOCK; tile < a.tiles; tile += BLOCKS) {
		Four v[ROUNDS];
#pragma unroll
		for (int r = 0; r < ROUNDS; r++) v[r] = at(y, tile * TILE + 4 * (r * THREADS + THREAD), a.n);
#pragma unroll
		for (int r = 0; r < ROUNDS; r++) count_values(h, v[r], tile * TILE + 4 * (r * THREADS + THREAD), a.n, least, known);
	}
	merge(h, a.histogram);
}

struct Sums {
	u32 of_warp[2][WARPS];
};

// The sums of v over the threads before this one, and over all.
DEVICE u32 before(u32 v, u32 (&of_warp)[WARPS], u32 &all) { return scan(v, of_warp, all) - v; }

// Finds the bin of the k-th largest, from the highest down, and clears the histogram. One block.
KERNEL(select_digit, SelectArgs, THREADS) {
	SHARED(Sums, sh);
	enum { EACH = BINS / THREADS };
	u32 mine[EACH], sum = 0;
	const u32 top = BINS - 1 - EACH * THREAD;
#pragma unroll
	for (int b = 0; b < EACH; b++) {
		mine[b] = a.histogram[top - b];
		sum += mine[b];
		a.histogram[top - b] = 0;
	}
	const u64 k = a.threshold->k;
	const u32 known = a.threshold->known, least = a.threshold->least;
	u32 all;
	u64 higher = before(sum, sh.of_warp[0], all); // its barrier: all have read the threshold
	if (higher >= k || higher + sum < k) return;
	u32 b = 0;
	for (; higher + mine[b] < k; b++) higher += mine[b];
	const u32 shift = known - width(known);
	a.threshold->least = least | (top - b) << shift;
	a.threshold->known = shift;
	a.threshold->k = k - higher;
}

// Counts, for each tile, the values above the threshold and those equal to it.
KERNEL(select_tiles, SelectArgs, THREADS) {
	SHARED(Sums, sh);
	const f32 *y = a.y ? a.y : a.x;
	const u32 least = a.threshold->least;
	Four v[ROUNDS];
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) v[r] = at(y, BLOCK * TILE + 4 * (r * THREADS + THREAD), a.n);
	u32 above = 0, ties = 0;
#pragma unroll
	for (int r = 0; r < ROUNDS; r++)
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const u32 m = magnitude(v[r].v[e]);
			above += m > least;
			ties += m == least && BLOCK * TILE + 4 * (r * THREADS + THREAD) + e < a.n;
		}
#pragma unroll
	for (int w = 16; w > 0; w /= 2) {
		above += shuffle_down(above, w);
		ties += shuffle_down(ties, w);
	}
	if (THREAD % 32 == 0) {
		sh.of_warp[0][THREAD / 32] = above;
		sh.of_warp[1][THREAD / 32] = ties;
	}
	sync();
	if (THREAD > 1) return;
	u32 all = 0;
	for (u32 w = 0; w < WARPS; w++) all += sh.of_warp[THREAD][w];
	u32 *const to = THREAD ? a.ties : a.above;
	to[BLOCK] = all;
}

// Turns the counts of tiles into the sums of those before. One block.
KERNEL(select_scan, SelectArgs, THREADS) {
	SHARED(Sums, sh);
	u32 above = 0, ties = 0; // of the tiles of the rounds before
	for (u64 lo = 0; lo < a.tiles; lo += THREADS) {
		const u64 t = lo + THREAD;
		u32 all_above, all_ties;
		const u32 x = before(t < a.tiles ? a.above[t] : 0, sh.of_warp[0], all_above);
		const u32 y = before(t < a.tiles ? a.ties[t] : 0, sh.of_warp[1], all_ties);
		if (t < a.tiles) {
			a.above[t] = above + x;
			a.ties[t] = ties + y;
		}
		above += all_above;
		ties += all_ties;
	}
}

// Writes the selected values of a tile where the scan says, and takes them out of the residual.
KERNEL(select_write, SelectArgs, THREADS) {
	SHARED(Sums, sh);
	const f32 *y = a.y ? a.y : a.x;
	const u32 least = a.threshold->least, allowed = (u32)a.threshold->k;
	u32 above = a.above[BLOCK], ties = a.ties[BLOCK];
	Four v[ROUNDS];
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) v[r] = at(y, BLOCK * TILE + 4 * (r * THREADS + THREAD), a.n);
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) {
		const u64 i = BLOCK * TILE + 4 * (r * THREADS + THREAD);
		u32 mine_above = 0, mine_ties = 0, all_above, all_ties;
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const u32 m = magnitude(v[r].v[e]);
			mine_above += m > least;
			mine_ties += m == least && i + e < a.n;
		}
		u32 upto = above + before(mine_above, sh.of_warp[0], all_above), tie = ties + before(mine_ties, sh.of_warp[1], all_ties);
#pragma unroll
		for (int e = 0; e < 4; e++) {
			if (i + e >= a.n) break;
			const u32 m = magnitude(v[r].v[e]);
			if (m > least || m == least && tie < allowed) {
				const u32 to = upto + (tie < allowed ? tie : allowed);
				a.index[to] = (i32)(i + e);
				a.value[to] = v[r].v[e];
				if (a.residual) a.residual[i + e] = 0;
			}
			upto += m > least;
			tie += m == least;
		}
		above += all_above;
		ties += all_ties;
	}
}
