// Layers for sequences. Twin of kernels/nn/sequence.go and kernels/nn/host_sequence.go, within the
// bounds of docs/gpu.md. A row is one position of one sequence, and the sequences of a batch follow
// one another. No kernel uses atomics: each sum has a fixed order.
#include "kdev.cuh"
#include "order.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

// The arguments of embed and embed_gradient. In the latter, table, positions and y are gradients.
struct EmbedArgs {
	const f32 *x; // the token of each row, as a float32
	f32 *table, *positions; // a vector of width values for each token, and for each position
	f32 *y; // a vector for each row
	// rows: of the batch; length: of a sequence; tokens: size of the vocabulary; accumulate: not
	// 0 adds to the gradients, 0 overwrites them.
	u64 rows, length, width, tokens, accumulate;
};

// y = table[token] + positions[position]. A thread takes one value.
KERNEL(embed, EmbedArgs, THREADS) {
	const u64 i = BLOCK * THREADS + THREAD, row = i / a.width, col = i % a.width;
	if (row < a.rows) a.y[i] = add(a.table[(u64)a.x[row] * a.width + col], a.positions[row % a.length * a.width + col]);
}

// Shared memory of embed_gradient: the rows with the block's token, among SPAN consecutive rows. A
// thread looks at EACH consecutive ones.
enum { EACH = 8, SPAN = THREADS * EACH };
struct Found {
	u32 row[SPAN], of_warp[WARPS];
};

// Sums the gradients of the vectors of tokens and positions. Block b < tokens takes token b; the
// others take a position each. Sums are in order of the rows, and a thread takes every 256th value
// of the vector.
//
// For a token, the threads first list the rows that have it: a prefix sum over the block says where
// each row goes in the list, so that the list is in order. The barrier of the scan also ends the
// use of the list in the span before.
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
		// Without this barrier, threads would read rows that other threads have not listed yet. It
		// also protects of_warp from the scan of the next span.
		sync(); // all rows of the token are there
		for (u64 col = THREAD; col < a.width; col += THREADS) {
			f32 v = a.accumulate || from > 0 ? to[col] : 0.0f;
			stride(0, all, 1, [&](u64 k) { v = add(v, a.y[(from + sh.row[k]) * a.width + col]); });
			to[col] = v;
		}
	}
}

// Returns the maximum over the lanes of a warp, to every lane. All lanes must call it.
DEVICE f32 most_of_warp(f32 v) {
#pragma unroll
	for (int w = 16; w > 0; w /= 2) {
		const f32 other = shuffle_xor(v, w);
		v = other > v ? other : v;
	}
	return v;
}

// The arguments of LayerNorm and its gradient. Both kernels take a warp for each row, and a lane
// takes every 32nd value of it. The gradients for w and b are made by column_sums in layer.cu.
struct NormArgs {
	const f32 *x, *w, *b, *dy; // x, b: not used by the gradient; dy: only by it
	f32 *y;     // receives the result, or the gradient for x
	f32 *z;     // the normalized values: written by layer_norm, read by its gradient
	f32 *stats; // 1/deviation of each row: written by layer_norm, read by its gradient
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

// The softmax of attention, in place. There are `length` rows of scores for each head of each
// sequence, of `length` values. A row becomes weights: the softmax of scale times the scores of the
// positions up to its own, and 0 for later positions. A warp takes a row. No lane reads a value
// that another lane stores, so there is no barrier.
struct SoftmaxArgs {
	f32 *p; // scores, which become weights; in the gradient, the weights
	f32 *d; // the gradient for the weights, which becomes that for the unscaled scores
	u64 rows, length;
	f32 scale; // 1/√(size of a head)
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
