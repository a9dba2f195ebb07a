// Encodes chunks as factors of low rank, with error feedback: PowerSGD (Vogels, Karimireddy, Jaggi
// 2019). Twin of kernels/compress/powersgd.go.
//
// A chunk y = x + carry is seen as a matrix M of rows·cols values. From a random Q, the kernel
// computes P = M·Q, makes the columns of P orthonormal and computes Q = Mᵀ·P. It does this twice.
// The payload holds P and Q in float32, and decodes to P·Qᵀ. The residual is M − P·Qᵀ.
//
// A block takes one chunk from the gradient to the residual. The payload has the host's bits: sums
// are in float64 and in the host's order, and products are rounded before they are added. So no sum
// can be split over more threads than the host has lanes. Threads work in parallel on different
// sums instead:
//
//  - P = M·Q: a sum along a row of M has four lanes, with a thread for each.
//  - Q = Mᵀ·P: a sum down a column of M has one order, and one thread.
//  - Inner products of columns of P: four lanes, in each of eight groups of a warp alike.
#include "kdev.cuh"

// One chunk. P and Q exist twice: p and q are scratch memory, and factors is in the payload.
struct Matrix {
	const f32 *x, *carry; // row by row; carry: 0 for none
	f32 *residual;        // receives M − P·Qᵀ; 0: not wanted
	f32 *decoded;         // receives P·Qᵀ; holds M before that, if there is a carry
	f64 *p, *q;           // column by column: [rank][rows] and [rank][cols]
	f32 *factors;         // receives P and Q, row by row: [rows][rank], then [cols][rank]
	f64 limit;            // bounds the magnitudes in Q, or in P if cols is 1
	u32 rows, cols, rank; // rank ≤ rows, cols, MOST_RANK. If cols is 1, P is M and Q is 1
	u32 key_a, key_b;     // the key of the random Q
};

struct Matrices {
	const Matrix *chunks; // one for each block
};

// LANES is the number of lanes of a sum on the host. BATCH is the number of values of M that a
// thread loads at once, and AHEAD that of vectors of four.
enum { THREADS = 256, WARPS = THREADS / 32, LANES = 4, MOST_RANK = 64, BATCH = 8, AHEAD = 4 };

// Shared memory: the norm of each column of P before it is made orthogonal to others.
struct Norms {
	f64 of_column[MOST_RANK];
};

// Adds the products of one value of M to R sums, of R columns of the other factor. column is the
// value of the first of these columns; the others are `apart` values from each other.
template <u32 R> DEVICE void accumulate(f64 (&sum)[R], f32 v, const f64 *column, u64 apart) {
#pragma unroll
	for (u32 r = 0; r < R; r++) sum[r] = add(sum[r], mul((f64)v, column[r * apart]));
}

// Does this for `count` values of M, in order. They are `step` values apart, and their partners in
// a column `stride` values. The loads of the next BATCH values are issued before the present ones
// are used.
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

// Returns the sum of four neighbouring lanes, (a + b) + (c + d) as on the host, to the first of
// them. All lanes of the warp must call it.
DEVICE f64 four(f64 lane) {
	lane = add(lane, shuffle_down(lane, 1));
	return add(lane, shuffle_down(lane, 2));
}

// Computes R columns of P = M·Q, from column `first` on. Four threads take a row, with a lane of
// its sum each. The values behind the last multiple of four belong to the first lane, as on the
// host. Threads without a row take part in the shuffles.
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

// Computes R columns of Q = Mᵀ·P, from column `first` on. A thread takes a column of M. Its loads
// are coalesced.
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

// Computes all columns of P or of Q, up to four in one pass over M.
template <bool TRANSPOSED> DEVICE void product(const Matrix &a, const f32 *m) {
	u32 first = 0;
	for (; first + 4 <= a.rank; first += 4) TRANSPOSED ? multiply_transposed<4>(a, m, first) : multiply<4>(a, m, first);
	if (first + 2 <= a.rank) {
		TRANSPOSED ? multiply_transposed<2>(a, m, first) : multiply<2>(a, m, first);
		first += 2;
	}
	if (first < a.rank) TRANSPOSED ? multiply_transposed<1>(a, m, first) : multiply<1>(a, m, first);
}

// Returns the inner product of two columns of P, to all lanes of a warp. All lanes must call it.
// Each group of four lanes computes the whole sum, from the same addresses. Behind the barrier of
// the warp, a lane may overwrite the columns. Without it, others might not have read them yet.
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

// Makes the columns of P orthonormal by the modified Gram–Schmidt procedure, which loses fewest
// digits. The host goes through the columns, and subtracts from each its components along all
// columns before it. Here, once a column is a unit vector, its components are subtracted from all
// columns behind it, with a warp for each of these. This changes neither the operations on a column
// nor their order. A column that depends linearly on those before it, up to rounding, becomes zero.
DEVICE void orthonormalize(const Matrix &a, Norms &sh) {
	const u32 lane = THREAD % 32, warp = THREAD / 32;
	for (u32 r = warp; r < a.rank; r += WARPS) {
		const f64 *const v = a.p + (u64)r * a.rows;
		const f64 norm = root(dot(v, v, a.rows));
		if (lane == 0) sh.of_column[r] = norm;
	}
	// This barrier is not needed: warp 0 has written the norm of column 0 itself, and reads the
	// norms of the other columns behind the barriers below.
	sync(); // the norms are there
	for (u32 r = 0; r < a.rank; r++) {
		f64 *const u = a.p + (u64)r * a.rows;
		if (warp == 0) {
			const f64 after = root(dot(u, u, a.rows));
			const f64 scale = after > mul(1e-9, sh.of_column[r]) ? quotient(1.0, after) : 0.0;
			for (u32 i = lane; i < a.rows; i += 32) u[i] = mul(u[i], scale);
		}
		// Without this barrier, warps would project on a vector that is not scaled yet.
		sync(); // the column is a unit vector
		for (u32 s = r + 1 + warp; s < a.rank; s += WARPS) {
			f64 *const v = a.p + (u64)s * a.rows;
			const f64 along = dot(u, v, a.rows);
			for (u32 i = lane; i < a.rows; i += 32) v[i] = sub(v[i], mul(along, u[i]));
		}
		// Without this barrier, a warp would read a column from which another one still subtracts.
		sync(); // nothing of it is left in those behind
	}
}

// Rounds to float32, after bounding the magnitude.
DEVICE f32 limited(f64 v, f64 limit) { return narrow(v < -limit ? -limit : v > limit ? limit : v); }

// Computes P and Q and writes them to the payload. Each barrier stands between the threads that
// write a factor and other threads that read it. It also keeps a factor from being overwritten
// while threads still read it.
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

// Writes the factors of a matrix of one column: M itself, and 1.
DEVICE void keep(const Matrix &a, const f32 *m) {
	for (u32 i = THREAD; i < a.rows; i += THREADS) a.factors[i] = limited((f64)m[i], a.limit);
	if (THREAD == 0) a.factors[a.rows] = 1;
}

// Writes the decoded values P·Qᵀ, and the residual. m may be the memory of decoded, since a thread
// loads its values of M before it stores to the same places.
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

// Writes M = x + carry to decoded.
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

// Encodes a chunk for each block. Without the first barrier, threads would read values of M that
// others have not stored yet. Without the second, they would decode factors that are not written.
KERNEL_CROWD(low_rank_encode, Matrices, THREADS, 3) {
	SHARED(Norms, sh);
	const Matrix c = a.chunks[BLOCK]; // a copy in registers, which no store can alias
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
