// Convolutions, once for all instruction sets. conv.go says how they are computed. Besides NAME, the file
// that includes this one defines
//
//	V, WIDTH                       a vector of WIDTH floats
//	v_load v_store v_set           unaligned loads and stores, all lanes alike
//	v_fma(a, b, c)                 a·b + c, rounded once
//	v_sum(v)                       the sum of all lanes
//	ROWS                           channels of a tile of a correlation, filters of one of weights
//	COLS(m)                        vectors of a tile with m channels, such that it stays in registers
//	TAPS(m)                        the same for a tile of weights with m filters
//	POOL2                          if it has pool2 and unpool2 in vector code, for windows of 2×2

#define INLINE static inline __attribute__((always_inline))

// correlate_tile sets m·cols vectors of out to sums over taps, which stay in registers.
INLINE void correlate_tile(float *out, size_t plane, const float *in, const int32_t *tap, size_t taps, const float *w,
	size_t row, const int m, const int cols) {
	V sum[ROWS][4];
#pragma GCC unroll 8
	for (int i = 0; i < m; i++)
#pragma GCC unroll 4
		for (int v = 0; v < cols; v++)
			sum[i][v] = v_set(0);
	for (size_t t = 0; t < taps; t++, w += row) {
		const float *from = in + tap[t];
		V x[4];
#pragma GCC unroll 4
		for (int v = 0; v < cols; v++)
			x[v] = v_load(from + v * WIDTH);
#pragma GCC unroll 8
		for (int i = 0; i < m; i++) {
			V weight = v_set(w[i]);
#pragma GCC unroll 4
			for (int v = 0; v < cols; v++)
				sum[i][v] = v_fma(weight, x[v], sum[i][v]);
		}
	}
#pragma GCC unroll 8
	for (int i = 0; i < m; i++)
#pragma GCC unroll 4
		for (int v = 0; v < cols; v++)
			v_store(out + i * plane + v * WIDTH, sum[i][v]);
}

// correlate_rows does m channels at n positions, rounded up to a vector.
INLINE void correlate_rows(float *out, size_t plane, const float *in, const int32_t *tap, size_t taps, const float *w, size_t row,
	size_t n, const int m) {
	size_t p = 0;
	for (; p + (COLS(m) - 1) * WIDTH < n; p += COLS(m) * WIDTH)
		correlate_tile(out + p, plane, in + p, tap, taps, w, row, m, COLS(m));
	if (COLS(m) > 3 && p + 2 * WIDTH < n)
		correlate_tile(out + p, plane, in + p, tap, taps, w, row, m, 3);
	else if (COLS(m) > 2 && p + WIDTH < n)
		correlate_tile(out + p, plane, in + p, tap, taps, w, row, m, 2);
	else if (p < n)
		correlate_tile(out + p, plane, in + p, tap, taps, w, row, m, 1);
}

// correlate sets n positions of m channels of out, which are plane values apart, to sums over taps: of a weight times
// a value of in.
static void correlate(float *out, size_t plane, const float *in, const int32_t *tap, size_t taps, const float *w, size_t m,
	size_t n) {
	for (size_t i = 0; i < m;) {
		size_t tiles = (m - i + ROWS - 1) / ROWS; // of about equal height: 16 rows are two of 8, 9 rows are 5 and 4
		size_t now = (m - i + tiles - 1) / tiles;
		float *to = out + i * plane;
		const float *from = w + i;
#define CASE(k) \
	case k: \
		correlate_rows(to, plane, in, tap, taps, from, m, n, k); \
		break;
		switch (now) {
			CASE(1)
			CASE(2)
			CASE(3)
			CASE(4)
#if ROWS > 4
			CASE(5)
			CASE(6)
			CASE(7)
			CASE(8)
#endif
		}
#undef CASE
		i += now;
	}
}

// weights_tile sets the weights of m filters and count taps to dot products over all images, in vectors of partial sums.
INLINE void weights_tile(const kin_nn_conv *c, float *dw, const float *frames, const float *dz, const int32_t *tap, const int m,
	const int count) {
	V sum[ROWS][4];
#pragma GCC unroll 8
	for (int i = 0; i < m; i++)
#pragma GCC unroll 4
		for (int t = 0; t < count; t++)
			sum[i][t] = v_set(0);
	for (size_t g = 0; g < c->n; g++, frames += c->frame, dz += c->dz)
		for (size_t p = 0; p < c->span; p += WIDTH) {
			V x[4];
#pragma GCC unroll 4
			for (int t = 0; t < count; t++)
				x[t] = v_load(frames + p + tap[t]);
#pragma GCC unroll 8
			for (int i = 0; i < m; i++) {
				V d = v_load(dz + i * c->dz_plane + p);
#pragma GCC unroll 4
				for (int t = 0; t < count; t++)
					sum[i][t] = v_fma(d, x[t], sum[i][t]);
			}
		}
#pragma GCC unroll 8
	for (int i = 0; i < m; i++)
#pragma GCC unroll 4
		for (int t = 0; t < count; t++)
			dw[i * c->taps + t] = v_sum(sum[i][t]);
}

INLINE void weights_rows(const kin_nn_conv *c, float *dw, const float *frames, const float *dz, const int m) {
	size_t t = 0;
	for (; t + TAPS(m) <= c->taps; t += TAPS(m))
		weights_tile(c, dw + t, frames, dz, c->tap + t, m, TAPS(m));
	for (; t < c->taps; t++)
		weights_tile(c, dw + t, frames, dz, c->tap + t, m, 1);
}

static void weights(const kin_nn_conv *c, float *dw, const float *frames, const float *dz) {
	for (size_t f = 0; f < c->filters;) {
		size_t tiles = (c->filters - f + ROWS - 1) / ROWS;
		size_t now = (c->filters - f + tiles - 1) / tiles;
		float *to = dw + f * c->taps;
		const float *from = dz + f * c->dz_plane;
#define CASE(k) \
	case k: \
		weights_rows(c, to, frames, from, k); \
		break;
		switch (now) {
			CASE(1)
			CASE(2)
			CASE(3)
			CASE(4)
#if ROWS > 4
			CASE(5)
			CASE(6)
			CASE(7)
			CASE(8)
#endif
		}
#undef CASE
		f += now;
	}
}

// pool_rows overwrites y and at with the largest values of the windows of a plane and their places.
static void pool_rows(float *y, uint8_t *at, const float *plane, size_t stride, size_t size, size_t rows, size_t cols) {
	for (size_t r = 0; r < rows; r++, y += cols, at += cols)
		for (size_t j = 0; j < cols; j++) {
			const float *window = plane + r * size * stride + j * size;
			float best = window[0];
			size_t place = 0;
			for (size_t a = 0; a < size; a++)
				for (size_t b = 0; b < size; b++) {
					float v = window[a * stride + b];
					place = v > best ? a * size + b : place;
					best = v > best ? v : best;
				}
			y[j] = best;
			at[j] = (uint8_t)place;
		}
}

// finish adds bias to n pooled values and rectifies them. It marks in at which results are 0, and so pass no gradient.
static void finish(float *restrict y, uint8_t *restrict at, size_t n, float bias, int relu) {
	for (size_t j = 0; j < n; j++)
		y[j] += bias;
	if (!relu)
		return;
	for (size_t j = 0; j < n; j++)
		at[j] = y[j] <= 0 ? kin_nn_blocked : at[j];
	for (size_t j = 0; j < n; j++)
		y[j] = rectified(y[j]);
}

#ifndef POOL2
static void pool2(float *y, uint8_t *at, const float *plane, size_t stride, size_t rows, size_t cols, float bias, int relu) {
	pool_rows(y, at, plane, stride, 2, rows, cols);
	finish(y, at, rows * cols, bias, relu);
}
#endif

// pool sets y to the largest values of the windows of a plane, plus bias and rectified, and at to their places.
static void pool(const kin_nn_conv *c, float *y, uint8_t *at, const float *plane, float bias) {
	size_t n = c->out_rows * c->out_cols;
	if (c->pool == 2) {
		pool2(y, at, plane, c->stride, c->out_rows, c->out_cols, bias, c->relu != 0);
		return;
	}
	if (c->pool == 1) {
		memset(at, 0, n);
		for (size_t r = 0; r < c->out_rows; r++)
			memcpy(y + r * c->out_cols, plane + r * c->stride, c->out_cols * sizeof(float));
	} else
		pool_rows(y, at, plane, c->stride, c->pool, c->out_rows, c->out_cols);
	finish(y, at, n, bias, c->relu != 0);
}

static void unpool_rows(float *plane, const uint8_t *at, const float *dy, size_t stride, size_t size, size_t rows, size_t cols) {
	for (size_t r = 0; r < rows; r++, at += cols, dy += cols)
		for (size_t j = 0; j < cols; j++) {
			float *window = plane + r * size * stride + j * size;
			for (size_t a = 0; a < size; a++)
				for (size_t b = 0; b < size; b++)
					window[a * stride + b] = at[j] == a * size + b ? dy[j] : 0;
		}
}

// passed returns the sum of the values of dy that pass, in 16 lanes.
static float passed(const uint8_t *at, const float *dy, size_t n) {
	float lane[16] = {0};
	size_t j = 0;
	for (; j + 16 <= n; j += 16)
		for (size_t k = 0; k < 16; k++)
			lane[k] += at[j + k] == kin_nn_blocked ? 0 : dy[j + k];
	for (size_t k = 0; j + k < n; k++)
		lane[k] += at[j + k] == kin_nn_blocked ? 0 : dy[j + k];
	float sum = 0;
	for (size_t k = 0; k < 16; k++)
		sum += lane[k];
	return sum;
}

#ifndef POOL2
static float unpool2(float *plane, const uint8_t *at, const float *dy, size_t stride, size_t rows, size_t cols) {
	unpool_rows(plane, at, dy, stride, 2, rows, cols);
	return passed(at, dy, rows * cols);
}
#endif

// unpool sets the windows of a plane to dy at the places in at, and to 0 elsewhere. It returns the sum of what it set.
static float unpool(const kin_nn_conv *c, float *plane, const uint8_t *at, const float *dy) {
	if (c->pool == 2)
		return unpool2(plane, at, dy, c->stride, c->out_rows, c->out_cols);
	unpool_rows(plane, at, dy, c->stride, c->pool, c->out_rows, c->out_cols);
	return passed(at, dy, c->out_rows * c->out_cols);
}

void NAME(conv_forward)(const kin_nn_conv *c, kin_nn_conv_forward a) {
	size_t area = c->out_rows * c->out_cols;
	for (size_t i = 0; i < c->n; i++, a.frames += c->frame) {
		for (size_t ch = 0; ch < c->channels; ch++)
			for (size_t r = 0; r < c->height; r++, a.x += c->width)
				memcpy(a.frames + ch * c->plane + (r + c->pad) * c->stride + c->pad, a.x, c->width * sizeof(float));
		correlate(a.scratch, c->z_plane, a.frames, c->tap, c->taps, a.weights, c->filters, c->positions);
		for (size_t f = 0; f < c->filters; f++, a.y += area, a.at += area)
			pool(c, a.y, a.at, a.scratch + f * c->z_plane, a.bias[f]);
	}
}

void NAME(conv_backward)(const kin_nn_conv *c, kin_nn_conv_backward a) {
	size_t area = c->out_rows * c->out_cols;
	float *dx = a.scratch, *dz = a.scratch + c->channels * c->dx_plane;
	memset(a.db, 0, c->filters * sizeof(float));
	for (size_t i = 0; i < c->n; i++)
		for (size_t f = 0; f < c->filters; f++, a.dy += area, a.at += area)
			a.db[f] += unpool(c, dz + i * c->dz + f * c->dz_plane + c->lead, a.at, a.dy);
	weights(c, a.dw, a.frames, dz + c->lead);
	if (!a.dx)
		return;
	size_t corner = c->pad * c->stride + c->pad;
	for (size_t i = 0; i < c->n; i++) {
		correlate(dx + corner, c->dx_plane, dz + i * c->dz + corner, c->back_tap, c->back_taps, a.weights, c->channels,
			c->back_positions);
		for (size_t ch = 0; ch < c->channels; ch++)
			for (size_t r = 0; r < c->height; r++, a.dx += c->width)
				memcpy(a.dx, dx + ch * c->dx_plane + (r + c->pad) * c->stride + c->pad, c->width * sizeof(float));
	}
}

void NAME(pool_forward)(size_t planes, size_t height, size_t width, size_t size, float *y, uint8_t *at, const float *x) {
	size_t rows = height / size, cols = width / size;
	for (; planes > 0; planes--, x += height * width, y += rows * cols, at += rows * cols)
		pool_rows(y, at, x, width, size, rows, cols);
}

void NAME(pool_backward)(size_t planes, size_t height, size_t width, size_t size, float *dx, const uint8_t *at, const float *dy) {
	size_t rows = height / size, cols = width / size;
	memset(dx, 0, planes * height * width * sizeof(float));
	for (; planes > 0; planes--, dx += height * width, dy += rows * cols, at += rows * cols)
		unpool_rows(dx, at, dy, width, size, rows, cols);
}
