// Chunks to factors of low rank, with error feedback: PowerSGD (Vogels, Karimireddy, Jaggi 2019), the twin of kernels/compress/powersgd.go. A block takes
// a chunk, seen as a matrix M, from the gradient to the payload and what is left: P = M·Q of a random Q, the columns of P made orthonormal, Q = Mᵀ·P,
// and all of it once more. Sums are in float64 and in the host's order, products are rounded before they are added, and so the payload has the host's
// bits. No sum is split for that: sums along rows and along columns of P go in the host's four lanes, a thread for each, and those down a column of M one value
// after the other; what runs beside each other are the sums of all rows, columns and ranks.
#include "kdev.cuh"

struct Matrix {
	const f32 *x, *carry; // row by row; carry: 0 for none
	f32 *residual;        // 0: nobody keeps it
	f32 *decoded;         // P·Qᵀ
	f64 *p, *q;           // column by column: [rank][rows] and [rank][cols]
	f32 *factors;         // of the payload: [rows][rank], and behind it [cols][rank]
	f64 limit;            // of the magnitudes in Q
	u32 rows, cols, rank; // of one column, P is the chunk itself and Q is 1
	u32 key_a, key_b;     // of the random Q
};

struct Matrices {
	const Matrix *chunks;
};

enum { THREADS = 256, WARPS = THREADS / 32, LANES = 4, MOST_RANK = 64, BATCH = 8, AHEAD = 4 };

struct Norms {
	f64 of_column[MOST_RANK];
};

// Adds what a value of M adds to the sums of R ranks. column is what it is multiplied by for the first of them.
template <u32 R> DEVICE void accumulate(f64 (&sum)[R], f32 v, const f64 *column, u64 apart) {
#pragma unroll
	for (u32 r = 0; r < R; r++) sum[r] = add(sum[r], mul((f64)v, column[r * apart]));
}

// The same of count values, one after the other, which are so far from each other. The next ones are on their way while these are used.
template <u32 R> DEVICE void accumulate_all(f64 (&sum)[R], const f32 *values, u64 step, u32 count, const f64 *column, u32 stride, u64 apart) {
	IN_GLOBAL(values);
	IN_GLOBAL(column);
	f32 next[BATCH] = {};
	const u32 whole = count - count % BATCH;
	if (whole > 0)
#pragma unroll
		for (int b = 0; b < BATCH; b++) next[b] = values[b * step];
#pragma unroll 1
	for (u32 j = 0; j < whole; j += BATCH) {
		f32 v[BATCH];
#pragma unroll
		for (int b = 0; b < BATCH; b++) v[b] = next[b];
		values += BATCH * step;
		if (j + BATCH < whole)
#pragma unroll
			for (int b = 0; b < BATCH; b++) next[b] = values[b * step];
#pragma unroll
		for (int b = 0; b < BATCH; b++) accumulate(sum, v[b], column + b * stride, apart);
		column += BATCH * stride;
	}
#pragma unroll 1
	for (u32 j = whole; j < count; j++) {
		accumulate(sum, *values, column, apart);
		values += step;
		column += stride;
	}
}

// The sum of four lanes beside each other, as the host adds them. It is the first one's.
DEVICE f64 four(f64 lane) {
	lane = add(lane, shuffle_down(lane, 1));
	return add(lane, shuffle_down(lane, 2));
}

// R columns of P = M·Q.
template <u32 R> DEVICE void multiply(const Matrix &a, const f32 *m, u32 first) {
	const u32 lane = THREAD % LANES, whole = a.cols - a.cols % LANES;
	const f64 *const q = a.q + (u64)first * a.cols;
	f64 *const p = a.p + (u64)first * a.rows;
	for (u32 lo = 0; lo < a.rows; lo += THREADS / LANES) {
		const u32 row = lo + THREAD / LANES;
		f64 sum[R] = {};
		if (row < a.rows) {
			const f32 *const values = m + (u64)row * a.cols;
			accumulate_all(sum, values + lane, LANES, whole / LANES, q + lane, LANES, a.cols);
			if (lane == 0)
				for (u32 j = whole; j < a.cols; j++) accumulate(sum, values[j], q + j, a.cols);
		}
#pragma unroll
		for (u32 r = 0; r < R; r++) {
			const f64 v = four(sum[r]);
			if (lane == 0 && row < a.rows) p[(u64)r * a.rows + row] = v;
		}
	}
}

// R columns of Q = Mᵀ·P.
template <u32 R> DEVICE void multiply_transposed(const Matrix &a, const f32 *m, u32 first) {
	const f64 *const p = a.p + (u64)first * a.rows;
	f64 *const q = a.q + (u64)first * a.cols;
	for (u32 j = THREAD; j < a.cols; j += THREADS) {
		f64 sum[R] = {};
		accumulate_all(sum, m + j, a.cols, a.rows, p, 1, a.rows);
#pragma unroll
		for (u32 r = 0; r < R; r++) q[(u64)r * a.cols + j] = sum[r];
	}
}

// All columns of a product, as many at once as M is read for.
template <bool TRANSPOSED> DEVICE void product(const Matrix &a, const f32 *m) {
	u32 first = 0;
	for (; first + 4 <= a.rank; first += 4) TRANSPOSED ? multiply_transposed<4>(a, m, first) : multiply<4>(a, m, first);
	if (first + 2 <= a.rank) {
		TRANSPOSED ? multiply_transposed<2>(a, m, first) : multiply<2>(a, m, first);
		first += 2;
	}
	if (first < a.rank) TRANSPOSED ? multiply_transposed<1>(a, m, first) : multiply<1>(a, m, first);
}

// The inner product of two columns, for all threads of a warp, which take part: each four of them have the whole of it. Who writes to the columns
// then writes after all have read.
DEVICE f64 dot(const f64 *x, const f64 *y, u32 n) {
	const u32 lane = THREAD % LANES, whole = n - n % LANES;
	f64 sum = 0;
#pragma unroll 8
	for (u32 i = lane; i < whole; i += LANES) sum = add(sum, mul(x[i], y[i]));
	if (lane == 0)
		for (u32 i = whole; i < n; i++) sum = add(sum, mul(x[i], y[i]));
	sum = shuffle(four(sum), 0);
	sync_warp();
	return sum;
}

// Gram and Schmidt's procedure on the columns of P, in the order that loses fewest digits. The host takes from a column its parts along all
// those before; here a column's part is taken from all those behind it, a warp for each, which is the same for each of them. A column that depends
// on those before, but for rounding, becomes zero.
DEVICE void orthonormalize(const Matrix &a, Norms &sh) {
	const u32 lane = THREAD % 32, warp = THREAD / 32;
	for (u32 r = warp; r < a.rank; r += WARPS) {
		const f64 *const v = a.p + (u64)r * a.rows;
		const f64 norm = root(dot(v, v, a.rows));
		if (lane == 0) sh.of_column[r] = norm;
	}
	sync(); // the norms are there
	for (u32 r = 0; r < a.rank; r++) {
		f64 *const u = a.p + (u64)r * a.rows;
		if (warp == 0) {
			const f64 after = root(dot(u, u, a.rows));
			const f64 scale = after > mul(1e-9, sh.of_column[r]) ? quotient(1.0, after) : 0.0;
			for (u32 i = lane; i < a.rows; i += 32) u[i] = mul(u[i], scale);
		}
		sync(); // the column is a unit vector
		for (u32 s = r + 1 + warp; s < a.rank; s += WARPS) {
			f64 *const v = a.p + (u64)s * a.rows;
			const f64 along = dot(u, v, a.rows);
			for (u32 i = lane; i < a.rows; i += 32) v[i] = sub(v[i], mul(along, u[i]));
		}
		sync(); // nothing of it is left in those behind
	}
}

DEVICE f32 limited(f64 v, f64 limit) { return narrow(v < -limit ? -limit : v > limit ? limit : v); }

// Writes the factors of the approximation of M.
DEVICE void approximate(const Matrix &a, const f32 *m, Norms &sh) {
	for (u32 i = THREAD; i < a.rank * a.cols; i += THREADS) a.q[i] = mul((f64)(i32)noise(a.key_a, a.key_b, i), 0x1p-31);
	sync(); // the random vectors are there
	for (int round = 0; round < 2; round++) {
		product<false>(a, m);
		sync(); // P is whole
		orthonormalize(a, sh);
		product<true>(a, m);
		sync(); // Q is whole
	}
	f32 *const q = a.factors + (u64)a.rows * a.rank;
	for (u32 i = THREAD; i < a.rows * a.rank; i += THREADS) a.factors[i] = narrow(a.p[(u64)(i % a.rank) * a.rows + i / a.rank]);
	for (u32 i = THREAD; i < a.cols * a.rank; i += THREADS) q[i] = limited(a.q[(u64)(i % a.rank) * a.cols + i / a.rank], a.limit);
}

// Writes M, of one column, and 1.
DEVICE void keep(const Matrix &a, const f32 *m) {
	for (u32 i = THREAD; i < a.rows; i += THREADS) a.factors[i] = limited((f64)m[i], a.limit);
	if (THREAD == 0) a.factors[a.rows] = 1;
}

// Decodes the factors, and writes what they lack of M, which may be where the decoded values go.
DEVICE void lose(const Matrix &a, const f32 *m) {
	const u32 n = a.rows * a.cols;
	const f32 *const p = a.factors, *const q = a.factors + (u64)a.rows * a.rank;
	for (u32 lo = 4 * THREAD; lo < n; lo += 4 * THREADS * AHEAD) {
		Four y[AHEAD];
#pragma unroll
		for (int k = 0; k < AHEAD; k++)
			if (lo + 4 * THREADS * k < n) y[k] = load(m, lo + 4 * THREADS * k);
#pragma unroll
		for (int k = 0; k < AHEAD; k++) {
			const u32 i = lo + 4 * THREADS * k;
			if (i >= n) break;
			Four d = Four(), left = Four();
			u32 row = i / a.cols, col = i % a.cols;
#pragma unroll
			for (int e = 0; e < 4; e++) {
				if (i + e >= n) break;
				for (u32 r = 0; r < a.rank; r++) d.v[e] = add(d.v[e], mul(p[(u64)row * a.rank + r], q[(u64)col * a.rank + r]));
				left.v[e] = sub(y[k].v[e], d.v[e]);
				if (++col == a.cols) {
					col = 0;
					row++;
				}
			}
			store(a.decoded, i, n, d);
			if (a.residual) store(a.residual, i, n, left);
		}
	}
}

DEVICE void feed(const Matrix &a) {
	const u32 n = a.rows * a.cols;
	for (u32 lo = 4 * THREAD; lo < n; lo += 4 * THREADS * AHEAD) {
		Four y[AHEAD], c[AHEAD];
#pragma unroll
		for (int k = 0; k < AHEAD; k++) {
			const u32 i = lo + 4 * THREADS * k;
			y[k] = i < n ? load(a.x, i) : Four();
			c[k] = i < n ? load(a.carry, i) : Four();
		}
#pragma unroll
		for (int k = 0; k < AHEAD; k++) {
			const u32 i = lo + 4 * THREADS * k;
			if (i >= n) break;
#pragma unroll
			for (int e = 0; e < 4; e++) y[k].v[e] = add(y[k].v[e], c[k].v[e]);
			store(a.decoded, i, n, y[k]);
		}
	}
}

// Encodes a chunk for each block.
KERNEL_CROWD(low_rank_encode, Matrices, THREADS, 3) {
	SHARED(Norms, sh);
	const Matrix c = a.chunks[BLOCK]; // a copy: no store can change it
	if (c.carry) feed(c);
	const f32 *const m = c.carry ? c.decoded : c.x;
	sync(); // what is encoded is there
	if (c.cols == 1) {
		keep(c, m);
	} else {
		approximate(c, m, sh);
	}
	sync(); // the factors are there
	lose(c, m);
}
