// The blocked product, once for all instruction sets. The file that includes this one defines
//
//	NAME(f)                    the exported name of f
//	V, WIDTH                   a vector of WIDTH floats: 4, 8 or 16
//	TILE_ROWS                  the most rows of C that are summed at once; divides kin_gemm_rows
//	v_load v_store v_set       unaligned loads and stores, all lanes alike
//	v_mul, v_fma(a, b, c)      a·b, and a·b + c rounded once
//	M, v_mask(n)               a mask of the first n lanes, 1 ≤ n ≤ WIDTH
//	v_load_part v_store_part   only these lanes; a load fills the others with 0, and touches no memory beyond
//	LOADS_PARTS                0 if B is never loaded in part, 1 if a load of a part is as fast as any, else 2
//	DOTS                       the side of a square of dot products that are computed at once: 2 or 4
//	v_total(v)                 the sum of 16 lanes in LANES vectors, by halves: u and u + 8, then u + 4, u + 2, u + 1
//	Q, q_load q_store q_turn   four floats; the transpose of four times four
//
// Except with dots, every element of C is computed in chains of v_fma. Each chain starts at +0 and goes upwards
// over kin_gemm_depth values of l. It is then added as alpha·chain + beta·C, with beta = 1 after the first chain.
// No choice below changes that (which operand is copied, how a tile is cut), so no choice changes a bit.

enum { VECTORS = 2, PANEL = VECTORS * WIDTH };

// block is what the tiles of one block of C have in common.
typedef struct {
	size_t depth, a_row, a_step, b_row, ldc;
	float alpha, beta;
} block;

typedef void (*tile_function)(const block *t, const float *a, const float *b, float *c, size_t cols);

// tile adds rows × cols elements of C, in that many vectors. If strided is set, neighbours in a row of A are
// neighbours in memory, and rows are a_row apart. Otherwise neighbours in a column are neighbours in memory. If part
// is set, only a part of the last vector of B is loaded. rows, vectors, strided and part are constants, so that the
// sums stay in registers.
static inline __attribute__((always_inline)) void tile(const int rows, const int vectors, const int strided, const int part,
		const block *t, const float *a, const float *b, float *c, size_t cols) {
	V sum[TILE_ROWS][VECTORS];
	const M mask = v_mask(cols - (size_t)(vectors - 1) * WIDTH);
#pragma GCC unroll 16
	for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
		for (int v = 0; v < vectors; v++)
			sum[i][v] = v_set(0);
	// One pointer for three rows: their offsets fit into an address, and twelve pointers would not fit into registers.
	const size_t row = t->a_row, step = t->a_step, b_row = t->b_row;
	const float *from[(TILE_ROWS + 2) / 3];
#pragma GCC unroll 4
	for (int g = 0; g < (rows + 2) / 3; g++)
		from[g] = a + 3 * (size_t)g * row;
	for (size_t l = t->depth; l > 0; l--) {
		V x[VECTORS];
#pragma GCC unroll 2
		for (int v = 0; v < vectors; v++)
			x[v] = part && v == vectors - 1 ? v_load_part(b + v * WIDTH, mask) : v_load(b + v * WIDTH);
#pragma GCC unroll 16
		for (int i = 0; i < rows; i++) {
			V y = v_set(strided ? from[i / 3][(size_t)(i % 3) * row] : a[i]);
#pragma GCC unroll 2
			for (int v = 0; v < vectors; v++)
				sum[i][v] = v_fma(y, x[v], sum[i][v]);
		}
		b += b_row;
		a += step;
		if (strided)
#pragma GCC unroll 4
			for (int g = 0; g < (rows + 2) / 3; g++)
				from[g]++;
	}
	const V alpha = v_set(t->alpha), beta = v_set(t->beta);
	const int keep = t->beta != 0, whole = cols == (size_t)vectors * WIDTH;
#pragma GCC unroll 16
	for (int i = 0; i < rows; i++, c += t->ldc)
#pragma GCC unroll 2
		for (int v = 0; v < vectors; v++) {
			float *to = c + v * WIDTH;
			V s = v_mul(alpha, sum[i][v]);
			if (v < vectors - 1 || whole) {
				if (keep)
					s = v_fma(alpha, sum[i][v], v_mul(beta, v_load(to)));
				v_store(to, s);
			} else {
				if (keep)
					s = v_fma(alpha, sum[i][v], v_mul(beta, v_load_part(to, mask)));
				v_store_part(to, mask, s);
			}
		}
}


#define TILE(rows, vectors, strided, part) \
	static void tile_##rows##_##vectors##_##strided##_##part(const block *t, const float *a, const float *b, float *c, size_t cols) { \
		tile(rows, vectors, strided, part, t, a, b, c, cols); \
	}
#define TILES_WHOLE(rows) TILE(rows, 1, 0, 0) TILE(rows, 2, 0, 0) TILE(rows, 1, 1, 0) TILE(rows, 2, 1, 0)
#define TILES_PART(rows) TILE(rows, 1, 0, 1) TILE(rows, 2, 0, 1) TILE(rows, 1, 1, 1) TILE(rows, 2, 1, 1)
#define ENTRY(rows, part) { { tile_##rows##_1_0_##part, tile_##rows##_2_0_##part }, { tile_##rows##_1_1_##part, tile_##rows##_2_1_##part } },
#define ENTRY_WHOLE(rows) ENTRY(rows, 0)
#define ENTRY_PART(rows) ENTRY(rows, 1)
#if TILE_ROWS == 12
#define EACH(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#else
#define EACH(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif

// By rows − 1, strided, vectors − 1.
#if LOADS_PARTS != 1
EACH(TILES_WHOLE)
static const tile_function tiles_whole[TILE_ROWS][2][VECTORS] = { EACH(ENTRY_WHOLE) };
#endif
#if LOADS_PARTS != 0
EACH(TILES_PART)
static const tile_function tiles_part[TILE_ROWS][2][VECTORS] = { EACH(ENTRY_PART) };
#endif
#if LOADS_PARTS == 1
#define tiles_whole tiles_part
#elif LOADS_PARTS == 0
#define tiles_part tiles_whole
#endif

static inline size_t least(size_t x, size_t y) { return x < y ? x : y; }

// turn copies the transpose of rows × cols values.
static void turn(float *to, size_t to_row, const float *from, size_t from_row, size_t rows, size_t cols) {
	size_t i = 0;
	for (; i + 4 <= rows; i += 4) {
		const float *r = from + i * from_row;
		size_t j = 0;
		for (; j + 4 <= cols; j += 4) {
			Q q[4] = { q_load(r + j), q_load(r + from_row + j), q_load(r + 2 * from_row + j), q_load(r + 3 * from_row + j) };
			q_turn(q);
			for (int u = 0; u < 4; u++)
				q_store(to + (j + u) * to_row + i, q[u]);
		}
		for (; j < cols; j++)
			for (size_t u = 0; u < 4; u++)
				to[j * to_row + i + u] = r[u * from_row + j];
	}
	for (; i < rows; i++)
		for (size_t j = 0; j < cols; j++)
			to[j * to_row + i] = from[i * from_row + j];
}

// copy_b copies depth × cols values of op(B) to panels of PANEL columns, one panel after the other, each row by row.
// The last panel has only as many vectors as it needs, filled up with 0.
static void copy_b(float *to, const kin_product *p, size_t l, size_t depth, size_t j, size_t cols) {
	for (size_t done = 0; done < cols; done += PANEL, to += depth * PANEL) {
		const float *from = p->b + l * p->b_row + (j + done) * p->b_step;
		size_t n = least(PANEL, cols - done), width = (n + WIDTH - 1) / WIDTH * WIDTH;
		if (p->b_step != 1) {
			for (size_t r = 1; r <= depth && n < width; r++)
				v_store(to + r * width - WIDTH, v_set(0));
			turn(to, width, from, p->b_step, n, depth);
			continue;
		}
		const M mask = v_mask(n - (width - WIDTH));
		for (size_t r = 0; r < depth; r++, from += p->b_row) {
			if (width == PANEL)
				v_store(to + r * width, v_load(from));
			v_store(to + (r + 1) * width - WIDTH, v_load_part(from + width - WIDTH, mask));
		}
	}
}

// cut divides rows among the fewest tiles, as evenly as possible: each gets the quotient, and the first ones get one more.
typedef struct {
	size_t tiles, quotient, more;
} cut;

static cut cut_rows(size_t rows) {
	size_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
	return (cut){ tiles, rows / tiles, rows % tiles };
}

// copy_a copies rows × depth values of op(A), tile after tile, each column by column.
static void copy_a(float *to, const kin_product *p, size_t i, size_t rows, size_t l, size_t depth) {
	const cut c = cut_rows(rows);
	const float *from = p->a + i * p->a_row + l * p->a_step;
	for (size_t t = 0; t < c.tiles; t++) {
		size_t h = c.quotient + (t < c.more);
		if (p->a_step == 1)
			turn(to, h, from, p->a_row, h, depth);
		else
			for (size_t r = 0; r < depth; r++)
				for (size_t u = 0; u < h; u++)
					to[r * h + u] = from[r * p->a_step + u];
		from += h * p->a_row;
		to += h * depth;
	}
}

// rows_of_c computes rows × cols elements of C from depth values each. b holds panels, if copied, or is part of op(B).
static void rows_of_c(const kin_product *p, const block *shape, const float *a, size_t rows, int a_copied, const float *b, int b_copied,
		float *c, size_t cols) {
	block t = *shape;
	const cut cuts = cut_rows(rows);
	for (size_t done = 0; done < cols; done += PANEL) {
		size_t n = least(PANEL, cols - done), vectors = (n + WIDTH - 1) / WIDTH;
		int part = !b_copied && n % WIDTH != 0;
		t.b_row = b_copied ? vectors * WIDTH : p->b_row;
		const float *panel = b + done * (b_copied ? t.depth : 1), *from = a;
		float *to = c + done;
		for (size_t i = 0; i < cuts.tiles; i++) {
			size_t h = cuts.quotient + (i < cuts.more);
			t.a_row = a_copied ? 1 : p->a_row;
			t.a_step = a_copied ? h : p->a_step;
			int strided = t.a_row != 1;
			(part ? tiles_part : tiles_whole)[h - 1][strided][vectors - 1](&t, from, panel, to, n);
			from += h * (a_copied ? t.depth : p->a_row);
			to += h * t.ldc;
		}
	}
}

// An operand that is used often enough is copied, so that the tiles read it in order: B if more than copy_b_rows rows
// of A use it, and A if more than copy_a_cols columns of B use it.
enum { copy_b_rows = 48, copy_a_cols = 192 };

static void product(const kin_product *p) {
	const int a_copied = p->n > copy_a_cols;
	const int b_copied = p->b_step != 1 || p->m > copy_b_rows || (LOADS_PARTS == 0 && p->n % WIDTH != 0);
	float *arena_a = p->arena, *arena_b = p->arena + kin_gemm_depth * kin_gemm_rows;
	// The blocks of rows are as even as tiles allow.
	size_t blocks = (p->m + kin_gemm_rows - 1) / kin_gemm_rows;
	size_t height = ((p->m + blocks - 1) / blocks + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
	for (size_t j = 0; j < p->n; j += kin_gemm_cols) {
		size_t cols = least(kin_gemm_cols, p->n - j);
		for (size_t l = 0; l < p->k; l += kin_gemm_depth) {
			block t = { .depth = least(kin_gemm_depth, p->k - l), .ldc = p->ldc, .alpha = p->alpha, .beta = l == 0 ? p->beta : 1 };
			const float *b = p->b + l * p->b_row + j;
			if (b_copied) {
				copy_b(arena_b, p, l, t.depth, j, cols);
				b = arena_b;
			}
			for (size_t i = 0; i < p->m; i += height) {
				size_t rows = least(height, p->m - i);
				const float *a = p->a + i * p->a_row + l * p->a_step;
				if (a_copied) {
					copy_a(arena_a, p, i, rows, l, t.depth);
					a = arena_a;
				}
				rows_of_c(p, &t, a, rows, a_copied, b, b_copied, p->c + i * p->ldc + j, cols);
			}
		}
	}
}

// turned computes Cᵀ = op(B)ᵀ·op(A)ᵀ in the memory for copies of A, and writes its transpose to C.
static void turned(const kin_product *p) {
	float *to = p->arena;
	kin_product q = {
		.m = p->n, .n = p->m, .k = p->k, .a = p->b, .b = p->a, .c = to, .ldc = p->m, .alpha = p->alpha, .beta = p->beta, .arena = p->arena,
		.a_row = p->b_step, .a_step = p->b_row, .b_row = p->a_step, .b_step = p->a_row,
	};
	if (p->beta != 0)
		turn(to, p->m, p->c, p->ldc, p->m, p->n);
	product(&q);
	turn(p->c, p->ldc, to, p->m, p->n, p->m);
}

// turning_helps estimates whether a product with few rows is faster as its transpose, because less is then copied or
// transposed. The costs are in half cycles for each value of k: one for a value that is transposed, and one for a
// vector that is multiplied by one value of the other operand.
static int turning_helps(const kin_product *p) {
	if (p->b_step == 1 || p->m > copy_a_cols || p->m * p->n > kin_gemm_depth * kin_gemm_rows)
		return 0;
	size_t straight = p->n + (p->n + WIDTH - 1) / WIDTH * p->m;
	size_t across = (p->a_step == 1 ? p->m : 0) + (p->m + WIDTH - 1) / WIDTH * p->n;
	size_t results = p->m * p->n * (p->beta != 0 ? 2 : 1);
	return across * p->k + results < straight * p->k;
}

enum { LANES = kin_gemm_lanes / WIDTH };

// dots computes rows × cols elements of A·Bᵀ, in 16 chains each. Lane u has the products of l = u, u + 16 and so on,
// as if rows were filled up with 0. The lanes are then added by halves. Nothing is copied, and a row is read in order.
static inline __attribute__((always_inline)) void dots(const int rows, const int cols, const kin_product *p, size_t i, size_t j) {
	V sum[DOTS][DOTS][LANES];
#pragma GCC unroll 4
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
		for (int s = 0; s < cols; s++)
#pragma GCC unroll 4
			for (int u = 0; u < LANES; u++)
				sum[r][s][u] = v_set(0);
	const float *a = p->a + i * p->a_row, *b = p->b + j * p->b_step;
	for (size_t l = 0; l < p->k; l += kin_gemm_lanes, a += kin_gemm_lanes, b += kin_gemm_lanes) {
		const size_t left = p->k - l;
#pragma GCC unroll 4
		for (int u = 0; u < LANES; u++) {
			V x[DOTS];
			const size_t n = left > (size_t)u * WIDTH ? least(left - u * WIDTH, WIDTH) : 0;
			const M mask = v_mask(n);
#pragma GCC unroll 4
			for (int s = 0; s < cols; s++)
				x[s] = n == WIDTH ? v_load(b + s * p->b_step + u * WIDTH) : v_load_part(b + s * p->b_step + u * WIDTH, mask);
#pragma GCC unroll 4
			for (int r = 0; r < rows; r++) {
				V y = n == WIDTH ? v_load(a + r * p->a_row + u * WIDTH) : v_load_part(a + r * p->a_row + u * WIDTH, mask);
#pragma GCC unroll 4
				for (int s = 0; s < cols; s++)
					sum[r][s][u] = v_fma(y, x[s], sum[r][s][u]);
			}
		}
	}
#pragma GCC unroll 4
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
		for (int s = 0; s < cols; s++) {
			float *to = p->c + (i + r) * p->ldc + j + s, total = v_total(sum[r][s]);
			*to = p->beta == 0 ? p->alpha * total : __builtin_fmaf(p->alpha, total, p->beta * *to);
		}
}

static void square_of_dots(const kin_product *p, size_t i, size_t j) { dots(DOTS, DOTS, p, i, j); }
static void row_of_dots(const kin_product *p, size_t i, size_t j) { dots(1, DOTS, p, i, j); }
static void column_of_dots(const kin_product *p, size_t i, size_t j) { dots(DOTS, 1, p, i, j); }
static void one_dot(const kin_product *p, size_t i, size_t j) { dots(1, 1, p, i, j); }

static void all_dots(const kin_product *p) {
	for (size_t i = 0; i < p->m;) {
		const int tall = p->m - i >= DOTS;
		for (size_t j = 0; j < p->n;) {
			const int wide = p->n - j >= DOTS;
			(tall ? wide ? square_of_dots : column_of_dots : wide ? row_of_dots : one_dot)(p, i, j);
			j += wide ? DOTS : 1;
		}
		i += tall ? DOTS : 1;
	}
}

void NAME(run)(const kin_product *p) {
	if (p->dots)
		all_dots(p);
	else if (turning_helps(p))
		turned(p);
	else
		product(p);
}
