// Layers of models, except products (gemm.cu) and what only sequences need (sequence.cu). Twin of
// package kernels/nn. The order of a sum depends on shapes alone, so a gradient has the same bits
// in every run. It is not the order of the host, so the two agree within bounds (docs/gpu.md).
#include "kdev.cuh"
#include "order.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

// The arguments of a kernel with one value for each thread: z is computed from x and y, which is 0
// if it is not used. z may be the same array as x or y.
struct EachArgs {
	f32 *z;
	const f32 *x, *y;
	u64 n;
};

// Returns the number of a thread in the grid.
DEVICE u64 mine() { return BLOCK * THREADS + THREAD; }

// A NaN stays a NaN.
KERNEL(relu, EachArgs, THREADS) {
	const u64 i = mine();
	if (i < a.n) a.z[i] = a.x[i] > 0 || a.x[i] != a.x[i] ? a.x[i] : 0.0f;
}

// x is the result of the ReLU and y the gradient for it.
KERNEL(relu_gradient, EachArgs, THREADS) {
	const u64 i = mine();
	if (i < a.n) a.z[i] = a.x[i] != 0 ? a.y[i] : 0.0f;
}

// Multiplies values by the dropout mask, which is drawn here. Twin of DropoutMask in
// worker/model/init.go.
//
// The key and the number of the first value are in memory, and not among the arguments, since they
// differ from run to run of a captured graph, whose arguments are fixed.
struct DropoutArgs {
	f32 *z;
	const f32 *x;
	const u64 *key; // two numbers: the key, and the number of the first value in the batch
	u64 n, threshold; // a value whose 32 random bits are below threshold becomes 0
	f32 keep;         // the others are multiplied by this
	u32 unused;
};

// Returns random number n of a key. Each serves two values.
DEVICE u64 draw(u64 key, u64 n) {
	u64 x = key + (n + 1) * 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

KERNEL(dropout, DropoutArgs, THREADS) {
	const u64 i = mine();
	if (i >= a.n) return;
	const u64 n = a.key[1] + i, half = draw(a.key[0], n >> 1) >> 32 * (n & 1) & 0xffffffffu;
	a.z[i] = mul(a.x[i], half < a.threshold ? 0.0f : a.keep);
}

// z = x + y.
KERNEL(sum, EachArgs, THREADS) {
	const u64 i = mine();
	if (i < a.n) a.z[i] = add(a.x[i], a.y[i]);
}

// What local steps from start to end come to, as a gradient: the way back, in units of the learning
// rate, which is not 0. Twin of wayBack in worker/local/host.go, with its bits. grads may be
// the same array as end.
struct WayBackArgs {
	f32 *grads;
	const f32 *start, *end;
	u64 n;
	f32 rate;
	u32 unused;
};

KERNEL(way_back, WayBackArgs, THREADS) {
	const u64 i = mine();
	if (i < a.n) a.grads[i] = quotient(sub(a.start[i], a.end[i]), a.rate);
}

// GELU(x) = x·f with f = 1/(1 + exp(−2·√(2/π)·(x + c·x³))) and c = 0.044715. Returns f. Twin of
// geluFactor in kernels/nn/exp.go.
DEVICE f32 gelu_factor(f32 x) {
	const f32 v = add(x, mul(0.044715f, mul(mul(x, x), x)));
	return quotient(1.0f, add(1.0f, exp_of(mul(-1.5957691f, v))));
}

KERNEL(gelu, EachArgs, THREADS) {
	const u64 i = mine();
	if (i < a.n) a.z[i] = mul(a.x[i], gelu_factor(a.x[i]));
}

// The derivative of GELU at x, times y. x is the argument of the GELU and y the gradient for its
// result.
KERNEL(gelu_gradient, EachArgs, THREADS) {
	const u64 i = mine();
	if (i >= a.n) return;
	const f32 x = a.x[i], f = gelu_factor(x), inner = add(1.5957691f, mul(0.21406734f, mul(x, x)));
	a.z[i] = mul(a.y[i], add(f, mul(mul(mul(x, f), sub(1.0f, f)), inner)));
}

// The sum of each row of x. A warp takes a row: each lane adds every 32nd value in order, and a
// butterfly of shuffles adds the lanes.
struct RowSumsArgs {
	f32 *sum;
	const f32 *x;
	u64 rows, columns;
};

KERNEL(row_sums, RowSumsArgs, THREADS) {
	const u64 row = BLOCK * WARPS + THREAD / 32;
	if (row >= a.rows) return;
	const f32 *x = a.x + row * a.columns;
	f32 v = 0;
	stride(THREAD % 32, a.columns, 32, [&](u64 i) { v = add(v, x[i]); });
	v = sum_of_warp(v);
	if (THREAD % 32 == 0) a.sum[row] = v;
}

// The sum of each column of x and, if there is a y, the sum of each column of the products x·y. A
// block takes BESIDE columns, since eight float32 are one sector of memory. LANES threads share a
// column: each adds every LANES-th value in order, and a tree in shared memory adds the threads'
// sums.
struct ColumnSumsArgs {
	f32 *sum, *products; // one value for each column; products: 0 without y
	const f32 *x, *y;    // y: 0 for none
	u64 rows, columns, accumulate; // accumulate: not 0 adds to sum and products, 0 overwrites them
};

enum { BESIDE = 8, LANES = THREADS / BESIDE };

// Shared memory: a sum for each thread.
struct Folds {
	f32 v[LANES][BESIDE];
};

// Returns the sum over the lanes of a column to its lane 0. All threads of the block must call it.
// Without the barrier in the loop, a lane would read a sum that is not stored yet. The caller needs
// a barrier before it calls this again, since the last round has none behind its reads.
DEVICE f32 fold_lanes(Folds &sh, f32 v) {
	const u32 lane = THREAD / BESIDE, column = THREAD % BESIDE;
	sh.v[lane][column] = v;
	for (u32 w = LANES / 2; w > 0; w /= 2) {
		sync();
		if (lane < w) sh.v[lane][column] = v = add(v, sh.v[lane + w][column]);
	}
	return v;
}

// Stores a sum, or adds it to the value that is there.
DEVICE void settle(f32 *to, f32 v, u64 accumulate) { *to = accumulate ? add(*to, v) : v; }

KERNEL(column_sums, ColumnSumsArgs, THREADS) {
	SHARED(Folds, sh);
	const u64 column = BLOCK * BESIDE + THREAD % BESIDE;
	// Threads behind the last column have no rows. They stay, because fold_lanes needs all threads.
	const u64 lane = column < a.columns ? THREAD / BESIDE : a.rows;
	f32 sum = 0, products = 0;
	stride(lane, a.rows, LANES, [&](u64 i) {
		const u64 at = i * a.columns + column;
		const f32 x = a.x[at], y = a.y ? a.y[at] : 0.0f;
		sum = add(sum, x);
		products = add(products, mul(x, y));
	});
	sum = fold_lanes(sh, sum);
	if (a.y) {
		sync(); // without it, sums that others still have to read would be overwritten
		products = fold_lanes(sh, products);
	}
	if (THREAD >= BESIDE || column >= a.columns) return;
	settle(a.sum + column, sum, a.accumulate);
	if (a.y) settle(a.products + column, products, a.accumulate);
}

// Adds the parts of a product that was split along k, in order. A bias and a ReLU may follow. A
// thread takes one value.
struct PartsArgs {
	f32 *sum;                // n values
	const f32 *parts, *bias; // parts: n values each; bias: one value for each column, 0 for none
	u64 count, n, columns;   // count: number of parts
	u32 accumulate, relu;    // accumulate: not 0 adds to sum; relu: not 0 applies the ReLU
};

KERNEL(sum_parts, PartsArgs, THREADS) {
	const u64 i = mine();
	if (i >= a.n) return;
	f32 v = a.accumulate ? a.sum[i] : 0.0f;
	stride(0, a.count, 1, [&](u64 p) { v = add(v, a.parts[p * a.n + i]); });
	if (a.bias) v = add(v, a.bias[i % a.columns]);
	if (a.relu) v = v > 0 || v != v ? v : 0.0f;
	a.sum[i] = v;
}

// The windows of a convolution with stride 1, as a matrix for each image. Its row is a triple
// (channel, row of the kernel, column of the kernel), and its column a place in the result.
struct ConvArgs {
	const f32 *from;
	f32 *to;
	u64 images, channels, height, width, kernel, pad, out_height, out_width;
};

// Copies images to windows. A thread takes one place of one channel of one image, and writes its
// kernel·kernel values, one in each row of the matrix. Neighbouring threads have neighbouring
// places, so accesses are coalesced.
KERNEL(windows, ConvArgs, THREADS) {
	const u64 i = mine(), places = a.out_height * a.out_width, plane = i / places, place = i % places;
	if (plane >= a.images * a.channels) return;
	// The window's place in the padded image.
	const u64 top = place / a.out_width, left = place % a.out_width;
	const f32 *from = a.from + plane * a.height * a.width;
	f32 *to = a.to + plane * a.kernel * a.kernel * places + place;
	for (u64 dy = 0; dy < a.kernel; dy++) {
		const u64 y = top + dy - a.pad; // in the padding above it wraps around: also y ≥ height
		for (u64 dx = 0; dx < a.kernel; dx++, to += places) {
			const u64 x = left + dx - a.pad;
			*to = y < a.height && x < a.width ? from[y * a.width + x] : 0.0f;
		}
	}
}

// Adds the gradient for windows up to one for images. A thread takes one value of an image and sums
// the values of all windows that hold it, in a fixed order. So there are no atomics.
KERNEL(windows_gradient, ConvArgs, THREADS) {
	const u64 i = mine(), plane = a.height * a.width, places = a.out_height * a.out_width, square = a.kernel * a.kernel;
	if (i >= a.images * a.channels * plane) return;
	const u64 channel = i / plane % a.channels, image = i / plane / a.channels;
	const u64 y = i % plane / a.width + a.pad, x = i % a.width + a.pad;
	f32 v = 0;
	for (u64 dy = 0; dy < a.kernel; dy++)
		for (u64 dx = 0; dx < a.kernel; dx++) {
			if (y < dy || y - dy >= a.out_height || x < dx || x - dx >= a.out_width) continue;
			const u64 r = channel * square + dy * a.kernel + dx;
			v = add(v, a.from[((image * a.channels * square) + r) * places + (y - dy) * a.out_width + x - dx]);
		}
	a.to[i] = v;
}

// Max-pooling over size×size windows, which do not overlap. at[i] is the place of the maximum in
// window i, row by row. pool writes it and pool_gradient reads it.
struct PoolArgs {
	const f32 *from;
	f32 *to;
	u8 *at;
	u64 planes, height, width, size;
};

// A thread takes a window. Among equal values the first wins. A NaN wins only if it is the first
// value of its window.
KERNEL(pool, PoolArgs, THREADS) {
	const u64 cols = a.width / a.size, outputs = a.height / a.size * cols, i = mine();
	if (i >= a.planes * outputs) return;
	const u64 o = i % outputs;
	const f32 *corner = a.from + i / outputs * a.height * a.width + o / cols * a.size * a.width + o % cols * a.size;
	f32 best = *corner;
	u64 place = 0;
	for (u64 r = 0; r < a.size; r++)
		for (u64 c = 0; c < a.size; c++)
			if (corner[r * a.width + c] > best) {
				best = corner[r * a.width + c];
				place = r * a.size + c;
			}
	a.to[i] = best;
	a.at[i] = (u8)place;
}

// from is the gradient for the results, and to that for the planes. A thread takes a window and
// writes all its values. At the lower and right edge, a window may be cut off. It has no result,
// and its gradient is 0.
KERNEL(pool_gradient, PoolArgs, THREADS) {
	const u64 rows = a.height / a.size, cols = a.width / a.size, down = (a.height + a.size - 1) / a.size, along = (a.width + a.size - 1) / a.size;
	const u64 i = mine(), plane = i / (down * along), row = i % (down * along) / along, col = i % along;
	if (plane >= a.planes) return;
	const bool whole = row < rows && col < cols;
	const u64 o = whole ? (plane * rows + row) * cols + col : 0;
	const f32 v = whole ? a.from[o] : 0.0f;
	const u64 place = whole ? a.at[o] : 0, top = row * a.size, left = col * a.size;
	f32 *to = a.to + (plane * a.height + top) * a.width + left;
	for (u64 r = 0; r < a.size && top + r < a.height; r++)
		for (u64 c = 0; c < a.size && left + c < a.width; c++) to[r * a.width + c] = r * a.size + c == place ? v : 0.0f;
}

// The cross-entropy of rows of logits. For each row: the loss, in float64; the gradient of scale
// times the loss; and 1 if the label has the largest logit, where among equals the first counts,
// else 0. Twin of crossEntropy in kernels/nn/loss.go. A warp takes a row, and a lane every 32nd
// class.
struct LossArgs {
	const f32 *logits;
	const i32 *labels;
	f32 *d; // receives the gradient; 0: not wanted
	f64 *losses;
	u32 *correct;
	u64 rows, classes;
	f64 scale;
};

KERNEL(cross_entropy, LossArgs, THREADS) {
	const u64 r = BLOCK * WARPS + THREAD / 32, lane = THREAD % 32;
	if (r >= a.rows) return;
	const f32 *row = a.logits + r * a.classes;
	const u64 label = (u64)a.labels[r];
	f32 most = from_bits(0xff800000);
	u64 best = a.classes; // of this lane; classes: none yet
	bool number = true;
	for (u64 j = lane; j < a.classes; j += 32) {
		if (row[j] > most || (row[j] == most && j < best)) most = row[j], best = j;
		number = number && row[j] == row[j];
	}
#pragma unroll
	for (int w = 16; w > 0; w /= 2) {
		const f32 other = shuffle_xor(most, w);
		const u64 at = shuffle_xor(best, w);
		if (other > most || (other == most && at < best)) most = other, best = at;
	}
	if (row[0] != row[0]) best = 0; // as on the host, where nothing compares larger than a NaN
	number = ballot(number) == 0xffffffffu;
	const f64 largest = number ? most : from_bits(0x7fffffff);
	f64 total = 0;
	for (u64 j = lane; j < a.classes; j += 32) total += exp_of((f64)row[j] - largest);
#pragma unroll
	for (int w = 16; w > 0; w /= 2) total += shuffle_xor(total, w);
	if (lane == 0) {
		a.losses[r] = log_of(total) + largest - (f64)row[label];
		a.correct[r] = best == label;
	}
	if (!a.d) return;
	const f64 factor = a.scale / total;
	for (u64 j = lane; j < a.classes; j += 32) {
		const f64 e = exp_of((f64)row[j] - largest) * factor;
		a.d[r * a.classes + j] = narrow(j == label ? e - a.scale : e);
	}
}
