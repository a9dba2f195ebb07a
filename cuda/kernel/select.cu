// Selects the k values of y = x + carry with the largest magnitudes. The selection is exact: among
// equal magnitudes the lower index wins, and the result is in order of index. Twin of
// kernels/select.go.
//
// A large array is selected from by a sequence of kernels, each of which uses the whole GPU:
//
//   select_sample   counts a sample of 32 values of each tile of 4096. This gives a guess: a
//                   magnitude that is most likely not above the k-th largest.
//   select_sieve    reads the whole array. It computes y and lists the values that are not below
//                   the guess, with one list for each tile.
//   select_recount  does nothing unless the guess was too high. Then this kernel counts all values,
//   select_sieve    and a second sieve makes the lists again.
//   select_count    counts the second digit of the k-th magnitude in the lists; again, the third.
//   select_tiles    counts the values that each tile has to write.
//   select_scan     says where each tile has to write; it has a single block.
//   select_write    writes.
//
// The digits of a magnitude have 11, 10 and 10 bits. A digit of the k-th magnitude follows from a
// histogram of that digit. If 10 % of the values are wanted, the lists hold a little more than 10 %
// of the array. A list that does not fit is not used: its tile is read from the array instead. So a
// bad guess or a full list costs time and not exactness.
//
// Blocks of one kernel communicate through integer atomics alone, whose result does not depend on
// the order of blocks. So all bits are the same in every run.
//
// select_encode encodes chunks as sparse payloads, in one launch with one block for each chunk,
// because a model has hundreds of chunks. It finds the same digits.
#include "chosen.cuh"

// What is known of the k-th largest magnitude, as an integer of 31 bits.
struct Threshold {
	u32 least; // its bits from bit `known` up; the bits below are 0
	u32 known; // 31: nothing is known; then 20 and 10; 0: all bits are known
	u64 k;     // its rank among the values that share these bits; at last, how many ties count
};

// Histograms, and the thresholds that follow from them.
enum Counted {
	SAMPLED,   // first digit, of the sample; the threshold is the guess
	SIEVED,    // first digit, of the listed values; known stays 31 if fewer than k were listed
	RECOUNTED, // first digit, of all values, if known has stayed 31; else a copy of SIEVED
	SECOND,    // second digit, of the values that share the first
	THIRD,     // third digit, of the values that share the first two
};

struct SelectArgs {
	const f32 *x, *carry; // carry: 0 for none
	f32 *y;               // receives y; 0: y is x
	f32 *residual;        // is y, and gets 0 where a value is selected; 0: not wanted
	u64 n, k;
	u64 likely; // the rank of the guess in the sample: that expected of the k-th, and a margin
	Threshold *threshold; // one for each of Counted
	u32 *histogram;       // BINS for each of Counted; all 0 at first
	u32 *listed;          // for each tile, the number of values that are not below the guess
	f32 *list;            // for each tile, room for ROOM of these values, in order of index
	u16 *place;           // for each entry of list, its index in its tile
	u32 *found;           // for each tile: bits 0 to 15, values above the threshold; 16 to 31, ties
	// For each WARPS tiles, the number of values above the threshold, and of ties. select_scan
	// turns them into the sums over all tiles before.
	u32 *above, *ties;
	i32 *index; // receives the indices of the selected values, ascending
	f32 *value; // receives the selected values
	// counted: the histogram that select_count counts, one of Counted. For select_sieve, RECOUNTED
	// says that it is the second sieve.
	u64 tiles, counted;
};

// CROWD is the number of blocks that are to run on a multiprocessor at the same time. A thread
// takes a vector of four values in each of ROUNDS rounds, and a block a TILE.
enum { THREADS = 256, WARPS = THREADS / 32, BINS = 2048, COPIES = 4, ROUNDS = 4, TILE = ROUNDS * 4 * THREADS, CROWD = 6 };

// A list has ROOM for a quarter of its tile. The largest tenth of random values fits. Memory is
// bounded, whatever the values are. A warp goes through its tile in pieces of STEP values. AT_ONCE
// is the number of loads of a lane that are in flight at the same time.
enum { ROOM = TILE / 4, STEP = ROUNDS * 4 * 32, AT_ONCE = 8 };

// A histogram of a digit in shared memory, in N copies of 8 KiB. Gradients crowd into few bins, so
// with one copy the atomics of all warps would wait for each other.
template <int N> struct alignas(16) Histograms {
	u32 count[N][BINS];
};

// Sets all bins to 0. Without its barrier, threads would count in bins that are not cleared yet.
template <int N> DEVICE void clear(Histograms<N> &h) {
	for (u32 b = THREAD; b < BINS; b += THREADS)
#pragma unroll
		for (int c = 0; c < N; c++) h.count[c][b] = 0;
	sync();
}

// Adds the copies to a histogram in global memory. Without its barrier, threads would read bins in
// which others still count.
template <int N> DEVICE void merge(Histograms<N> &h, u32 *histogram) {
	sync();
	for (u32 b = THREAD; b < BINS; b += THREADS) {
		u32 all = 0;
#pragma unroll
		for (int c = 0; c < N; c++) all += h.count[c][b];
		if (all) atomic_add(histogram + b, all);
	}
}

// Returns the number of values of a tile that begins at lo.
DEVICE u32 part(u64 lo, u64 n) { return n - lo < TILE ? (u32)(n - lo) : TILE; }

// Says where a thread has its four values of each round, as an index in the tile. The threads of a
// block share a tile of 4096 values; the lanes of a warp share a step of 512 values from lo on.
struct Spots {
	u32 first, step;
	DEVICE_MEMBER u32 operator()(int round) const { return first + step * round; }
};
DEVICE Spots spots_of_block() { return {4 * THREAD, 4 * THREADS}; }
DEVICE Spots spots_of_warp(u32 lo) { return {lo + 4 * (THREAD % 32), 4 * 32}; }

// Loads the values of a thread from the tile at x, which has `have` values. It issues all loads
// before one is used. Vectors past the end are zeros.
DEVICE void load_tile(const f32 *x, u32 have, Spots spot, Four (&v)[ROUNDS]) {
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) v[r] = spot(r) < have ? load(x, spot(r)) : Four();
}

// Magnitudes of finite values order as these integers do.
DEVICE u32 magnitude(f32 v) { return bits_of(v) & 0x7fffffff; }
// The number of bits of the next digit.
DEVICE u32 width(u32 known) { return known == 31 ? 11 : 10; }

// Counts the next digit of y, if y shares the bits that are known.
DEVICE void count_value(u32 *histogram, f32 y, u32 least, u32 known) {
	const u32 m = magnitude(y), shift = known - width(known);
	if (m >> known == least >> known) atomic_add(histogram + (m >> shift & ((1u << width(known)) - 1)), 1);
}

// The copy in which a warp counts.
template <int N> DEVICE u32 *histogram_of_warp(Histograms<N> &h) { return h.count[THREAD / 32 % N]; }

DEVICE void count_values(Histograms<COPIES> &h, const Four &y, u32 i, u32 have, u32 least, u32 known) {
#pragma unroll
	for (int e = 0; e < 4; e++)
		if (i + e < have) count_value(histogram_of_warp(h), y.v[e], least, known);
}

// Adds the carry to the values of a thread, if there is one, and stores the sums to y, if wanted.
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

// Shared memory for two scans, or for one that alternates between the arrays.
struct Sums {
	u32 of_warp[2][WARPS];
};

// The number of bins of a thread, from the highest down. In select_scan, the counts of a thread.
enum { EACH = BINS / THREADS };

// Makes the next digit of a threshold in shared memory known: it finds the bin of the k-th largest
// value, from the highest bin down. mine are the counts of the thread's bins, from bin top down. If
// fewer than k values were counted, the threshold stays as it is.
//
// Only the thread that has the bin writes the threshold. All threads have read it before, since the
// barrier of the scan lies in between. The caller needs a barrier before it reads the result.
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

// Shared memory of find.
struct Finding {
	Threshold threshold;
	Sums sums;
};

// Returns threshold `from` with one more digit, which follows from a histogram in global memory.
// Every block computes it, since this takes less time than another launch. Block 0 also stores it
// for the kernels to come.
DEVICE Threshold find(const SelectArgs &a, const Threshold &from, Counted counted, Finding &sh) {
	if (THREAD == 0) sh.threshold = from;
	u32 mine[EACH];
	const u32 top = BINS - 1 - EACH * THREAD;
#pragma unroll
	for (int b = 0; b < EACH; b++) mine[b] = a.histogram[counted * BINS + top - b];
	sync(); // the old threshold is in shared memory
	next_digit(sh.threshold, mine, top, sh.sums.of_warp[0]);
	sync(); // the new one is
	const Threshold t = sh.threshold;
	if (BLOCK == 0 && THREAD == 0) a.threshold[counted] = t;
	return t;
}

// Counts the first digit of a sample. A warp takes a tile, and each group of 8 lanes takes 8
// consecutive values, one sector of memory, at a random place in a quarter of the tile. A warp
// loads from AT_ONCE tiles before it counts.
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

// Shared memory of select_sieve, 32 KiB and a little.
struct Sieve {
	Histograms<1> h; // one copy, since few values are counted
	Finding finding;
	alignas(16) f32 value[WARPS][STEP]; // for each warp, all values of its step
	u16 place[WARPS][STEP];             // and the places in the step of those to be listed
};

// Returns which of a lane's values are not below least: bit 4·r + e for value e of round r. Bits of
// values past the end, `have`, are 0.
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

// Returns where the values that a lane lists belong among those of its warp: for each round, in 16
// bits, the place of the lane's first one. It sets `all` to the number that the warp lists. The
// order is that of indices: by round, then by lane.
//
// The counts of a round add up to at most 128 over all lanes. So the four counts of a lane fit into
// the four bytes of a word, and one prefix sum serves all rounds. All lanes must call it.
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

// Computes y, lists in order the values that are not below the guess, and counts their first digit.
// A warp takes a tile and needs no other warp, so no barrier of the block lies in the loop. In each
// step, lanes find the places of the values to list, and pass them through shared memory, so that
// stores to the list are coalesced.
//
// The second launch makes the lists again, if the guess was too high. It reads y, and takes the
// first digit from the counts of all values in place of the guess. Otherwise it only copies a
// threshold.
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
			sync_warp(); // all values and places are stored; without it, lanes would read old ones
			for (u32 j = lane; j < more; j += 32) {
				const u32 place = sh.place[warp][j];
				const f32 value = sh.value[warp][place];
				count_value(sh.h.count[0], value, 0, 31);
				if (listed + j >= ROOM) continue;
				a.list[t * ROOM + listed + j] = value;
				a.place[t * ROOM + listed + j] = (u16)(step + place);
			}
			sync_warp(); // they have been read; without it, the next step would overwrite them
			listed += more;
		}
		if (lane == 0) a.listed[t] = listed;
	}
	if (!again) merge(sh.h, a.histogram + SIEVED * BINS);
}

// Shared memory of the kernels that count, 32 KiB and a little.
struct Counting {
	Histograms<COPIES> h;
	Finding finding;
};

// Counts the first digit of all values, if fewer than k were listed. Otherwise it only stores the
// threshold. A block takes a tile at a time.
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

// The values of a tile that may be among the largest: its list or, if they do not fit, all of its
// values.
struct Candidates {
	const f32 *value;
	const u16 *place; // their indices in the tile; 0: 0, 1, 2 and so on
	u32 count;
};

DEVICE Candidates candidates(const SelectArgs &a, u64 t) {
	const u32 listed = a.listed[t];
	if (listed <= ROOM) return {a.list + t * ROOM, a.place + t * ROOM, listed};
	return {(a.y ? a.y : a.x) + t * TILE, 0, part(t * TILE, a.n)};
}

// Calls each(v, j) for every candidate v, number j, of a lane. A lane has every 32nd candidate, and
// AT_ONCE are loaded before the first is used. All lanes make each call together, so that it may
// use ballots. j may therefore be past the end; v is then 0.
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

// Counts the second or the third digit of the candidates that share the known bits. A warp takes a
// tile at a time.
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

// Counts, for each tile, the values above the k-th magnitude and those equal to it, and adds up the
// counts of WARPS tiles. A warp takes a tile and a block WARPS of them.
KERNEL_CROWD(select_tiles, SelectArgs, THREADS, CROWD) {
	SHARED(Finding, sh);
	const u32 least = find(a, a.threshold[SECOND], THIRD, sh).least;
	u32 turn = 0;
	for (u64 block = BLOCK; block < blocks_of_tiles(a); block += BLOCKS) {
		const u64 t = block * WARPS + THREAD / 32;
		// Bits 0 to 15: values above the threshold; from bit 16 on: ties. A tile has at most 4096
		// of each, and WARPS tiles have at most 32768, so no sum exceeds 16 bits.
		u32 found = 0;
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
		// Without this barrier, thread 0 would add counts that are not stored yet. One barrier for
		// each round is enough, since rounds alternate between two arrays.
		sync();
		if (THREAD == 0) {
			u32 all = 0;
			for (u32 w = 0; w < WARPS; w++) all += sh.sums.of_warp[turn][w];
			a.above[block] = all & 0xffff;
			a.ties[block] = all >> 16;
		}
		turn ^= 1;
	}
}

// Turns the counts of each WARPS tiles into the sums over all tiles before. One block does it, and
// each thread takes EACH counts of each array in a round. The two scans of a round have an array
// each, so the barrier of one protects the other's array from the next round.
KERNEL(select_scan, SelectArgs, THREADS) {
	SHARED(Sums, sh);
	const u64 blocks = blocks_of_tiles(a);
	u32 above = 0, ties = 0; // of the rounds before
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

// Writes the selected values of each tile where select_scan says, and clears them in the residual.
// A warp takes a tile. In each round, two ballots tell a lane how many values above the threshold
// and how many ties lower lanes have. There is no barrier.
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

// The arguments of select_encode: chunks, one for each block.
struct Choices {
	const Chosen *chunks;
};

// Shared memory of select_encode, 32 KiB and a little.
struct Encoding {
	Histograms<COPIES> h;
	Sums sums;
	Threshold threshold;
};

// Finds the k-th magnitude of a chunk, digit by digit, with one pass over the chunk for each. The
// first pass stores y = x + carry to y, if there is a carry. No barrier is needed for y, since each
// thread later reads what it has stored itself. Nor does clear need one before it: threads have
// read the bins of the digit before when they come to the barrier in next_digit.
DEVICE void find_threshold(const Chosen &a, f32 *y, Encoding &sh) {
	if (THREAD == 0) sh.threshold = {0, 31, a.k};
	const u32 top = BINS - 1 - EACH * THREAD;
	const Spots spot = spots_of_block();
	for (int digit = 0; digit < 3; digit++) {
		clear(sh.h); // its barrier also makes the threshold of the digit before visible
		const u32 least = sh.threshold.least, known = sh.threshold.known;
		for (u64 lo = 0; lo < a.n; lo += TILE) {
			const u32 have = part(lo, a.n);
			Four v[ROUNDS];
			load_tile((digit ? y : a.x) + lo, have, spot, v);
			if (digit == 0 && a.carry) feed(a.carry, y, lo, have, spot, v);
#pragma unroll
			for (int r = 0; r < ROUNDS; r++) count_values(sh.h, v[r], spot(r), have, least, known);
		}
		sync(); // all values are counted; without it, bins would be read too early
		u32 mine[EACH];
#pragma unroll
		for (int b = 0; b < EACH; b++) {
			mine[b] = 0;
#pragma unroll
			for (int c = 0; c < COPIES; c++) mine[b] += sh.h.count[c][top - b];
		}
		next_digit(sh.threshold, mine, top, sh.sums.of_warp[0]);
	}
	sync(); // the threshold is visible to all threads
}

// Splits y into decoded values and residual, writes the indices of the values that are sent, and
// returns their number. In each round, a thread takes four consecutive values, and a prefix sum
// over the block says where their indices go. decoded may be y: a thread reads a value before it
// overwrites it.
DEVICE u32 split(const Chosen &a, const f32 *y, Encoding &sh) {
	const u32 least = sh.threshold.least, allowed = (u32)sh.threshold.k;
	u32 above = 0, ties = 0, turn = 0; // of the rounds before
	for (u64 lo = 0; lo < a.n; lo += 4 * THREADS) {
		const u64 i = lo + 4 * THREAD;
		const Four v = i < a.n ? load(y, i) : Four();
		Four sent = Four(), left = v;
		// Bits 0 to 15: values above the threshold; from bit 16 on: ties; at most 1024 of each.
		u32 mine = 0, all;
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
				// A zero is not sent. One is chosen only if the k-th magnitude is 0. Then only
				// zeros are tied, and none of them takes a place in index.
				if (m > 0) {
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

// Encodes the largest values of a chunk, in Sparse16 or Sparse32. A block takes a chunk. y goes to
// decoded if there is a carry; otherwise it is x.
KERNEL_CROWD(select_encode, Choices, THREADS, 5) {
	SHARED(Encoding, sh);
	const Chosen c = a.chunks[BLOCK]; // a copy in registers, which no store can alias
	f32 *const y = c.carry ? c.decoded : (f32 *)c.x;
	find_threshold(c, y, sh);
	const u32 count = split(c, y, sh);
	// Without this barrier, threads would read indices and values that other threads have not
	// written yet.
	sync(); // the index and what is sent are whole
	write_payload(c, count, sh.sums.of_warp);
}
