// The sum of a step's operands over a tile, for all instruction sets: included by simd_body.h.

// sum_vectors adds operands [lo, hi), all in one dense encoding, at value at. It adds them to g if g already holds
// a part of the sum, and otherwise to the start of the sum. If that completes the sum, the sum is scaled and its
// squares are added to the lanes. Each addition to a lane waits for the one before, which costs nothing between the
// additions of the sum. Where count is a constant, the sums stay in registers, and additions of different vectors
// need not wait for one another.
static inline __attribute__((always_inline)) void sum_vectors(const kin_step *s, size_t at, float *g, int lo, int hi,
		int filled, D *lane, const int encoding, const int count) {
	const float *from = filled ? g : s->start ? s->start + at : NULL;
	V a[4];
	for (int u = 0; u < count; u++)
		a[u] = from ? v_load(from + u * WIDTH) : v_set(0);
	for (int j = lo; j < hi; j++) {
		V w = v_set(s->weight[j]);
		fetch(encoding, s->operand[j], s->values, at + kin_tile, count * WIDTH); // for the next tile, while this one is computed
		for (int u = 0; u < count; u++)
			a[u] = v_add(a[u], v_mul(w, load(encoding, s->operand[j], s->values, at + u * WIDTH)));
	}
	for (int u = 0; u < count; u++)
		v_store(g + u * WIDTH, lane ? v_mul(a[u], v_set(s->scale)) : a[u]);
	if (lane)
		for (int u = 0; u < count; u++)
			add_squares_at(lane, u % (kin_lanes / WIDTH), g + u * WIDTH);
}

static inline __attribute__((always_inline)) void sum_groups(const kin_step *s, size_t at, float *g, size_t n, int lo, int hi,
		int filled, D *lane, const int encoding) {
	size_t i = 0;
	for (; i + 4 * WIDTH <= n; i += 4 * WIDTH)
		sum_vectors(s, at + i, g + i, lo, hi, filled, lane, encoding, 4);
	for (; i < n; i += kin_lanes)
		sum_vectors(s, at + i, g + i, lo, hi, filled, lane, encoding, kin_lanes / WIDTH);
}

// sum_dense is sum_groups over a tile. sums are the sums of squares, or NULL if more operands follow.
static inline __attribute__((always_inline)) void sum_dense(const kin_step *s, size_t at, float *g, size_t n, int lo, int hi,
		int filled, double *sums, const int encoding) {
	if (!sums) {
		sum_groups(s, at, g, n, lo, hi, filled, NULL, encoding);
		return;
	}
	D lane[lane_vectors];
	load_lanes(lane, sums);
	sum_groups(s, at, g, n, lo, hi, filled, lane, encoding);
	store_lanes(sums, lane);
}

static void add_weighted(float *g, float weight, const float *x, size_t n) {
	for (size_t i = 0; i < n; i += WIDTH)
		v_store(g + i, v_add(v_load(g + i), v_mul(v_set(weight), v_load(x + i))));
}

// sum_one adds operand j, which is sparse or low-rank, to g.
static void sum_one(const kin_step *s, prepared *x, size_t at, float *g, size_t n, int j) {
	float decoded[kin_tile];
	switch (s->encoding[j]) {
	case kin_sparse16:
		scatter(x, s->weight[j], g, at, n, kin_sparse16);
		break;
	case kin_sparse32:
		scatter(x, s->weight[j], g, at, n, kin_sparse32);
		break;
	default:
		low_rank_tile(x, decoded, at, n);
		add_weighted(g, s->weight[j], decoded, n);
	}
}

// sum_tile sets g to the sum of the operands' values from at on. Unless sums is NULL, g is then scaled, and its squares
// are added to sums. Runs of operands in one dense encoding are summed in registers. Other operands are added to g
// one by one.
static void sum_tile(const kin_step *s, prepared *x, size_t at, float *g, size_t n, double *sums) {
	if (s->operands == 0 || !placed(s->encoding[0])) // an empty run puts the start of the sum into g
		sum_dense(s, at, g, n, 0, 0, 0, s->operands == 0 ? sums : NULL, kin_fp32);
	for (int j = 0, end; j < s->operands; j = end) {
		const int encoding = s->encoding[j];
		end = j + 1;
		if (!placed(encoding)) {
			sum_one(s, x + j, at, g, n, j);
			continue;
		}
		while (end < s->operands && s->encoding[end] == encoding)
			end++;
		const int filled = j > 0;
		double *squares = end == s->operands ? sums : NULL;
		switch (encoding) {
		case kin_fp32:
			sum_dense(s, at, g, n, j, end, filled, squares, kin_fp32);
			break;
		case kin_bf16:
			sum_dense(s, at, g, n, j, end, filled, squares, kin_bf16);
			break;
		case kin_fp16:
			sum_dense(s, at, g, n, j, end, filled, squares, kin_fp16);
			break;
		case kin_int8:
			sum_dense(s, at, g, n, j, end, filled, squares, kin_int8);
			break;
		case kin_int4:
			sum_dense(s, at, g, n, j, end, filled, squares, kin_int4);
			break;
		case kin_sign:
			sum_dense(s, at, g, n, j, end, filled, squares, kin_sign);
			break;
		}
	}
	if (sums && s->operands > 0 && !placed(s->encoding[s->operands - 1])) {
		for (size_t i = 0; i < n; i += WIDTH)
			v_store(g + i, v_mul(v_load(g + i), v_set(s->scale)));
		add_squares(sums, g, n);
	}
}
