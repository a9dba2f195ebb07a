// The k values of y = x + carry that are largest in magnitude, of equal ones those of lower index: exact, and in order of
// index. The k-th magnitude is found 11, 10 and 10 bits at a time; then each tile counts what it has to write, a scan
// tells it where, and it writes. No step depends on the order in which blocks run. An array takes all blocks and several kernels; a chunk that is
// encoded takes one block and one kernel, with the same digits: a model has hundreds.
#include "chosen.cuh"

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

enum { THREADS = 256, WARPS = THREADS / 32, BINS = 2048, COPIES = 4, ROUNDS = 4, TILE = ROUNDS * 4 * THREADS, CROWD = 6 };

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

// How many of the values from lo on are of a tile that begins there.
DEVICE u32 part(u64 lo, u64 n) { return n - lo < TILE ? (u32)(n - lo) : TILE; }

// Where in a tile a thread has four values.
DEVICE u32 spot(int round) { return 4 * (round * THREADS + THREAD); }

// Loads what a thread has of a tile that begins at x, before any of it is used.
DEVICE void load_tile(const f32 *x, u32 have, Four (&v)[ROUNDS]) {
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) v[r] = spot(r) < have ? load(x, spot(r)) : Four();
}

DEVICE u32 magnitude(f32 v) { return bits_of(v) & 0x7fffffff; }
DEVICE u32 width(u32 known) { return known == 31 ? 11 : 10; }

DEVICE void count_values(Histograms &h, const Four &y, u32 i, u32 have, u32 least, u32 known) {
	const u32 shift = known - width(known);
	u32 *mine = h.count[THREAD / 32 % COPIES];
#pragma unroll
	for (int e = 0; e < 4; e++) {
		const u32 m = magnitude(y.v[e]);
		if (i + e < have && m >> known == least >> known) atomic_add(mine + (m >> shift & ((1u << width(known)) - 1)), 1);
	}
}

// Adds what is carried, and keeps y: each where there is an array for it.
DEVICE void feed(const f32 *carry, f32 *y, u64 lo, u32 have, Four (&v)[ROUNDS]) {
	if (carry) {
		Four c[ROUNDS];
		load_tile(carry + lo, have, c);
#pragma unroll
		for (int r = 0; r < ROUNDS; r++)
#pragma unroll
			for (int e = 0; e < 4; e++) v[r].v[e] = add(v[r].v[e], c[r].v[e]);
	}
	if (!y) return;
#pragma unroll
	for (int r = 0; r < ROUNDS; r++)
		if (spot(r) < have) store(y + lo, spot(r), have, v[r]);
}

// Adds what is carried, keeps y, and counts the first digit.
KERNEL_CROWD(select_feed, SelectArgs, THREADS, CROWD) {
	SHARED(Histograms, h);
	clear(h);
	for (u64 lo = BLOCK * TILE; lo < a.n; lo += BLOCKS * TILE) {
		const u32 have = part(lo, a.n);
		Four v[ROUNDS];
		load_tile(a.x + lo, have, v);
		feed(a.carry, a.y, lo, have, v);
#pragma unroll
		for (int r = 0; r < ROUNDS; r++) count_values(h, v[r], spot(r), have, 0, 31);
	}
	merge(h, a.histogram);
}

// Counts the next digit among the values that share what is known.
KERNEL_CROWD(select_count, SelectArgs, THREADS, CROWD) {
	SHARED(Histograms, h);
	clear(h);
	const f32 *y = a.y ? a.y : a.x;
	const u32 least = a.threshold->least, known = a.threshold->known;
	for (u64 lo = BLOCK * TILE; lo < a.n; lo += BLOCKS * TILE) {
		const u32 have = part(lo, a.n);
		Four v[ROUNDS];
		load_tile(y + lo, have, v);
#pragma unroll
		for (int r = 0; r < ROUNDS; r++) count_values(h, v[r], spot(r), have, least, known);
	}
	merge(h, a.histogram);
}

struct Sums {
	u32 of_warp[2][WARPS];
};

enum { EACH = BINS / THREADS }; // bins of a thread, from top down, or tiles

// Finds the bin of the k-th largest, from the highest down, and makes it known. It has one barrier, before which all have read the threshold.
DEVICE void next_digit(Threshold &t, const u32 (&mine)[EACH], u32 top, u32 (&of_warp)[WARPS]) {
	u32 sum = 0;
#pragma unroll
	for (int b = 0; b < EACH; b++) sum += mine[b];
	const u64 k = t.k;
	const u32 known = t.known, least = t.least;
	u32 all;
	u64 higher = before(sum, of_warp, all);
	if (higher >= k || higher + sum < k) return;
	u32 bin = 0;
	u64 rest = 0;
#pragma unroll
	for (int b = 0; b < EACH; b++) {
		if (higher < k) {
			bin = b;
			rest = k - higher;
		}
		higher += mine[b];
	}
	const u32 shift = known - width(known);
	t.least = least | (top - bin) << shift;
	t.known = shift;
	t.k = rest;
}

// The next digit of the threshold, of what was counted; clears the histogram. One block.
KERNEL(select_digit, SelectArgs, THREADS) {
	SHARED(Sums, sh);
	u32 mine[EACH];
	const u32 top = BINS - 1 - EACH * THREAD;
#pragma unroll
	for (int b = 0; b < EACH; b++) {
		mine[b] = a.histogram[top - b];
		a.histogram[top - b] = 0;
	}
	next_digit(*a.threshold, mine, top, sh.of_warp[0]);
}

// Counts, for each tile, the values above the threshold and those equal to it.
KERNEL_CROWD(select_tiles, SelectArgs, THREADS, CROWD) {
	SHARED(Sums, sh);
	const f32 *y = a.y ? a.y : a.x;
	const u32 least = a.threshold->least;
	const u32 have = part(BLOCK * TILE, a.n);
	Four v[ROUNDS];
	load_tile(y + BLOCK * TILE, have, v);
	u32 above = 0, ties = 0;
#pragma unroll
	for (int r = 0; r < ROUNDS; r++)
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const u32 m = magnitude(v[r].v[e]);
			above += m > least && spot(r) + e < have;
			ties += m == least && spot(r) + e < have;
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
	for (u64 lo = 0; lo < a.tiles; lo += EACH * THREADS) {
		const u64 t = lo + EACH * THREAD;
		u32 x[EACH], y[EACH], sum_x = 0, sum_y = 0, all_above, all_ties;
#pragma unroll
		for (int k = 0; k < EACH; k++) {
			x[k] = t + k < a.tiles ? a.above[t + k] : 0;
			y[k] = t + k < a.tiles ? a.ties[t + k] : 0;
			sum_x += x[k];
			sum_y += y[k];
		}
		u32 upto = above + before(sum_x, sh.of_warp[0], all_above), tie = ties + before(sum_y, sh.of_warp[1], all_ties);
#pragma unroll
		for (int k = 0; k < EACH; k++) {
			if (t + k >= a.tiles) break;
			a.above[t + k] = upto;
			a.ties[t + k] = tie;
			upto += x[k];
			tie += y[k];
		}
		above += all_above;
		ties += all_ties;
	}
}

// Writes the selected values of a tile where the scan says, and takes them out of the residual.
KERNEL_CROWD(select_write, SelectArgs, THREADS, 5) {
	SHARED(Sums, sh);
	const f32 *y = a.y ? a.y : a.x;
	const u32 least = a.threshold->least, allowed = (u32)a.threshold->k;
	u32 above = a.above[BLOCK], ties = a.ties[BLOCK];
	const u64 lo = BLOCK * TILE;
	const u32 have = part(lo, a.n);
	Four v[ROUNDS];
	load_tile(y + lo, have, v);
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) {
		u32 mine = 0, all; // above in the lower half, ties in the upper: at most 1024 of each
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const u32 m = magnitude(v[r].v[e]);
			if (spot(r) + e < have) mine += m > least ? 1 : m == least ? 1 << 16 : 0;
		}
		mine = before(mine, sh.of_warp[r % 2], all);
		u32 upto = above + (mine & 0xffff), tie = ties + (mine >> 16);
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const u32 m = magnitude(v[r].v[e]);
			if (spot(r) + e < have && (m > least || m == least && tie < allowed)) {
				const u32 to = upto + (tie < allowed ? tie : allowed);
				a.index[to] = (i32)(lo + spot(r) + e);
				a.value[to] = v[r].v[e];
				if (a.residual) a.residual[lo + spot(r) + e] = 0;
			}
			upto += m > least;
			tie += m == least;
		}
		above += all & 0xffff;
		ties += all >> 16;
	}
}

struct Choices {
	const Chosen *chunks;
};

struct Encoding {
	Histograms h;
	Sums sums;
	Threshold threshold;
};

// Finds the threshold of a chunk, whose y is kept at y.
DEVICE void find_threshold(const Chosen &a, f32 *y, Encoding &sh) {
	if (THREAD == 0) sh.threshold = {0, 31, a.k};
	const u32 top = BINS - 1 - EACH * THREAD;
	for (int digit = 0; digit < 3; digit++) {
		clear(sh.h); // its barrier: all see what the digit before has made known
		const u32 least = sh.threshold.least, known = sh.threshold.known;
		for (u64 lo = 0; lo < a.n; lo += TILE) {
			const u32 have = part(lo, a.n);
			Four v[ROUNDS];
			load_tile((digit ? y : a.x) + lo, have, v);
			if (digit == 0 && a.carry) feed(a.carry, y, lo, have, v);
#pragma unroll
			for (int r = 0; r < ROUNDS; r++) count_values(sh.h, v[r], spot(r), have, least, known);
		}
		sync();
		u32 mine[EACH];
#pragma unroll
		for (int b = 0; b < EACH; b++) {
			mine[b] = 0;
#pragma unroll
			for (int c = 0; c < COPIES; c++) mine[b] += sh.h.count[c][top - b];
		}
		next_digit(sh.threshold, mine, top, sh.sums.of_warp[0]);
	}
	sync();
}

// Splits y into what is sent and what is left, and returns of how many values the index was written.
DEVICE u32 split(const Chosen &a, const f32 *y, Encoding &sh) {
	const u32 least = sh.threshold.least, allowed = (u32)sh.threshold.k;
	u32 above = 0, ties = 0, turn = 0; // of the values before
	for (u64 lo = 0; lo < a.n; lo += 4 * THREADS) {
		const u64 i = lo + 4 * THREAD;
		const Four v = i < a.n ? load(y, i) : Four();
		Four sent = Four(), left = v;
		u32 mine = 0, all; // above in the lower half, ties in the upper: at most 1024 of each
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const u32 m = magnitude(v.v[e]);
			if (i + e < a.n) mine += m > least ? 1 : m == least ? 1 << 16 : 0;
		}
		mine = before(mine, sh.sums.of_warp[turn], all);
		turn ^= 1;
		u32 upto = above + (mine & 0xffff), tie = ties + (mine >> 16);
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const u32 m = magnitude(v.v[e]);
			if (i + e < a.n && (m > least || m == least && tie < allowed)) {
				left.v[e] = 0;
				if (m > 0) { // zeros need not be sent; where there are some among the chosen, nothing else is tied
					sent.v[e] = v.v[e];
					if (a.width == 2) {
						sent.v[e] = from_bf16(round_bf16(v.v[e]));
						left.v[e] = sub(v.v[e], sent.v[e]);
					}
					a.index[upto + (least == 0 ? 0 : tie < allowed ? tie : allowed)] = (u32)(i + e);
				}
			}
			upto += m > least;
			tie += m == least;
		}
		if (i < a.n) {
			store(a.decoded, i, a.n, sent);
			if (a.residual) store(a.residual, i, a.n, left);
		}
		above += all & 0xffff;
		ties += all >> 16;
	}
	return least == 0 ? above : (u32)a.k;
}

// Encodes a chunk for each block.
KERNEL_CROWD(select_encode, Choices, THREADS, 5) {
	SHARED(Encoding, sh);
	const Chosen c = a.chunks[BLOCK]; // a copy: no store can change it
	f32 *const y = c.carry ? c.decoded : (f32 *)c.x;
	find_threshold(c, y, sh);
	const u32 count = split(c, y, sh);
	sync(); // the index and what is sent are whole
	write_payload(c, count, sh.sums.of_warp);
}
