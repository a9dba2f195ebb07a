// Layers for sequences. Rows are positions, of all sequences of a batch one after the other.
#include "kdev.cuh"
#include "order.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

struct EmbedArgs {
	const f32 *x; // tokens
	f32 *table, *positions;
	f32 *y;
	u64 rows, length, width, tokens, accumulate;
};

KERNEL(embed, EmbedArgs, THREADS) {
	const u64 i = BLOCK * THREADS + THREAD, row = i / a.width, col = i % a.width;
	if (row < a.rows) a.y[i] = add(a.table[(u64)a.x[row] * a.width + col], a.positions[row % a.length * a.width + col]);
}

// The rows of a token, of SPAN rows: each thread looks at EACH that follow one another.
enum { EACH = 8, SPAN = THREADS * EACH };
struct Found {
	u32 row[SPAN], of_warp[WARPS];
};

// A block adds the gradients for one token, or, from block tokens on, for one position: in order of the rows.
KERNEL(embed_gradient, EmbedArgs, THREADS) {
	SHARED(Found, sh);
	if (BLOCK >= a.tokens) {
		const u64 which = BLOCK - a.tokens;
		f32 *to = a.positions + which * a.width;
		for (u64 col = THREAD; col < a.width; col += THREADS) {
			f32 v = a.accumulate ? to[col] : 0.0f;
			stride(which, a.rows, a.length, [&](u64 row) { v = add(v, a.y[row * a.width + col]); });
			to[col] = v;
		}
		return;
	}
	f32 *to = a.table + BLOCK * a.width;
	for (u64 from = 0; from < a.rows; from += SPAN) {
		u32 mine = 0, all;
#pragma unroll
		for (u32 e = 0; e < EACH; e++) {
			const u64 row = from + THREAD * EACH + e;
			if (row < a.rows && (u64)a.x[row] == BLOCK) mine |= 1u << e;
		}
		u32 at = scan(count_bits(mine), sh.of_warp, all) - count_bits(mine);
#pragma unroll
		for (u32 e = 0; e < EACH; e++)
			if (mine >> e & 1) sh.row[at++] = THREAD * EACH + e;
		sync(); // all rows of the token are there
		for (u64 col = THREAD; col < a.width; col += THREADS) {
			f32 v = a.accumulate || from > 0 ? to[col] : 0.0f;
			stride(0, all, 1, [&](u64 k) { v = add(v, a.y[(from + sh.row[k]) * a.width + col]); });
			to[col] = v;
		}
	}
}

DEVICE f32 most_of_warp(f32 v) {
#pragma unroll
	for (int w = 16; w > 0; w /= 2) {
		const f32 other = shuffle_xor(v, w);
		v = other > v ? other : v;
	}
	return v;
}

// A warp for each row.
struct NormArgs {
	const f32 *x, *w, *b, *dy;
	f32 *y;     // the result, or the gradient for x
	f32 *z;     // the normalized values
	f32 *stats; // 1/deviation of each row
	u64 rows, width;
};

KERNEL(layer_norm, NormArgs, THREADS) {
	const u64 row = BLOCK * WARPS + THREAD / 32;
	if (row >= a.rows) return;
	const f32 *x = a.x + row * a.width;
	f32 sum = 0, squares = 0;
	for (u64 i = THREAD % 32; i < a.width; i += 32) sum = add(sum, x[i]);
	const f32 mean = quotient(sum_of_warp(sum), (f32)a.width);
	for (u64 i = THREAD % 32; i < a.width; i += 32) {
		const f32 d = sub(x[i], mean);
		squares = add(squares, mul(d, d));
	}
	const f32 scale = quotient(1.0f, root(add(quotient(sum_of_warp(squares), (f32)a.width), 1e-5f)));
	if (THREAD % 32 == 0) a.stats[row] = scale;
	for (u64 i = THREAD % 32; i < a.width; i += 32) {
		const f32 z = mul(sub(x[i], mean), scale);
		a.z[row * a.width + i] = z;
		a.y[row * a.width + i] = add(mul(z, a.w[i]), a.b[i]);
	}
}

KERNEL(layer_norm_gradient, NormArgs, THREADS) {
	const u64 row = BLOCK * WARPS + THREAD / 32;
	if (row >= a.rows) return;
	const f32 *z = a.z + row * a.width, *dy = a.dy + row * a.width;
	f32 sum = 0, along = 0;
	for (u64 i = THREAD % 32; i < a.width; i += 32) {
		const f32 g = mul(dy[i], a.w[i]);
		sum = add(sum, g);
		along = add(along, mul(g, z[i]));
	}
	const f32 mean = quotient(sum_of_warp(sum), (f32)a.width), slope = quotient(sum_of_warp(along), (f32)a.width), scale = a.stats[row];
	for (u64 i = THREAD % 32; i < a.width; i += 32)
		a.y[row * a.width + i] = mul(scale, sub(sub(mul(dy[i], a.w[i]), mean), mul(z[i], slope)));
}

// Rows of scores, length of them for each head of each sequence, become weights: the softmax of scale times those of the
// positions up to their own, and 0 after it. A warp for each row.
struct SoftmaxArgs {
	f32 *p;       // scores, then weights; of the gradient, the weights
	f32 *d;       // the gradient for the weights, then for the products of queries and keys
	u64 rows, length;
	f32 scale;
	u32 unused;
};

KERNEL(causal_softmax, SoftmaxArgs, THREADS) {
	const u64 row = BLOCK * WARPS + THREAD / 32;
	if (row >= a.rows) return;
	f32 *p = a.p + row * a.length;
	const u64 n = row % a.length + 1;
	f32 most = from_bits(0xff800000), total = 0;
	for (u64 i = THREAD % 32; i < n; i += 32) {
		const f32 v = mul(p[i], a.scale);
		most = v > most ? v : most;
	}
	most = most_of_warp(most);
	for (u64 i = THREAD % 32; i < n; i += 32) {
		p[i] = exp_of(sub(mul(p[i], a.scale), most));
		total = add(total, p[i]);
	}
	total = sum_of_warp(total);
	for (u64 i = THREAD % 32; i < a.length; i += 32) p[i] = i < n ? quotient(p[i], total) : 0.0f;
}

KERNEL(causal_softmax_gradient, SoftmaxArgs, THREADS) {
	const u64 row = BLOCK * WARPS + THREAD / 32;
	if (row >= a.rows) return;
	const f32 *p = a.p + row * a.length;
	f32 *d = a.d + row * a.length;
	f32 sum = 0;
	for (u64 i = THREAD % 32; i < a.length; i += 32) sum = add(sum, mul(p[i], d[i]));
	sum = sum_of_warp(sum);
	for (u64 i = THREAD % 32; i < a.length; i += 32) d[i] = mul(mul(p[i], sub(d[i], sum)), a.scale);
}
