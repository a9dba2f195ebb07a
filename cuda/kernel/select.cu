// The k values of y = x + carry that are largest in magnitude, of equal ones those of lower index: exact, and in order of
// index. An array takes all blocks and several kernels, of which one reads it: a sample tells what is most likely not among the largest, and what may be
// is put down in lists, a tenth of the array where that is asked for. From these the k-th magnitude is found 11, 10 and 10 bits at a time; then each tile
// counts what it has to write, a scan tells it where, and it writes. A sample that was wrong costs two passes more, and a tile whose list does not fit is read itself: both
// are exact. No step depends on the order in which blocks run. A chunk that is encoded takes one block and one kernel, with the same digits: a model has hundreds.
#include "chosen.cuh"

// What is known of the k-th largest magnitude.
struct Threshold {
	u32 least; // its bits from known on
	u32 known;
	u64 k; // how many of those that share these bits are among the k largest
};

// What is counted, each in a histogram of its own, and the threshold that follows.
enum Counted {
	SAMPLED,   // the first digit in a sample; the threshold is a guess
	SIEVED,    // in what was listed: enough, or the guess was too high, and nothing is known
	RECOUNTED, // in all values, where nothing was known
	SECOND,
	THIRD,
};

struct SelectArgs {
	const f32 *x, *carry; // carry: 0 for none
	f32 *y;               // 0: it is x
	f32 *residual;        // 0: nobody keeps it; else y
	u64 n, k;
	u64 likely; // how many of a sample are as large as a guess: some more than the k largest have there
	Threshold *threshold; // of each of Counted
	u32 *histogram;       // of each, BINS, zero at first
	u32 *listed;          // of each tile, how many of its values are not less than the guess
	f32 *list;            // of each tile, ROOM for these
	u16 *place;           // where in the tile they are
	u32 *found;           // of each tile, how many are above the threshold, and from bit 16 on how many are equal to it
	u32 *above, *ties;    // of each WARPS tiles, then of those before them
	i32 *index;
	f32 *value;
	u64 tiles, counted; // counted: what the kernel counts
};

enum { THREADS = 256, WARPS = THREADS / 32, BINS = 2048, COPIES = 4, ROUNDS = 4, TILE = ROUNDS * 4 * THREADS, CROWD = 6 };

// A list has room for a quarter of its tile: the largest tenth of random values fits, and memory is bounded whatever the values are.
enum { ROOM = TILE / 4, STEP = ROUNDS * 4 * 32, AT_ONCE = 8 };

template <int N> struct alignas(16) Histograms {
	u32 count[N][BINS]; // gradients crowd into few bins: warps that share one would wait for each other
};

template <int N> DEVICE void clear(Histograms<N> &h) {
	for (u32 b = THREAD; b < BINS; b += THREADS)
#pragma unroll
		for (int c = 0; c < N; c++) h.count[c][b] = 0;
	sync();
}

template <int N> DEVICE void merge(Histograms<N> &h, u32 *histogram) {
	sync();
	for (u32 b = THREAD; b < BINS; b += THREADS) {
		u32 all = 0;
#pragma unroll
		for (int c = 0; c < N; c++) all += h.count[c][b];
		if (all) atomic_add(histogram + b, all);
	}
}

// How many of the values from lo on are of a tile that begins there.
DEVICE u32 part(u64 lo, u64 n) { return n - lo < TILE ? (u32)(n - lo) : TILE; }

// Where in a tile a thread has four values in each round.
struct Spots {
	u32 first, step;
	DEVICE_MEMBER u32 operator()(int round) const { return first + step * round; }
};
DEVICE Spots spots_of_block() { return {4 * THREAD, 4 * THREADS}; }
DEVICE Spots spots_of_warp(u32 lo) { return {lo + 4 * (THREAD % 32), 4 * 32}; }

// Loads what a thread has of a tile that begins at x, before any of it is used.
DEVICE void load_tile(const f32 *x, u32 have, Spots spot, Four (&v)[ROUNDS]) {
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) v[r] = spot(r) < have ? load(x, spot(r)) : Four();
}

DEVICE u32 magnitude(f32 v) { return bits_of(v) & 0x7fffffff; }
DEVICE u32 width(u32 known) { return known == 31 ? 11 : 10; }

DEVICE void count_value(u32 *histogram, f32 y, u32 least, u32 known) {
	const u32 m = magnitude(y), shift = known - width(known);
	if (m >> known == least >> known) atomic_add(histogram + (m >> shift & ((1u << width(known)) - 1)), 1);
}

template <int N> DEVICE u32 *histogram_of_warp(Histograms<N> &h) { return h.count[THREAD / 32 % N]; }

DEVICE void count_values(Histograms<COPIES> &h, const Four &y, u32 i, u32 have, u32 least, u32 known) {
#pragma unroll
	for (int e = 0; e < 4; e++)
		if (i + e < have) count_value(histogram_of_warp(h), y.v[e], least, known);
}

// Adds what is carried, and keeps y: each where there is an array for it.
DEVICE void feed(const f32 *carry, f32 *y, u64 lo, u32 have, Spots spot, Four (&v)[ROUNDS]) {
	if (carry) {
		Four c[ROUNDS];
		load_tile(carry + lo, have, spot, c);
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

struct Sums {
	u32 of_warp[2][WARPS];
};

enum { EACH = BINS / THREADS }; // bins of a thread, from top down, or tiles

// Finds the bin of the k-th largest, from the highest down, and makes it known, if so many were counted. It has one barrier, before which all have read the threshold.
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

struct Finding {
	Threshold threshold;
	Sums sums;
};

// The threshold with one more digit, of what was counted. Every block finds it, which takes less time than another launch would; the first one keeps it.
DEVICE Threshold find(const SelectArgs &a, const Threshold &from, Counted counted, Finding &sh) {
	if (THREAD == 0) sh.threshold = from;
	u32 mine[EACH];
	const u32 top = BINS - 1 - EACH * THREAD;
#pragma unroll
	for (int b = 0; b < EACH; b++) mine[b] = a.histogram[counted * BINS + top - b];
	sync();
	next_digit(sh.threshold, mine, top, sh.sums.of_warp[0]);
	sync();
	const Threshold t = sh.threshold;
	if (BLOCK == 0 && THREAD == 0) a.threshold[counted] = t;
	return t;
}

// Counts the first digit in a sample: of each tile eight values in a row, which are one access to memory, from a random place in each quarter.
KERNEL_CROWD(select_sample, SelectArgs, THREADS, CROWD) {
	SHARED(Histograms<COPIES>, h);
	clear(h);
	const u64 stride = BLOCKS * WARPS;
	for (u64 t = BLOCK * WARPS + THREAD / 32; t < a.tiles; t += AT_ONCE * stride) {
		f32 y[AT_ONCE], c[AT_ONCE];
		bool is[AT_ONCE];
#pragma unroll
		for (int u = 0; u < AT_ONCE; u++) {
			const u64 quarter = 4 * (t + u * stride) + THREAD % 32 / 8;
			const u64 i = quarter * (TILE / 4) + noise(1, 2, (u32)quarter) % (TILE / 32) * 8 + THREAD % 8;
			is[u] = i < a.n;
			y[u] = is[u] ? a.x[i] : 0;
			c[u] = is[u] && a.carry ? a.carry[i] : 0;
		}
#pragma unroll
		for (int u = 0; u < AT_ONCE; u++)
			if (is[u]) count_value(histogram_of_warp(h), a.carry ? add(y[u], c[u]) : y[u], 0, 31);
	}
	merge(h, a.histogram + SAMPLED * BINS);
}

struct Sieve {
	Histograms<1> h; // few are counted
	Finding finding;
	alignas(16) f32 value[WARPS][STEP]; // of a step of each warp: all,
	u16 place[WARPS][STEP];             // and where those are that it lists
};

// Which of the values of a lane, four in each round, are not less. Those from have on are not there.
DEVICE u32 not_less(const Four (&v)[ROUNDS], u32 least, Spots spot, u32 have) {
	u32 mask = 0;
#pragma unroll
	for (int r = 0; r < ROUNDS; r++)
#pragma unroll
		for (int e = 0; e < 4; e++) mask |= magnitude(v[r].v[e]) >= least ? 1u << (4 * r + e) : 0;
	if (spot(ROUNDS - 1) + 4 <= have) return mask;
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) {
		const u32 there = have > spot(r) ? have - spot(r) : 0;
		if (there < 4) mask &= ~(0xfu << there & 0xf) << 4 * r | ~(0xfu << 4 * r);
	}
	return mask;
}

// Where the first value that a lane lists of each round belongs, 16 bits for each, and how many all lanes list. At most 128 are of a round: a byte has
// room for the sums over lanes, so one scan is enough for all rounds.
DEVICE u64 places(u32 mask, u32 &all) {
	u32 sums = 0;
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) sums |= (u32)count_bits(mask & 0xfu << 4 * r) << 8 * r;
	const u32 mine = sums;
#pragma unroll
	for (int w = 1; w < 32; w *= 2) {
		const u32 other = shuffle_up(sums, w);
		if (THREAD % 32 >= (u32)w) sums += other;
	}
	const u32 of_rounds = shuffle(sums, 31);
	sums -= mine;
	u64 to = 0;
	all = 0;
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) {
		to |= (u64)(all + (sums >> 8 * r & 0xff)) << 16 * r;
		all += of_rounds >> 8 * r & 0xff;
	}
	return to;
}

// Adds what is carried, keeps y, lists what may be among the largest, in order, and counts the first digit of that. A warp has a tile to itself, and waits for no other.
// Where the guess was too high it does so again, of y, with the first digit in place of the guess.
KERNEL_CROWD(select_sieve, SelectArgs, THREADS, 5) {
	SHARED(Sieve, sh);
	const bool again = a.counted == RECOUNTED;
	if (again && a.threshold[SIEVED].known < 31) {
		if (BLOCK == 0 && THREAD == 0) a.threshold[RECOUNTED] = a.threshold[SIEVED];
		return;
	}
	const u32 least = find(a, {0, 31, again ? a.k : a.likely}, again ? RECOUNTED : SAMPLED, sh.finding).least;
	clear(sh.h);
	const u32 warp = THREAD / 32, lane = THREAD % 32;
	for (u64 t = BLOCK * WARPS + warp; t < a.tiles; t += BLOCKS * WARPS) {
		const u64 lo = t * TILE;
		const u32 have = part(lo, a.n);
		u32 listed = 0;
		for (u32 step = 0; step < have; step += STEP) {
			const Spots spot = spots_of_warp(step);
			Four v[ROUNDS];
			load_tile(a.x + lo, have, spot, v);
			feed(a.carry, a.y, lo, have, spot, v);
			u32 mask = not_less(v, least, spot, have), more;
			u64 to = places(mask, more);
			if (!more) continue;
#pragma unroll
			for (int r = 0; r < ROUNDS; r++) *(Four *)&sh.value[warp][spot(r) - step] = v[r];
			for (; mask; mask &= mask - 1) {
				const u32 bit = count_bits((mask & (0 - mask)) - 1), shift = bit / 4 * 16;
				sh.place[warp][to >> shift & 0xffff] = (u16)(spot(bit / 4) - step + bit % 4);
				to += (u64)1 << shift;
			}
			sync_warp(); // the step is whole
			for (u32 j = lane; j < more; j += 32) {
				const u32 place = sh.place[warp][j];
				const f32 value = sh.value[warp][place];
				count_value(sh.h.count[0], value, 0, 31);
				if (listed + j >= ROOM) continue;
				a.list[t * ROOM + listed + j] = value;
				a.place[t * ROOM + listed + j] = (u16)(step + place);
			}
			sync_warp(); // and has been read
			listed += more;
		}
		if (lane == 0) a.listed[t] = listed;
	}
	if (!again) merge(sh.h, a.histogram + SIEVED * BINS);
}

struct Counting {
	Histograms<COPIES> h;
	Finding finding;
};

// Counts the first digit of all values, if it is not known.
KERNEL_CROWD(select_recount, SelectArgs, THREADS, CROWD) {
	SHARED(Counting, sh);
	if (find(a, {0, 31, a.k}, SIEVED, sh.finding).known < 31) return;
	clear(sh.h);
	const f32 *y = a.y ? a.y : a.x;
	const Spots spot = spots_of_block();
	for (u64 lo = BLOCK * TILE; lo < a.n; lo += BLOCKS * TILE) {
		const u32 have = part(lo, a.n);
		Four v[ROUNDS];
		load_tile(y + lo, have, spot, v);
#pragma unroll
		for (int r = 0; r < ROUNDS; r++) count_values(sh.h, v[r], spot(r), have, 0, 31);
	}
	merge(sh.h, a.histogram + RECOUNTED * BINS);
}

// Where the values of a tile are that may be among the largest: its list, or where that did not fit the tile.
struct Candidates {
	const f32 *value;
	const u16 *place; // 0: in the order of the tile
	u32 count;
};

DEVICE Candidates candidates(const SelectArgs &a, u64 t) {
	const u32 listed = a.listed[t];
	if (listed <= ROOM) return {a.list + t * ROOM, a.place + t * ROOM, listed};
	return {(a.y ? a.y : a.x) + t * TILE, 0, part(t * TILE, a.n)};
}

// Calls each(v, j) for what a lane has of them, of which AT_ONCE are loaded before the first is used. All lanes call it together; j may be past the end.
template <class Each> DEVICE void visit(const Candidates &c, Each each) {
	IN_GLOBAL(c.value);
	for (u32 lo = 0; lo < c.count; lo += 32 * AT_ONCE) {
		const u32 first = lo + THREAD % 32;
		f32 v[AT_ONCE];
#pragma unroll
		for (int u = 0; u < AT_ONCE; u++) v[u] = first + 32 * u < c.count ? c.value[first + 32 * u] : 0;
#pragma unroll
		for (int u = 0; u < AT_ONCE; u++)
			if (lo + 32 * u < c.count) each(v[u], first + 32 * u);
	}
}

// Counts the second or third digit among the values that share what is known.
KERNEL_CROWD(select_count, SelectArgs, THREADS, CROWD) {
	SHARED(Counting, sh);
	Threshold t = a.threshold[RECOUNTED];
	if (a.counted == THIRD) t = find(a, t, SECOND, sh.finding);
	clear(sh.h);
	for (u64 tile = BLOCK * WARPS + THREAD / 32; tile < a.tiles; tile += BLOCKS * WARPS) {
		const Candidates c = candidates(a, tile);
		visit(c, [&](f32 v, u32 j) {
			if (j < c.count) count_value(histogram_of_warp(sh.h), v, t.least, t.known);
		});
	}
	merge(sh.h, a.histogram + a.counted * BINS);
}

DEVICE u64 blocks_of_tiles(const SelectArgs &a) { return (a.tiles + WARPS - 1) / WARPS; }

// Counts, for each tile, the values above the threshold and those equal to it. A warp for each tile.
KERNEL_CROWD(select_tiles, SelectArgs, THREADS, CROWD) {
	SHARED(Finding, sh);
	const u32 least = find(a, a.threshold[SECOND], THIRD, sh).least;
	u32 turn = 0;
	for (u64 block = BLOCK; block < blocks_of_tiles(a); block += BLOCKS) {
		const u64 t = block * WARPS + THREAD / 32;
		u32 found = 0; // above in the lower half, ties in the upper: at most 4096 of each, and 32768 of all warps
		if (t < a.tiles) {
			const Candidates c = candidates(a, t);
			visit(c, [&](f32 v, u32 j) {
				const u32 m = magnitude(v);
				if (j < c.count) found += m > least ? 1 : m == least ? 1 << 16 : 0;
			});
		}
#pragma unroll
		for (int w = 16; w > 0; w /= 2) found += shuffle_down(found, w);
		if (THREAD % 32 == 0) {
			sh.sums.of_warp[turn][THREAD / 32] = found;
			if (t < a.tiles) a.found[t] = found;
		}
		sync();
		if (THREAD == 0) {
			u32 all = 0;
			for (u32 w = 0; w < WARPS; w++) all += sh.sums.of_warp[turn][w];
			a.above[block] = all & 0xffff;
			a.ties[block] = all >> 16;
		}
		turn ^= 1; // the next ones are written while these are read
	}
}

// Turns the counts of WARPS tiles each into the sums of those before. One block.
KERNEL(select_scan, SelectArgs, THREADS) {
	SHARED(Sums, sh);
	const u64 blocks = blocks_of_tiles(a);
	u32 above = 0, ties = 0; // of the tiles of the rounds before
	for (u64 lo = 0; lo < blocks; lo += EACH * THREADS) {
		const u64 t = lo + EACH * THREAD;
		u32 x[EACH], y[EACH], sum_x = 0, sum_y = 0, all_above, all_ties;
#pragma unroll
		for (int k = 0; k < EACH; k++) {
			x[k] = t + k < blocks ? a.above[t + k] : 0;
			y[k] = t + k < blocks ? a.ties[t + k] : 0;
			sum_x += x[k];
			sum_y += y[k];
		}
		u32 upto = above + before(sum_x, sh.of_warp[0], all_above), tie = ties + before(sum_y, sh.of_warp[1], all_ties);
#pragma unroll
		for (int k = 0; k < EACH; k++) {
			if (t + k >= blocks) break;
			a.above[t + k] = upto;
			a.ties[t + k] = tie;
			upto += x[k];
			tie += y[k];
		}
		above += all_above;
		ties += all_ties;
	}
}

// Writes the selected values of a tile where the scan says, and takes them out of the residual. A warp for each tile.
KERNEL_CROWD(select_write, SelectArgs, THREADS, CROWD) {
	const u64 t = BLOCK * WARPS + THREAD / 32, lo = t * TILE;
	if (t >= a.tiles) return;
	const u32 least = a.threshold[THIRD].least, allowed = (u32)a.threshold[THIRD].k, below = (1u << THREAD % 32) - 1;
	u32 above = a.above[BLOCK], ties = a.ties[BLOCK];
	for (u64 other = BLOCK * WARPS; other < t; other++) {
		above += a.found[other] & 0xffff;
		ties += a.found[other] >> 16;
	}
	const Candidates c = candidates(a, t);
	visit(c, [&](f32 v, u32 j) {
		const u32 m = magnitude(v);
		const bool higher = j < c.count && m > least, equal = j < c.count && m == least;
		const u32 all_higher = ballot(higher), all_equal = ballot(equal);
		const u32 tie = ties + count_bits(all_equal & below);
		if (higher || equal && tie < allowed) {
			const u32 to = above + count_bits(all_higher & below) + (tie < allowed ? tie : allowed);
			const u64 i = lo + (c.place ? c.place[j] : j);
			a.index[to] = (i32)i;
			a.value[to] = v;
			if (a.residual) a.residual[i] = 0;
		}
		above += count_bits(all_higher);
		ties += count_bits(all_equal);
	});
}

struct Choices {
	const Chosen *chunks;
};

struct Encoding {
	Histograms<COPIES> h;
	Sums sums;
	Threshold threshold;
};

// Finds the threshold of a chunk, whose y is kept at y.
DEVICE void find_threshold(const Chosen &a, f32 *y, Encoding &sh) {
	if (THREAD == 0) sh.threshold = {0, 31, a.k};
	const u32 top = BINS - 1 - EACH * THREAD;
	const Spots spot = spots_of_block();
	for (int digit = 0; digit < 3; digit++) {
		clear(sh.h); // its barrier: all see what the digit before has made known
		const u32 least = sh.threshold.least, known = sh.threshold.known;
		for (u64 lo = 0; lo < a.n; lo += TILE) {
			const u32 have = part(lo, a.n);
			Four v[ROUNDS];
			load_tile((digit ? y : a.x) + lo, have, spot, v);
			if (digit == 0 && a.carry) feed(a.carry, y, lo, have, spot, v);
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
