// The operations on sequences, once for all instruction sets. The file that includes this one defines NAME(f), the
// exported name of f, and WIDTH, the number of floats in a vector register. It turns contraction off.
//
// A group is 16 values, in as many registers as they need. Sums run in the 16 lanes of a group, so their bits do not
// depend on WIDTH. Arrays end with their last value: only a part of the last group of a row is read and written.
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "nn_seq.h"

enum { lanes = 16, parts = lanes / WIDTH };

typedef float N __attribute__((vector_size(4 * WIDTH)));
typedef float U __attribute__((vector_size(4 * WIDTH), aligned(4)));
typedef int32_t I __attribute__((vector_size(4 * WIDTH)));
typedef struct {
	N h[parts];
} G;

#define INLINE static inline __attribute__((always_inline))
#define EACH for (int u = 0; u < parts; u++)

INLINE G g_load(const float *p) {
	G g;
	EACH g.h[u] = *(const U *)(p + u * WIDTH);
	return g;
}

INLINE void g_store(float *p, G g) {
	EACH *(U *)(p + u * WIDTH) = g.h[u];
}

INLINE G g_set(float x) {
	G g;
	EACH g.h[u] = x - (N){}; // not x + 0, which would lose the sign of −0
	return g;
}

// g_head loads the first n values of a group; the others are +0.
INLINE G g_head(const float *p, size_t n) {
	if (n >= lanes)
		return g_load(p);
	float all[lanes] = {0};
	memcpy(all, p, n * sizeof *p);
	return g_load(all);
}

// g_put stores the first n values of a group.
INLINE void g_put(float *p, G g, size_t n) {
	if (n >= lanes) {
		g_store(p, g);
		return;
	}
	float all[lanes];
	g_store(all, g);
	memcpy(p, all, n * sizeof *p);
}

// g_first keeps the first n values of a group; the others become those of b.
INLINE G g_first(G a, size_t n, G b) {
	int32_t index[lanes];
	for (int i = 0; i < lanes; i++)
		index[i] = i;
	int32_t end = n < lanes ? (int32_t)n : lanes;
	EACH {
		I at;
		memcpy(&at, index + u * WIDTH, sizeof at);
		I keep = at < end;
		a.h[u] = (N)(((I)a.h[u] & keep) | ((I)b.h[u] & ~keep));
	}
	return a;
}

#define OPERATION(name, op) \
	INLINE G name(G a, G b) { \
		EACH a.h[u] = a.h[u] op b.h[u]; \
		return a; \
	}
OPERATION(g_add, +)
OPERATION(g_sub, -)
OPERATION(g_mul, *)
OPERATION(g_div, /)

// g_smaller returns b where a > b, else a, which may be NaN.
INLINE G g_smaller(G a, G b) {
	EACH {
		I over = a.h[u] > b.h[u];
		a.h[u] = (N)(((I)b.h[u] & over) | ((I)a.h[u] & ~over));
	}
	return a;
}

// g_larger returns b where b > a, else a, which may be NaN.
INLINE G g_larger(G a, G b) {
	EACH {
		I over = b.h[u] > a.h[u];
		a.h[u] = (N)(((I)b.h[u] & over) | ((I)a.h[u] & ~over));
	}
	return a;
}

// fold adds the lanes: l[i] += l[i+8], then +4, +2, +1.
INLINE float fold(G g) {
	float l[lanes];
	g_store(l, g);
	for (int half = lanes / 2; half > 0; half /= 2)
		for (int i = 0; i < half; i++)
			l[i] += l[i + half];
	return l[0];
}

// g_exp is Exp32 of exp.go.
INLINE G g_exp(G x) {
	const float magic = 12582912; // 1.5·2²³
	x = g_larger(g_smaller(x, g_set(88)), g_set(-87));
	G shifted = g_add(g_mul(x, g_set(0x1.715476p+0f)), g_set(magic));
	G n = g_sub(shifted, g_set(magic));
	G r = g_sub(g_sub(x, g_mul(n, g_set(0.693359375f))), g_mul(n, g_set(-0x1.bd0106p-13f)));
	G p = g_set(1.0f / 5040);
	p = g_add(g_mul(p, r), g_set(1.0f / 720));
	p = g_add(g_mul(p, r), g_set(1.0f / 120));
	p = g_add(g_mul(p, r), g_set(1.0f / 24));
	p = g_add(g_mul(p, r), g_set(1.0f / 6));
	p = g_add(g_mul(p, r), g_set(0.5f));
	p = g_add(g_add(g_mul(p, g_mul(r, r)), r), g_set(1));
	EACH p.h[u] = (N)((I)p.h[u] + ((I)shifted.h[u] << 23));
	return p;
}

// The constants of exp.go: c, 2·√(2/π), and 3·c times that.
#define GELU_CUBIC 0.044715f
#define GELU_SLOPE 0x1.988454p+0f
#define GELU_CURVE 0x1.b6676cp-3f

// gelu_factor returns the factor by which a GELU multiplies x, and sets rest to 1 minus that factor. x2 is x².
INLINE G gelu_factor(G x, G x2, G *rest) {
	G v = g_add(x, g_mul(g_set(GELU_CUBIC), g_mul(x2, x)));
	G e = g_exp(g_mul(g_set(-GELU_SLOPE), v));
	G f = g_div(g_set(1), g_add(g_set(1), e));
	*rest = g_mul(e, f);
	return f;
}

void NAME(gelu)(float *y, const float *x, size_t n) {
	for (size_t i = 0; i < n; i += lanes) {
		G v = g_head(x + i, n - i), rest;
		g_put(y + i, g_mul(v, gelu_factor(v, g_mul(v, v), &rest)), n - i);
	}
}

void NAME(gelu_gradient)(float *dx, const float *dy, const float *x, size_t n) {
	for (size_t i = 0; i < n; i += lanes) {
		G v = g_head(x + i, n - i), v2 = g_mul(v, v), rest, f = gelu_factor(v, v2, &rest);
		G inner = g_add(g_set(GELU_SLOPE), g_mul(g_set(GELU_CURVE), v2));
		G slope = g_add(f, g_mul(g_mul(g_mul(v, f), rest), inner));
		g_put(dx + i, g_mul(g_head(dy + i, n - i), slope), n - i);
	}
}

void NAME(layer_norm)(float *y, float *stats, const float *x, const float *w, const float *b, size_t rows, size_t n) {
	for (size_t r = 0; r < rows; r++, x += n, y += n) {
		G sum = g_set(0), squares = g_set(0);
		for (size_t i = 0; i < n; i += lanes)
			sum = g_add(sum, g_head(x + i, n - i));
		float mean = fold(sum) / (float)n;
		for (size_t i = 0; i < n; i += lanes) {
			G d = g_first(g_sub(g_head(x + i, n - i), g_set(mean)), n - i, g_set(0));
			squares = g_add(squares, g_mul(d, d));
		}
		float scale = 1 / sqrtf(fold(squares) / (float)n + 1e-5f);
		stats[2 * r] = mean;
		stats[2 * r + 1] = scale;
		for (size_t i = 0; i < n; i += lanes) {
			G z = g_mul(g_sub(g_head(x + i, n - i), g_set(mean)), g_set(scale));
			g_put(y + i, g_add(g_mul(z, g_head(w + i, n - i)), g_head(b + i, n - i)), n - i);
		}
	}
}

void NAME(layer_norm_gradient)(float *dx, float *dw, float *db, const float *dy, const float *x, const float *w,
	const float *stats, size_t rows, size_t n) {
	for (size_t r = 0; r < rows; r++, x += n, dy += n) {
		G mean = g_set(stats[2 * r]), scale = g_set(stats[2 * r + 1]);
		G sum = g_set(0), along = g_set(0);
		for (size_t i = 0; i < n; i += lanes) {
			size_t left = n - i;
			G z = g_mul(g_sub(g_head(x + i, left), mean), scale), d = g_head(dy + i, left);
			G g = g_mul(d, g_head(w + i, left));
			sum = g_add(sum, g);
			along = g_add(along, g_first(g_mul(g, z), left, g_set(0)));
			g_put(dw + i, g_add(g_head(dw + i, left), g_mul(d, z)), left);
			g_put(db + i, g_add(g_head(db + i, left), d), left);
		}
		if (!dx)
			continue;
		G a = g_set(fold(sum) / (float)n), c = g_set(fold(along) / (float)n);
		for (size_t i = 0; i < n; i += lanes) {
			size_t left = n - i;
			G z = g_mul(g_sub(g_head(x + i, left), mean), scale);
			G g = g_mul(g_head(dy + i, left), g_head(w + i, left));
			g_put(dx + i, g_mul(scale, g_sub(g_sub(g, a), g_mul(z, c))), left);
		}
		dx += n;
	}
}

// product_groups sets count groups of out to the sum over j < n, in order, of a[j·a_stride] times row j of m.
INLINE void product_groups(float *out, const float *a, size_t a_stride, size_t n, const float *m, size_t m_stride, const int count) {
	G sum[4];
	for (int c = 0; c < count; c++)
		sum[c] = g_set(0);
	for (size_t j = 0; j < n; j++, m += m_stride) {
		G factor = g_set(a[j * a_stride]);
		for (int c = 0; c < count; c++)
			sum[c] = g_add(sum[c], g_mul(factor, g_load(m + c * lanes)));
	}
	for (int c = 0; c < count; c++)
		g_store(out + c * lanes, sum[c]);
}

// product is product_groups for any number of groups. Where count is a constant, sums stay in registers.
static void product(float *out, const float *a, size_t a_stride, size_t n, const float *m, size_t m_stride, size_t groups) {
	for (; groups >= 4; groups -= 4, out += 4 * lanes, m += 4 * lanes)
		product_groups(out, a, a_stride, n, m, m_stride, 4);
	if (groups & 2) {
		product_groups(out, a, a_stride, n, m, m_stride, 2);
		out += 2 * lanes;
		m += 2 * lanes;
	}
	if (groups & 1)
		product_groups(out, a, a_stride, n, m, m_stride, 1);
}

// softmax replaces the first n values of a row by their softmax, and the rest of the last group by +0.
static void softmax(float *row, size_t n) {
	G most = g_set(-INFINITY), sum = g_set(0);
	for (size_t i = 0; i < n; i += lanes)
		most = g_larger(most, g_first(g_load(row + i), n - i, most));
	float l[lanes];
	g_store(l, most);
	for (int half = lanes / 2; half > 0; half /= 2)
		for (int i = 0; i < half; i++)
			l[i] = l[i + half] > l[i] ? l[i + half] : l[i];
	most = g_set(l[0]);
	for (size_t i = 0; i < n; i += lanes) {
		G e = g_first(g_exp(g_sub(g_load(row + i), most)), n - i, g_set(0));
		g_store(row + i, e);
		sum = g_add(sum, e);
	}
	sum = g_set(fold(sum));
	for (size_t i = 0; i < n; i += lanes)
		g_store(row + i, g_div(g_load(row + i), sum));
}

INLINE size_t round_up(size_t n) { return (n + lanes - 1) / lanes * lanes; }

// rows_of copies n rows of size values into rows of whole groups, filled up with +0.
static void rows_of(float *to, const float *from, size_t stride, size_t n, size_t size) {
	size_t wide = round_up(size);
	for (size_t t = 0; t < n; t++, to += wide, from += stride) {
		memcpy(to, from, size * sizeof *to);
		memset(to + size, 0, (wide - size) * sizeof *to);
	}
}

// columns_of copies the transpose of what rows_of copies.
static void columns_of(float *to, const float *from, size_t stride, size_t n, size_t size) {
	size_t wide = round_up(n);
	for (size_t j = 0; j < size; j++, to += wide) {
		for (size_t t = 0; t < n; t++)
			to[t] = from[t * stride + j];
		memset(to + n, 0, (wide - n) * sizeof *to);
	}
}

void NAME(attention)(const kin_nn_head *h) {
	size_t n = h->positions, size = h->size, long_row = round_up(n), row = round_up(size);
	float *keys = h->scratch, *values = keys + size * long_row, *one = values + n * row;
	columns_of(keys, h->k, h->stride, n, size);
	rows_of(values, h->v, h->stride, n, size);
	for (size_t t = 0; t < n; t++) {
		float *p = h->p + t * long_row;
		for (size_t j = 0; j < size; j++)
			one[j] = h->q[t * h->stride + j] * h->scale;
		product(p, one, 1, size, keys, long_row, t / lanes + 1);
		softmax(p, t + 1);
		product(one, p, 1, t + 1, values, row, row / lanes);
		memcpy(h->y + t * h->y_stride, one, size * sizeof *one);
	}
}

void NAME(attention_gradient)(const kin_nn_head *h) {
	size_t n = h->positions, size = h->size, long_row = round_up(n), row = round_up(size);
	float *values = h->scratch, *keys = values + size * long_row, *queries = keys + n * row;
	float *results = queries + n * row, *scores = results + n * row, *one = scores + n * long_row;
	columns_of(values, h->v, h->stride, n, size);
	rows_of(keys, h->k, h->stride, n, size);
	rows_of(queries, h->q, h->stride, n, size);
	rows_of(results, h->dy, h->y_stride, n, size);
	for (size_t t = 0; t < n; t++) {
		const float *p = h->p + t * long_row;
		float *d = scores + t * long_row;
		size_t groups = t / lanes + 1;
		product(d, results + t * row, 1, size, values, long_row, groups);
		G sum = g_set(0);
		for (size_t c = 0; c < groups; c++)
			sum = g_add(sum, g_mul(g_load(p + c * lanes), g_load(d + c * lanes)));
		G mean = g_set(fold(sum)), scale = g_set(h->scale);
		for (size_t c = 0; c < groups; c++)
			g_store(d + c * lanes, g_mul(g_mul(g_load(p + c * lanes), g_sub(g_load(d + c * lanes), mean)), scale));
		product(one, d, 1, t + 1, keys, row, row / lanes);
		memcpy(h->dq + t * h->stride, one, size * sizeof *one);
	}
	for (size_t s = 0; s < n; s++) {
		product(one, scores + s * long_row + s, long_row, n - s, queries + s * row, row, row / lanes);
		memcpy(h->dk + s * h->stride, one, size * sizeof *one);
		product(one, h->p + s * long_row + s, long_row, n - s, results + s * row, row, row / lanes);
		memcpy(h->dv + s * h->stride, one, size * sizeof *one);
	}
}
