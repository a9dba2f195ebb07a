// Matrix products C = A·B of row-major matrices, batched, with the bias and the ReLU behind them. A block has a tile of 64×64
// of C. Sums are in order of k, each product fused into the sum: a result is the same in every run, and within k roundings
// of the exact one. gemm_tf32 has the factors in TF32, 11 bits of fraction, on the matrix units.
#include "kdev.cuh"

struct GemmArgs {
	const f32 *a, *b, *bias; // bias: 0 for none
	f32 *c;
	u64 m, n, k;
	u64 lda, ldb, ldc;
	// Matrix number z of a batch begins outer·(z / inners) + inner·(z % inners) values behind the first.
	u64 inners, a_outer, a_inner, b_outer, b_inner, c_outer, c_inner;
	u32 flags, unused;
};

enum Flags { A_TRANSPOSED = 1, B_TRANSPOSED = 2, ACCUMULATE = 4, RELU = 8, BIAS_OF_ROWS = 16 };
enum { THREADS = 256, M = 64, N = 64, K = 16, EACH = 4 };

struct alignas(16) Tile {
	f32 a[K][M + 4], b[K][N + 4]; // 4 more, or a column would be in one bank
};
// One is filled while the other is multiplied.
struct alignas(16) Tiles {
	Tile tile[2];
};

// A part of a factor: K rows of 64 columns from k on, zero where the matrix ends. Row kk, column i of the tile is value
// [i][k + kk] of the matrix, or [k + kk][i] if across. Threads go along what is contiguous. What a thread has of the next tile is on its way
// while the block multiplies this one.
struct Part {
	enum { VALUES = 64 * K / THREADS };
	const f32 *x;
	u64 ld, i0, size, k;
	bool across;
	f32 v[VALUES];

	DEVICE_MEMBER void fetch(u64 k0) {
#pragma unroll
		for (int r = 0; r < VALUES; r++) {
			const u32 at = r * THREADS + THREAD;
			const u32 kk = across ? at / 64 : at % K, i = across ? at % 64 : at / K;
			const bool inside = i0 + i < size && k0 + kk < k;
			v[r] = inside ? x[across ? (k0 + kk) * ld + i0 + i : (i0 + i) * ld + k0 + kk] : 0.0f;
		}
	}

	DEVICE_MEMBER void put(f32 (&tile)[K][64 + 4]) const {
#pragma unroll
		for (int r = 0; r < VALUES; r++) {
			const u32 at = r * THREADS + THREAD;
			tile[across ? at / 64 : at % K][across ? at % 64 : at / K] = v[r];
		}
	}
};

DEVICE void put(const GemmArgs &a, f32 *c, u64 i, u64 j, f32 v) {
	if (i >= a.m || j >= a.n) return;
	f32 *to = c + i * a.ldc + j;
	if (a.flags & ACCUMULATE) v = add(*to, v);
	if (a.bias) v = add(v, a.bias[a.flags & BIAS_OF_ROWS ? i : j]);
	if (a.flags & RELU) v = v > 0 || v != v ? v : 0.0f;
	*to = v;
}

struct Place {
	const f32 *a, *b;
	f32 *c;
	u64 i, j;
};

DEVICE Place place(const GemmArgs &a) {
	const u64 outer = BLOCK_Z / a.inners, inner = BLOCK_Z % a.inners;
	return {a.a + outer * a.a_outer + inner * a.a_inner, a.b + outer * a.b_outer + inner * a.b_inner, a.c + outer * a.c_outer + inner * a.c_inner, BLOCK_Y * M, BLOCK * N};
}

// Goes through the tiles in order of k and lets multiply add each to the sum.
template <class Multiply> DEVICE void tiles(const GemmArgs &a, const Place &p, Tiles &sh, Multiply multiply) {
	Part x = {p.a, a.lda, p.i, a.m, a.k, (a.flags & A_TRANSPOSED) != 0}, y = {p.b, a.ldb, p.j, a.n, a.k, !(a.flags & B_TRANSPOSED)};
	x.fetch(0);
	y.fetch(0);
	int turn = 0;
	for (u64 k = 0; k < a.k; k += K, turn ^= 1) {
		Tile &t = sh.tile[turn];
		x.put(t.a);
		y.put(t.b);
		sync(); // the tile is full, and the one before it has been multiplied
		if (k + K < a.k) {
			x.fetch(k + K);
			y.fetch(k + K);
		}
		multiply(t);
	}
}

KERNEL_CROWD(gemm_fp32, GemmArgs, THREADS, 3) {
	SHARED(Tiles, sh);
	const Place p = place(a);
	const u32 row = THREAD / 16 * EACH, col = THREAD % 16 * EACH;
	f32 acc[EACH][EACH] = {};
	tiles(a, p, sh, [&](const Tile &t) {
#pragma unroll
		for (int kk = 0; kk < K; kk++) {
			const Four x = *(const Four *)(t.a[kk] + row), y = *(const Four *)(t.b[kk] + col);
#pragma unroll
			for (int i = 0; i < EACH; i++)
#pragma unroll
				for (int j = 0; j < EACH; j++) acc[i][j] = fused(x.v[i], y.v[j], acc[i][j]);
		}
	});
#pragma unroll
	for (int i = 0; i < EACH; i++)
#pragma unroll
		for (int j = 0; j < EACH; j++) put(a, p.c, p.i + row + i, p.j + col + j, acc[i][j]);
}

// Eight warps, two down and four across, have 32×16 each: two by two products of 16×8, eight values of k at a time.
KERNEL_CROWD(gemm_tf32, GemmArgs, THREADS, 3) {
	SHARED(Tiles, sh);
	const Place p = place(a);
	const u32 warp = THREAD / 32, group = THREAD % 32 / 4, quad = THREAD % 4;
	const u32 row = warp / 4 * 32, col = warp % 4 * 16;
	f32 acc[2][2][4] = {};
	tiles(a, p, sh, [&](const Tile &t) {
#pragma unroll
		for (int kk = 0; kk < K; kk += 8) {
			u32 x[2][4], y[2][2];
#pragma unroll
			for (int i = 0; i < 2; i++)
#pragma unroll
				for (int e = 0; e < 4; e++) x[i][e] = round_tf32(t.a[kk + quad + e / 2 * 4][row + 16 * i + group + e % 2 * 8]);
#pragma unroll
			for (int j = 0; j < 2; j++)
#pragma unroll
				for (int e = 0; e < 2; e++) y[j][e] = round_tf32(t.b[kk + quad + 4 * e][col + 8 * j + group]);
#pragma unroll
			for (int i = 0; i < 2; i++)
#pragma unroll
				for (int j = 0; j < 2; j++) multiply_tf32(acc[i][j], x[i], y[j]);
		}
	});
#pragma unroll
	for (int i = 0; i < 2; i++)
#pragma unroll
		for (int j = 0; j < 2; j++)
#pragma unroll
			for (int e = 0; e < 4; e++) put(a, p.c, p.i + row + 16 * i + group + e / 2 * 8, p.j + col + 8 * j + 2 * quad + e % 2, acc[i][j][e]);
}
