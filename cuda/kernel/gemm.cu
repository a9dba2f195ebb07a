// Batches of matrix products C = A·B of row-major matrices. A product may also add to C, and a bias
// and a ReLU may follow. On the host, package kernels/blas computes products; their bits are not
// specified.
//
// A block computes a square tile of C with a side of 64, or of 128 in the kernels called large.
// Large tiles read each factor half as often, and are for products of many tiles. Block (x, y, z)
// has tile column x and tile row y of matrix z of the batch. It goes along k in steps of K values.
// In each step, the threads bring a tile of each factor from global memory through registers to
// shared memory, and then multiply the two tiles.
//
// Each sum is in order of k, with either size of tile. gemm_fp32 fuses each product into the sum,
// so a result is within k roundings of the exact one. The other kernels round the factors to the
// nearest TF32 (11 bits) or BF16 (8 bits) and multiply them on the tensor cores. There products are
// exact and sums are in float32. Within 8 values of k (TF32) or 16 (BF16), the order of a sum is
// that of the hardware, and is not documented.
#include "kdev.cuh"

struct GemmArgs {
	const f32 *a, *b, *bias; // bias: one value for each column of C, or row (BIAS_OF_ROWS); 0: none
	f32 *c;
	u64 m, n, k; // C has m rows and n columns; k values are summed for each of its values
	u64 lda, ldb, ldc; // distances of rows in memory, in values
	// Matrix z of the batch begins outer·(z / inners) + inner·(z % inners) values behind the first.
	// inners is at least 1.
	u64 inners, a_outer, a_inner, b_outer, b_inner, c_outer, c_inner;
	// 0: the inner matrices are independent. Else a product with `all` values of k is split along
	// k, and the inner matrices are its parts of k values each. The last part may have fewer.
	u64 all;
	u32 flags, unused;
};

enum Flags { A_TRANSPOSED = 1, B_TRANSPOSED = 2, ACCUMULATE = 4, RELU = 8, BIAS_OF_ROWS = 16 };
enum { THREADS = 256 };

// What a factor is in shared memory. A Word holds DEPTH values that follow each other along k. The
// function word rounds values that were loaded, and packs them into a Word.
struct FP32 {
	enum { DEPTH = 1 };
	typedef f32 Word;
	static DEVICE_MEMBER Word word(f32 v, f32) { return v; }
};
struct TF32 {
	enum { DEPTH = 1 };
	typedef u32 Word;
	static DEVICE_MEMBER Word word(f32 v, f32) { return round_tf32(v); }
	static DEVICE_MEMBER void multiply(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) { multiply_tf32(c, a, b); }
};
struct BF16 {
	enum { DEPTH = 2 };
	typedef u32 Word;
	static DEVICE_MEMBER Word word(f32 low, f32 high) { return pair_bf16(low, high); }
	static DEVICE_MEMBER void multiply(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) { multiply_bf16(c, a, b); }
};

// Shared memory, 32 KiB, or 16 KiB for BF16. A tile has K values along k for SIDE rows of C, from
// A, and for SIDE columns of C, from B. It is stored in ROWS rows of words. There are two tiles:
// threads fill one while slower threads still multiply the other.
template <class Format, int SIDE> struct alignas(16) Tiles {
	enum { K = 2048 / SIDE, ROWS = K / Format::DEPTH };
	typedef typename Format::Word Word;
	struct alignas(16) Tile {
		Word a[ROWS][SIDE], b[ROWS][SIDE];
	};
	Tile tile[2];
};

// Returns where column i of a row of words is stored. The exclusive or moves whole groups of eight
// columns. It puts the groups that a warp accesses at once, one from each of four rows, into
// different banks. Without it, these groups would be in the same eight banks.
DEVICE u32 swizzled(u32 row, u32 i) { return i ^ (row ^ row / 4) % 4 * 8; }

// A thread's share of the tiles of one factor: two groups of four values of each tile. The values
// of a group are adjacent in memory. If `across`, they are adjacent along the side of C, otherwise
// along k. The groups of the next tile are loaded into registers while the block multiplies the
// present one.
template <class Format, int SIDE> struct Part {
	typedef Tiles<Format, SIDE> Shared;
	typedef typename Shared::Word Word;
	enum { DEPTH = Format::DEPTH };
	struct alignas(16) Words {
		Word v[4];
	};

	const bool across, whole; // whole: rows are aligned, so that a group can be loaded at once
	const u64 step, apart;    // distance of tiles, and of the two groups of a tile, in values
	const f32 *from;          // the first group of the next tile
	// For each group, how many rows or columns the factor still has from there on, at most 4. If
	// not across, only whether it is 0 matters.
	u32 beside[2];
	Four v[2];

	// Row i and column k of the factor is value [i][k] of x, or [k][i] if across. The tile has the
	// rows from i0 on of `size`. For B, rows are columns of C.
	DEVICE_MEMBER Part(const f32 *x, u64 ld, u64 i0, u64 size, bool across)
		: across(across), whole(ld % 4 == 0 && (u64)x % 16 == 0), step(across ? Shared::K * ld : (u64)Shared::K), apart(across ? ld : SIDE == 64 ? (u64)16 : 64 * ld) {
		from = x + (across ? depth(0) * ld + i0 + column(0) : (i0 + column(0)) * ld + depth(0));
#pragma unroll
		for (int r = 0; r < 2; r++) {
			const u64 i = i0 + column(r);
			beside[r] = i >= size ? 0 : size - i < 4 ? (u32)(size - i) : 4;
		}
	}

	// The place of group r in a tile: depth along k, column along the side. If across, the two
	// groups of a thread are neighbours along k, since BF16 packs values of both into one word.
	DEVICE_MEMBER u32 depth(int r) const { return across ? THREAD / (SIDE / 4) * 2 + r : THREAD % 4 * 4 + (SIDE == 64 ? 16 * r : 0); }
	DEVICE_MEMBER u32 column(int r) const { return across ? THREAD % (SIDE / 4) * 4 : THREAD / 4 + (SIDE == 64 ? 0 : 64 * r); }

	// Loads the groups of the next tile into v. The factor has `left` more values along k. Values
	// past its end are zeros.
	DEVICE_MEMBER void fetch(u64 left) {
		const u32 rest = left < Shared::K ? (u32)left : (u32)Shared::K;
#pragma unroll
		for (int r = 0; r < 2; r++) {
			const u32 behind = rest > depth(r) ? rest - depth(r) : 0;
			const u32 n = across ? (behind ? beside[r] : 0) : (beside[r] ? behind : 0);
			const f32 *group = from + r * apart;
			IN_GLOBAL(group);
			if (whole && n >= 4) {
				v[r] = *(const Four *)group;
			} else {
#pragma unroll
				for (u32 e = 0; e < 4; e++) v[r].v[e] = e < n ? group[e] : 0.0f;
			}
		}
		from += step;
	}

	// Stores the groups to a tile in shared memory.
	DEVICE_MEMBER void put(Word (&tile)[Shared::ROWS][SIDE]) const {
		if (across) {
#pragma unroll
			for (int r = 0; r < 2; r += DEPTH) {
				const u32 row = depth(r) / DEPTH;
				Words w;
#pragma unroll
				for (int e = 0; e < 4; e++) w.v[e] = Format::word(v[r].v[e], v[r + DEPTH - 1].v[e]);
				*(Words *)(tile[row] + swizzled(row, column(r))) = w;
			}
			return;
		}
#pragma unroll
		for (int r = 0; r < 2; r++)
#pragma unroll
			for (int e = 0; e < 4; e += DEPTH) {
				const u32 row = (depth(r) + e) / DEPTH;
				tile[row][swizzled(row, column(r))] = Format::word(v[r].v[e], v[r].v[e + DEPTH - 1]);
			}
	}
};

// Where the matrices of a block begin, and the row i and column j of C where its tile begins.
struct Place {
	const f32 *a, *b;
	f32 *c;
	u64 i, j;
};

template <int N> struct alignas(4 * N) Beside {
	f32 v[N];
};

// Stores N sums that are adjacent in a row of C, in one access if it is aligned and whole. It also
// accumulates, and adds the bias and applies the ReLU. A NaN stays a NaN.
template <int N> DEVICE void put(const GemmArgs &a, f32 *c, u64 i, u64 j, const f32 (&sums)[N]) {
	if (i >= a.m || j >= a.n) return;
	f32 *to = c + i * a.ldc + j;
	IN_GLOBAL(to);
	const u32 n = a.n - j < N ? (u32)(a.n - j) : N;
	const bool whole = n == N && (u64)to % (4 * N) == 0;
	Beside<N> v, old;
	if (a.flags & ACCUMULATE) {
		if (whole) old = *(const Beside<N> *)to;
#pragma unroll
		for (u32 e = 0; e < N; e++) {
			if (!whole) old.v[e] = e < n ? to[e] : 0.0f;
			v.v[e] = add(old.v[e], sums[e]);
		}
	} else {
#pragma unroll
		for (u32 e = 0; e < N; e++) v.v[e] = sums[e];
	}
	if (a.bias) {
#pragma unroll
		for (u32 e = 0; e < N; e++) v.v[e] = add(v.v[e], e < n ? a.bias[a.flags & BIAS_OF_ROWS ? i : j + e] : 0.0f);
	}
	if (a.flags & RELU) {
#pragma unroll
		for (u32 e = 0; e < N; e++) v.v[e] = v.v[e] > 0 || v.v[e] != v.v[e] ? v.v[e] : 0.0f;
	}
	if (whole) {
		*(Beside<N> *)to = v;
		return;
	}
#pragma unroll
	for (u32 e = 0; e < N; e++)
		if (e < n) to[e] = v.v[e];
}

DEVICE Place place(const GemmArgs &a, u64 side) {
	const u64 outer = BLOCK_Z / a.inners, inner = BLOCK_Z % a.inners;
	return {a.a + outer * a.a_outer + inner * a.a_inner, a.b + outer * a.b_outer + inner * a.b_inner, a.c + outer * a.c_outer + inner * a.c_inner, BLOCK_Y * side, BLOCK * side};
}

// Returns the number of values along k of the block's factors.
DEVICE u64 depth_of(const GemmArgs &a) {
	const u64 before = BLOCK_Z % a.inners * a.k;
	return a.all && a.all - before < a.k ? a.all - before : a.k;
}

// Goes along k and calls multiply(t, row) for each eight rows of words, which adds them to the
// sums. An idle warp has no part of C. It only helps to bring tiles.
//
// One barrier for each tile is enough, because there are two. Without it, threads would multiply
// words that are not stored yet, and a fast warp would overwrite a tile that others still multiply.
// The loads of the next tile are issued right behind the barrier, and their latency is hidden by
// the products.
template <class Format, int SIDE, class Multiply> DEVICE void tiles(const GemmArgs &a, const Place &p, Tiles<Format, SIDE> &sh, bool idle, Multiply multiply) {
	typedef Tiles<Format, SIDE> Shared;
	Part<Format, SIDE> x(p.a, a.lda, p.i, a.m, (a.flags & A_TRANSPOSED) != 0), y(p.b, a.ldb, p.j, a.n, !(a.flags & B_TRANSPOSED));
	u64 left = depth_of(a);
	x.fetch(left);
	y.fetch(left);
	for (int turn = 0; left > 0; turn ^= 1) {
		typename Shared::Tile &t = sh.tile[turn];
		x.put(t.a);
		y.put(t.b);
		sync(); // the tile is full, and the one before it has been multiplied
		const u32 rest = left < Shared::K ? (u32)left : (u32)Shared::K;
		left -= rest;
		if (left > 0) {
			x.fetch(left);
			y.fetch(left);
		}
		if (idle) continue;
#pragma unroll
		for (u32 row = 0; row < Shared::ROWS; row += 8)
			if (row * Format::DEPTH < rest) multiply(t, row);
	}
}

// The body of the float32 kernels. A thread has a square of 4×4 sums, or in a large tile 2×2 of
// them, 64 rows or columns apart. One square of each lane of a warp covers 16 rows and 32 columns.
// So one load of a warp reads 64 bytes of A or 128 of B from shared memory, and the rest is
// broadcast; no other arrangement of 32 squares reads less.
template <int SIDE> DEVICE void by_threads(const GemmArgs &a) {
	typedef Tiles<FP32, SIDE> Shared;
	enum { FOURS = SIDE / 64 };
	SHARED(Shared, sh);
	const Place p = place(a, SIDE);
	const u32 warp = THREAD / 32, lane = THREAD % 32;
	const u32 down = (warp / 2 * 4 + lane / 8 % 2 * 2 + lane % 2) * 4, along = (warp % 2 * 8 + lane / 16 * 4 + lane / 2 % 4) * 4;
	// C ends before the warp's part begins.
	const bool idle = p.i + warp / 2 * 16 >= a.m || p.j + warp % 2 * 32 >= a.n;
	f32 acc[FOURS][4][FOURS][4] = {};
	tiles(a, p, sh, idle, [&](const typename Shared::Tile &t, u32 first) {
#pragma unroll
		for (u32 row = first; row < first + 8; row++) {
			Four x[FOURS], y[FOURS];
#pragma unroll
			for (int f = 0; f < FOURS; f++) {
				x[f] = *(const Four *)(t.a[row] + swizzled(row, down + 64 * f));
				y[f] = *(const Four *)(t.b[row] + swizzled(row, along + 64 * f));
			}
#pragma unroll
			for (int i = 0; i < 4 * FOURS; i++)
#pragma unroll
				for (int j = 0; j < 4 * FOURS; j++) acc[i / 4][i % 4][j / 4][j % 4] = fused(x[i / 4].v[i % 4], y[j / 4].v[j % 4], acc[i / 4][i % 4][j / 4][j % 4]);
		}
	});
#pragma unroll
	for (int i = 0; i < 4 * FOURS; i++)
#pragma unroll
		for (int f = 0; f < FOURS; f++) put(a, p.c, p.i + down + 64 * (i / 4) + i % 4, p.j + along + 64 * f, acc[i / 4][i % 4][f]);
}

// The body of the kernels for tensor cores. The eight warps stand in two rows and four columns, so
// a warp has SIDE / 2 rows and SIDE / 4 columns of the tile: EACH × EACH products of 16×8. kdev.cuh
// says which values of a factor a lane holds.
template <class Format, int SIDE> DEVICE void by_warps(const GemmArgs &a) {
	typedef Tiles<Format, SIDE> Shared;
	enum { EACH = SIDE / 32 };
	SHARED(Shared, sh);
	const Place p = place(a, SIDE);
	const u32 warp = THREAD / 32, group = THREAD % 32 / 4, quad = THREAD % 4;
	const u32 down = warp / 4 * (SIDE / 2), along = warp % 4 * (SIDE / 4);
	f32 acc[EACH][EACH][4] = {};
	tiles(a, p, sh, false, [&](const typename Shared::Tile &t, u32 first) {
		u32 x[EACH][4], y[EACH][2];
#pragma unroll
		for (int i = 0; i < EACH; i++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				const u32 row = first + quad + e / 2 * 4;
				x[i][e] = t.a[row][swizzled(row, down + group + 16 * i + e % 2 * 8)];
			}
#pragma unroll
		for (int j = 0; j < EACH; j++)
#pragma unroll
			for (int e = 0; e < 2; e++) {
				const u32 row = first + quad + e * 4;
				y[j][e] = t.b[row][swizzled(row, along + group + 8 * j)];
			}
#pragma unroll
		for (int i = 0; i < EACH; i++)
#pragma unroll
			for (int j = 0; j < EACH; j++) Format::multiply(acc[i][j], x[i], y[j]);
	});
#pragma unroll
	for (int i = 0; i < EACH; i++)
#pragma unroll
		for (int j = 0; j < EACH; j++)
#pragma unroll
			for (int e = 0; e < 4; e += 2) {
				const f32 pair[2] = {acc[i][j][e], acc[i][j][e + 1]};
				put(a, p.c, p.i + down + group + 16 * i + e / 2 * 8, p.j + along + 8 * j + 2 * quad, pair);
			}
}

// A thread of a large tile has four times as many sums, so fewer blocks fit on a multiprocessor.
KERNEL_CROWD(gemm_fp32, GemmArgs, THREADS, 3) { by_threads<64>(a); }
KERNEL_CROWD(gemm_fp32_large, GemmArgs, THREADS, 2) { by_threads<128>(a); }
KERNEL_CROWD(gemm_tf32, GemmArgs, THREADS, 3) { by_warps<TF32, 64>(a); }
KERNEL_CROWD(gemm_tf32_large, GemmArgs, THREADS, 2) { by_warps<TF32, 128>(a); }
KERNEL_CROWD(gemm_bf16, GemmArgs, THREADS, 3) { by_warps<BF16, 64>(a); }
KERNEL_CROWD(gemm_bf16_large, GemmArgs, THREADS, 2) { by_warps<BF16, 128>(a); }
