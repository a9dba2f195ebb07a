// The operations, once for all instruction sets. The file that includes this one defines
//
//	NAME(f)                 the exported name of f
//	V, WIDTH                a vector of WIDTH floats: 4, 8 or 16
//	v_load v_store v_set    unaligned loads and stores, all lanes alike
//	v_stream v_fence        aligned stores past the caches; makes such stores visible to others
//	v_add v_sub v_mul v_div v_sqrt
//	v_unless_zero(x, a, b)  a, and b where x is 0
//	D                       a vector of WIDTH/2 doubles
//	d_load d_store d_add d_mul
//	d_low d_high            the halves of a V, as D
//	d_from                  WIDTH/2 floats of memory, as D
//	v_store_bf16            what the step broadcasts: see doc.go
//
// and the names that simd_decode_body.h needs, and turns contraction off. The formulas are those of doc.go.
// Two arrays may be the same where step.go allows it, but never overlap in part: a vector is loaded whole
// before it is stored.

enum { doubles = WIDTH / 2, lane_vectors = kin_lanes / doubles };

// add_products adds a·b, from element u·WIDTH on, to vectors 2u and 2u+1 of lanes.
static inline void add_products(D *lane, int u, V a, V b) {
	lane[2 * u] = d_add(lane[2 * u], d_mul(d_low(a), d_low(b)));
	lane[2 * u + 1] = d_add(lane[2 * u + 1], d_mul(d_high(a), d_high(b)));
}

// add_squares_at adds the squares of the vector at x to the same lanes. It converts from memory, since taking the
// halves of a register apart costs more.
static inline void add_squares_at(D *lane, int u, const float *x) {
	D low = d_from(x), high = d_from(x + WIDTH / 2);
	lane[2 * u] = d_add(lane[2 * u], d_mul(low, low));
	lane[2 * u + 1] = d_add(lane[2 * u + 1], d_mul(high, high));
}

static inline void load_lanes(D *lane, const double *from) {
	for (int u = 0; u < lane_vectors; u++)
		lane[u] = d_load(from + u * doubles);
}

static inline void store_lanes(double *to, const D *lane) {
	for (int u = 0; u < lane_vectors; u++)
		d_store(to + u * doubles, lane[u]);
}

static void add_squares(double *sum, const float *x, size_t n) {
	D lane[lane_vectors];
	load_lanes(lane, sum);
	for (size_t i = 0; i < n; i += kin_lanes)
		for (int u = 0; u < lane_vectors / 2; u++)
			add_squares_at(lane, u, x + i + u * WIDTH);
	store_lanes(sum, lane);
}

static void add_distances(double *sum, const float *x, const float *y, size_t n) {
	D lane[lane_vectors];
	load_lanes(lane, sum);
	for (size_t i = 0; i < n; i += kin_lanes)
		for (int u = 0; u < lane_vectors / 2; u++) {
			V d = v_sub(v_load(x + i + u * WIDTH), v_load(y + i + u * WIDTH));
			add_products(lane, u, d, d);
		}
	store_lanes(sum, lane);
}

static void add_dot(double *sum, const float *g, const float *x, const float *y, size_t n) {
	D lane[lane_vectors];
	load_lanes(lane, sum);
	for (size_t i = 0; i < n; i += kin_lanes)
		for (int u = 0; u < lane_vectors / 2; u++) {
			V d = v_sub(v_load(x + i + u * WIDTH), v_load(y + i + u * WIDTH));
			add_products(lane, u, v_load(g + i + u * WIDTH), d);
		}
	store_lanes(sum, lane);
}

#include "simd_decode_body.h"
#include "simd_sum_body.h"

// places says which arrays are written past the caches.
typedef struct {
	int next, state;
} places;

// put stores v, past the caches if past is set; p is then aligned to a vector. Compilers move the test out of the loops.
static inline __attribute__((always_inline)) void put(float *p, V v, int past) {
	if (past)
		v_stream(p, v);
	else
		v_store(p, v);
}

// decayed is h = g + λ·w.
static inline V decayed(const kin_step *s, const float *g, V w) {
	return v_add(v_load(g), v_mul(v_set(s->decay), w));
}

static void sgd(const kin_step *s, const float *g, const float *params, float *next, size_t n, places past) {
	for (size_t i = 0; i < n; i += WIDTH) {
		V w = v_load(params + i);
		put(next + i, v_sub(w, v_mul(v_set(s->rate), decayed(s, g + i, w))), past.next);
	}
}

// momentum_rule is Momentum and, with the look ahead, Nesterov. m and next_m belong to g's first value.
static inline __attribute__((always_inline)) void momentum_rule(const kin_step *s, const float *g, const float *params,
		float *next, const float *m, float *next_m, size_t n, places past, const int ahead) {
	V mu = v_set(s->momentum);
	for (size_t i = 0; i < n; i += WIDTH) {
		V w = v_load(params + i);
		V h = decayed(s, g + i, w);
		V m1 = v_add(v_mul(mu, v_load(m + i)), h);
		put(next_m + i, m1, past.state);
		V d = ahead ? v_add(h, v_mul(mu, m1)) : m1;
		put(next + i, v_sub(w, v_mul(v_set(s->rate), d)), past.next);
	}
}

// adam_rule is Adam, AdamW if it is decoupled, and LazyAdam if it is lazy. States belong to g's first value.
static inline __attribute__((always_inline)) void adam_rule(const kin_step *s, const float *g, const float *params, float *next,
		const float *m, float *next_m, const float *v, float *next_v, size_t n, places past, const int decoupled, const int lazy) {
	for (size_t i = 0; i < n; i += WIDTH) {
		V w = v_load(params + i), m0 = v_load(m + i), v0 = v_load(v + i);
		V h = decoupled ? v_load(g + i) : decayed(s, g + i, w);
		V m1 = v_add(v_mul(v_set(s->beta1), m0), v_mul(v_set(s->rest1), h));
		V v1 = v_add(v_mul(v_set(s->beta2), v0), v_mul(v_set(s->rest2), v_mul(h, h)));
		put(next_m + i, lazy ? v_unless_zero(v_load(g + i), m1, m0) : m1, past.state);
		put(next_v + i, lazy ? v_unless_zero(v_load(g + i), v1, v0) : v1, past.state);
		V below = v_add(v_mul(v_sqrt(v1), v_set(s->rho)), v_set(s->epsilon));
		V kept = decoupled ? v_mul(v_set(s->weight_kept), w) : w;
		V w1 = v_sub(kept, v_div(v_mul(v_set(s->alpha), m1), below));
		put(next + i, lazy ? v_unless_zero(v_load(g + i), w1, w) : w1, past.next);
	}
}

static void adagrad(const kin_step *s, const float *g, const float *params, float *next, const float *m, float *next_m, size_t n,
		places past) {
	for (size_t i = 0; i < n; i += WIDTH) {
		V w = v_load(params + i);
		V h = decayed(s, g + i, w);
		V m1 = v_add(v_load(m + i), v_mul(h, h));
		put(next_m + i, m1, past.state);
		V below = v_add(v_sqrt(m1), v_set(s->epsilon));
		put(next + i, v_sub(w, v_div(v_mul(v_set(s->rate), h), below)), past.next);
	}
}

static void add_rule(const float *g, const float *params, float *next, size_t n, places past) {
	for (size_t i = 0; i < n; i += WIDTH)
		put(next + i, v_add(v_load(params + i), v_load(g + i)), past.next);
}

static void copy_tile(float *to, const float *from, size_t n, int past) {
	for (size_t i = 0; i < n; i += WIDTH)
		put(to + i, v_load(from + i), past);
}

// apply writes the parameters that the rule gives to next, and the states from at on.
static void apply(const kin_step *s, size_t at, const float *g, const float *params, float *next, size_t n, places past) {
	size_t first = s->state0 ? at : 0, second = s->state1 ? at : 0; // NULL plus a number has no meaning
	const float *m = s->state0 + first, *v = s->state1 + second;
	float *next_m = s->next_state0 + first, *next_v = s->next_state1 + second;
	switch (s->rule) {
	case kin_sgd:
		sgd(s, g, params, next, n, past);
		break;
	case kin_momentum:
		momentum_rule(s, g, params, next, m, next_m, n, past, 0);
		break;
	case kin_nesterov:
		momentum_rule(s, g, params, next, m, next_m, n, past, 1);
		break;
	case kin_adam:
		adam_rule(s, g, params, next, m, next_m, v, next_v, n, past, 0, 0);
		break;
	case kin_adamw:
		adam_rule(s, g, params, next, m, next_m, v, next_v, n, past, 1, 0);
		break;
	case kin_lazy_adam:
		adam_rule(s, g, params, next, m, next_m, v, next_v, n, past, 0, 1);
		break;
	case kin_adagrad:
		adagrad(s, g, params, next, m, next_m, n, past);
		break;
	case kin_add:
		add_rule(g, params, next, n, past);
		break;
	case kin_assign:
		copy_tile(next, g, n, past.next);
		break;
	}
}

// aligned says whether arrays, NULL among them, may be written past the caches.
static inline int aligned(const void *a, const void *b, const void *c) {
	return ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % sizeof(V) == 0;
}

// run takes one tile at a time through the phases, in the order of span in host.go. The sum stays in the
// first-level cache, and so do the new parameters if they are needed again.
void NAME(run)(const kin_step *s, double *sums) {
	float sum[kin_tile], moved[kin_tile];
	prepared payload[kin_max_operands];
	for (int j = 0; j < s->operands; j++)
		prepare(payload + j, s->encoding[j], s->operand[j]);
	const int past = s->past && aligned(s->next, s->next_state0, s->next_state1);
	const int past_copy = past && aligned(s->copy, NULL, NULL);
	const int again = s->want_displacement || s->copy || (past && (s->saved || s->broadcast));
	for (size_t at = 0; at < s->n; at += kin_tile) {
		size_t n = s->n - at < kin_tile ? s->n - at : kin_tile;
		const float *g = s->from ? s->from + at : sum;
		if (s->from) {
			add_squares(sums, g, n);
		} else {
			float *to = s->update ? s->update + at : sum;
			sum_tile(s, payload, at, to, n, s->rule == kin_sum ? NULL : sums);
			g = to;
		}
		if (s->rule == kin_sum)
			continue;
		const float *params = s->params + at;
		float *next = s->next + at, *w = again ? moved : next; // next may be params, whose old values the distance still needs
		if (s->want_dot) // before next is written, which may be the same array as previous
			add_dot(sums + kin_lanes, g, params, s->previous + at, n);
		apply(s, at, g, params, w, n, (places){.next = past && !again, .state = past});
		if (s->want_displacement)
			add_distances(sums + 2 * kin_lanes, w, params, n);
		if (s->saved)
			add_distances(sums + 3 * kin_lanes, w, s->saved + at, n);
		if (s->broadcast)
			for (size_t i = 0; i < n; i += WIDTH)
				v_store_bf16(s->broadcast + 2 * (at + i), v_load(w + i));
		if (again)
			copy_tile(next, moved, n, past);
		if (s->copy)
			copy_tile(s->copy + at, moved, n, past_copy);
	}
	if (past)
		v_fence(); // otherwise later stores may become visible before these
}

void NAME(squares)(const float *x, size_t n, double *lane) { add_squares(lane, x, n); }

void NAME(distances)(const float *x, const float *y, size_t n, double *lane) { add_distances(lane, x, y, n); }

// finite multiplies by 0, which gives NaN for NaN and infinities, and ±0 for everything else. A sum keeps the NaN.
size_t NAME(finite)(const float *x, size_t n) {
	for (size_t at = 0; at < n; at += kin_tile) {
		size_t end = n - at < kin_tile ? n : at + kin_tile;
		V sticky[kin_lanes / WIDTH];
		for (int u = 0; u < kin_lanes / WIDTH; u++)
			sticky[u] = v_set(0);
		for (size_t i = at; i < end; i += kin_lanes)
			for (int u = 0; u < kin_lanes / WIDTH; u++)
				sticky[u] = v_add(sticky[u], v_mul(v_load(x + i + u * WIDTH), v_set(0)));
		float lane[kin_lanes];
		for (int u = 0; u < kin_lanes / WIDTH; u++)
			v_store(lane + u * WIDTH, sticky[u]);
		for (int j = 0; j < kin_lanes; j++)
			if (lane[j] != lane[j])
				return at;
	}
	return n;
}

void NAME(add_rows)(float *dst, size_t row_len, const int32_t *rows, size_t n, const float *values) {
	for (size_t r = 0; r < n; r++, values += row_len) {
		float *d = dst + (size_t)rows[r] * row_len;
		size_t i = 0;
		for (; i + WIDTH <= row_len; i += WIDTH)
			v_store(d + i, v_add(v_load(d + i), v_load(values + i)));
		for (; i < row_len; i++)
			d[i] += values[i];
	}
}
