// Payloads of encoded gradients, for all instruction sets: included by simd_body.h, whose V and WIDTH it uses, and
//
//	v_load_bf16 v_load_fp16 v_load_int8    WIDTH numbers of memory without alignment, as float
//	v_load_int4                            the same, two in each byte
//	v_flip(v, bits, i)                     v with the signs flipped where bits i, i+1, … of memory are set
//	v_gather(p, stride)                    floats at p[0], p[stride], p[2·stride], …
//
// The formats are those of encoding.go. Check has accepted every payload that is read here.

// placed says whether value i of a payload has a place of its own.
static inline int placed(int encoding) { return encoding < kin_sparse16 || encoding > kin_low_rank; }

// prepared is what a step keeps of a payload from tile to tile.
typedef union {
	struct {
		const uint8_t *values, *gaps, *end; // of the entries not yet passed
		size_t next;                        // index of the first of them, or SIZE_MAX
	} sparse;
	struct {
		const uint8_t *p, *q;
		size_t cols, rank;
	} factors;
} prepared;

static inline float float_at(const uint8_t *data) {
	float x;
	memcpy(&x, data, sizeof x);
	return x;
}

// uvarint returns the number at data and sets next to what follows it. Most numbers have one byte.
static inline size_t uvarint(const uint8_t *data, const uint8_t **next) {
	size_t v = *data++;
	if (__builtin_expect(v >= 0x80, 0)) {
		v &= 0x7f;
		for (int shift = 7;; shift += 7) {
			size_t b = *data++;
			v |= (b & 0x7f) << shift;
			if (b < 0x80)
				break;
		}
	}
	*next = data;
	return v;
}

static inline size_t scale_bytes(size_t values) { return (values + kin_block - 1) / kin_block * sizeof(float); }

// load decodes the vector at value i of a dense payload. If encoding is a constant, only one case is compiled.
static inline __attribute__((always_inline)) V load(const int encoding, const uint8_t *data, size_t values, size_t i) {
	switch (encoding) {
	case kin_bf16:
		return v_load_bf16(data + 2 * i);
	case kin_fp16:
		return v_load_fp16(data + 2 * i);
	case kin_int8:
		return v_mul(v_set(float_at(data + i / kin_block * 4)), v_load_int8(data + scale_bytes(values) + i));
	case kin_int4:
		return v_mul(v_set(float_at(data + i / kin_block * 4)), v_load_int4(data + scale_bytes(values) + i / 2));
	case kin_sign:
		return v_flip(v_set(float_at(data + i / kin_block * 4)), data + scale_bytes(values), i);
	default:
		return v_load((const float *)data + i);
	}
}

// fetch asks for the cache lines of n values of a dense payload from value i on, which may lie past its end.
static inline __attribute__((always_inline)) void fetch(const int encoding, const uint8_t *data, size_t values, size_t i, size_t n) {
	const int scaled = encoding == kin_int8 || encoding == kin_int4;
	const size_t bits = encoding == kin_fp32 ? 32 : encoding == kin_int8 ? 8 : encoding == kin_int4 ? 4 : 16;
	const uintptr_t first = (uintptr_t)data + (scaled ? scale_bytes(values) : 0) + bits * i / 8;
	if (encoding == kin_sign)
		return; // a tile is one line
	for (size_t at = 0; at < bits * n / 8; at += 64)
		__builtin_prefetch((const void *)(first + at));
}

static void prepare(prepared *x, int encoding, const uint8_t *data) {
	if (encoding == kin_sparse16 || encoding == kin_sparse32) {
		size_t count = uvarint(data, &data), gaps = uvarint(data, &data);
		x->sparse.values = data;
		x->sparse.gaps = data + count * (encoding == kin_sparse16 ? 2 : 4);
		x->sparse.end = x->sparse.gaps + gaps;
		x->sparse.next = gaps ? uvarint(x->sparse.gaps, &x->sparse.gaps) : SIZE_MAX;
	} else if (encoding == kin_low_rank) {
		size_t rows = uvarint(data, &data);
		x->factors.cols = uvarint(data, &data);
		x->factors.rank = uvarint(data, &data);
		x->factors.p = data;
		x->factors.q = data + rows * x->factors.rank * sizeof(float);
	}
}

// scatter adds the weighted entries in [at, at + n) to g, which starts at value at.
static inline __attribute__((always_inline)) void scatter(prepared *x, float weight, float *g, size_t at, size_t n, const int encoding) {
	const uint8_t *values = x->sparse.values, *gaps = x->sparse.gaps, *end = x->sparse.end;
	size_t next = x->sparse.next;
	while (next - at < n) { // next is never before at
		uint32_t bits = 0;
		if (encoding == kin_sparse16) {
			uint16_t half;
			memcpy(&half, values, sizeof half);
			bits = (uint32_t)half << 16;
			values += 2;
		} else {
			memcpy(&bits, values, 4);
			values += 4;
		}
		float v;
		memcpy(&v, &bits, sizeof v);
		g[next - at] += weight * v;
		if (gaps == end) {
			next = SIZE_MAX;
			break;
		}
		next += 1 + uvarint(gaps, &gaps);
	}
	x->sparse.values = values;
	x->sparse.gaps = gaps;
	x->sparse.next = next;
}

// row_of decodes n values of one row, from the column whose factors are at q on.
static inline __attribute__((always_inline)) void row_of(const uint8_t *p, const uint8_t *q, size_t rank, float *to, size_t n) {
	size_t i = 0;
	for (; i + WIDTH <= n; i += WIDTH) {
		V a = v_set(0);
		for (size_t r = 0; r < rank; r++)
			a = v_add(a, v_mul(v_set(float_at(p + 4 * r)), v_gather(q + 4 * (i * rank + r), rank)));
		v_store(to + i, a);
	}
	for (; i < n; i++) {
		float a = 0;
		for (size_t r = 0; r < rank; r++)
			a += float_at(p + 4 * r) * float_at(q + 4 * (i * rank + r));
		to[i] = a;
	}
}

static void low_rank_tile(const prepared *x, float *to, size_t at, size_t n) {
	size_t cols = x->factors.cols, rank = x->factors.rank, row = at / cols, col = at % cols;
	while (n > 0) {
		size_t m = cols - col < n ? cols - col : n;
		row_of(x->factors.p + 4 * row * rank, x->factors.q + 4 * col * rank, rank, to, m);
		to += m, n -= m, row++, col = 0;
	}
}

static inline __attribute__((always_inline)) void decode_all(float *dst, const uint8_t *data, size_t values, size_t n, const int encoding) {
	for (size_t i = 0; i < n; i += WIDTH)
		v_store(dst + i, load(encoding, data, values, i));
}

void NAME(decode)(float *dst, int encoding, const uint8_t *data, size_t values, size_t n) {
	prepared x;
	switch (encoding) {
	case kin_fp32:
		memcpy(dst, data, n * sizeof *dst);
		break;
	case kin_bf16:
		decode_all(dst, data, values, n, kin_bf16);
		break;
	case kin_fp16:
		decode_all(dst, data, values, n, kin_fp16);
		break;
	case kin_int8:
		decode_all(dst, data, values, n, kin_int8);
		break;
	case kin_int4:
		decode_all(dst, data, values, n, kin_int4);
		break;
	case kin_sign:
		decode_all(dst, data, values, n, kin_sign);
		break;
	case kin_low_rank:
		prepare(&x, encoding, data);
		low_rank_tile(&x, dst, 0, n);
		break;
	}
}
