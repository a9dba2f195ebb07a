// The encoders, once for all instruction sets, with the formulas of encode.go, encode_int8.go and select.go.
// Besides the names that simd_body.h needs, the file that includes this one defines
//
//	I                            a vector of WIDTH 32-bit integers
//	v_stream v_fence             an aligned store past the caches; makes such stores visible to others
//	i_load i_store i_set i_count unaligned loads and stores; all lanes alike; 0, 1, 2, …
//	i_of v_of                    the bits of a V as I, and back
//	i_add i_sub i_mul i_and i_or i_xor i_shl i_shr      shr shifts in zeros
//	i_max i_min                  signed, as magnitudes are not negative
//	i_round v_from               to nearest even, and back
//	i_put16 i_put8               store the low bits of each lane
//	v_max v_min v_floor
//	v_less(a, b)                 1 where a < b, else 0
//	v_signs(v)                   the signs as bits of an unsigned int, lane 0 lowest
//	H, h_round h_value h_put     a vector of FP16
//	APPEND(index, bits, least, span, to_index, to_bits)
//	                             store the lanes whose magnitude is in [least, least + span], in order, in up
//	                             to WIDTH words, and return how many there are
//
// and turns contraction off. A vector is read whole before the residual is written over it.

enum { vectors = kin_block / WIDTH };

#define INLINE static inline __attribute__((always_inline))

// What happens to the residual. kept_past writes it past the caches.
enum { forgotten, kept, kept_past };

// EACH calls a function for each kind of feed, with constants that remove the branches from its loops.
#define EACH(function, f, ...) \
	do { \
		if (f->past && f->carry && f->residual && ((uintptr_t)f->residual % sizeof(V)) == 0) { \
			function(f, 1, kept_past, ##__VA_ARGS__); \
			v_fence(); \
		} else if (f->carry && f->residual) \
			function(f, 1, kept, ##__VA_ARGS__); \
		else if (f->carry) \
			function(f, 1, forgotten, ##__VA_ARGS__); \
		else if (f->residual) \
			function(f, 0, kept, ##__VA_ARGS__); \
		else \
			function(f, 0, forgotten, ##__VA_ARGS__); \
	} while (0)

INLINE void keep_loss(const kin_feed *f, size_t i, V loss, const int residual) {
	if (residual == kept_past)
		v_stream(f->residual + i, loss);
	else if (residual == kept)
		v_store(f->residual + i, loss);
}

INLINE V fed(const kin_feed *f, size_t i, const int carry) {
	V x = v_load(f->x + i);
	return carry ? v_add(x, v_load(f->carry + i)) : x;
}

INLINE I magnitude(V v) { return i_and(i_of(v), i_set(0x7fffffff)); }
INLINE I sign_bit(V v) { return i_and(i_of(v), i_set((int)0x80000000)); }

INLINE void bf16_as(const kin_feed *f, const int carry, const int residual) {
	for (size_t i = 0; i < f->n; i += WIDTH) {
		V y = fed(f, i, carry);
		I m = i_min(magnitude(y), i_set(0x7f7f0000));
		m = i_add(i_add(m, i_set(0x7fff)), i_and(i_shr(m, 16), i_set(1)));
		I b = i_or(i_shr(sign_bit(y), 16), i_shr(m, 16));
		i_put16(f->codes + 2 * i, b);
		keep_loss(f, i, v_sub(y, v_of(i_shl(b, 16))), residual);
	}
}

void NAME(to_bf16)(const kin_feed *f) { EACH(bf16_as, f); }

INLINE void fp16_as(const kin_feed *f, const int carry, const int residual) {
	for (size_t i = 0; i < f->n; i += WIDTH) {
		V y = fed(f, i, carry);
		H h = h_round(v_of(i_or(sign_bit(y), i_min(magnitude(y), i_set(0x477fe000)))));
		h_put(f->codes + 2 * i, h);
		keep_loss(f, i, v_sub(y, h_value(h)), residual);
	}
}

void NAME(to_fp16)(const kin_feed *f) { EACH(fp16_as, f); }

INLINE float largest(I most) {
	int32_t lane[WIDTH];
	i_store(lane, most);
	int32_t m = 0;
	for (int j = 0; j < WIDTH; j++)
		m = lane[j] > m ? lane[j] : m;
	float v;
	__builtin_memcpy(&v, &m, sizeof v);
	return v;
}

// noise is the noise of encode_int8.go for the elements i.
INLINE I noise(const kin_feed *f, I i) {
	I z = i_add(i_mul(i, i_set((int)0x9e3779b9)), i_set((int)f->a));
	z = i_mul(i_xor(z, i_shr(z, 16)), i_set(0x7feb352d));
	z = i_xor(z, i_set((int)f->b));
	z = i_mul(i_xor(z, i_shr(z, 15)), i_set((int)0x846ca68b));
	return i_xor(z, i_shr(z, 16));
}

INLINE V round_at_random(V v, I noise) {
	V below = v_floor(v);
	V u = v_mul(v_from(i_shr(noise, 8)), v_set(0x1p-24f));
	below = v_add(below, v_less(u, v_sub(v, below)));
	return v_max(v_set(-127), v_min(v_set(127), below));
}

// levels_as encodes with that many levels on either side of 0: 127, one value in a byte, or 7, two values in a byte.
INLINE void levels_as(const kin_feed *f, const int carry, const int residual, const int levels, const int stochastic) {
	for (size_t at = 0; at < f->n; at += kin_block) {
		V y[vectors];
		I most = i_set(0);
		for (int j = 0; j < vectors; j++) {
			y[j] = fed(f, at + j * WIDTH, carry);
			most = i_max(most, magnitude(y[j]));
		}
		float scale = largest(most) / levels, inverse = 0;
		if (levels == 127 && scale > 0x1.020406p+121f) // the largest whose product with 127 is finite
			scale = 0x1.020406p+121f;
		if (scale < 0x1p-126f)
			scale = 0;
		else
			inverse = 1 / scale;
		__builtin_memcpy(f->scales + at / kin_block * 4, &scale, 4);
		uint8_t code[kin_block];
		uint8_t *to = levels == 7 ? code : f->codes + at;
		for (int j = 0; j < vectors; j++) {
			size_t i = at + j * WIDTH;
			V v = v_mul(y[j], v_set(inverse));
			if (stochastic)
				v = round_at_random(v, noise(f, i_add(i_set((int)i), i_count)));
			I q = i_round(v);
			i_put8(to + j * WIDTH, q);
			keep_loss(f, i, v_sub(y[j], v_mul(v_set(scale), v_from(q))), residual);
		}
		if (levels == 7)
			for (int j = 0; j < kin_block / 2; j++)
				f->codes[at / 2 + j] = (uint8_t)((code[2 * j] & 15) | code[2 * j + 1] << 4);
	}
}

void NAME(to_int8)(const kin_feed *f) { EACH(levels_as, f, 127, 0); }
void NAME(to_int8_stochastic)(const kin_feed *f) { EACH(levels_as, f, 127, 1); }
void NAME(to_int4)(const kin_feed *f) { EACH(levels_as, f, 7, 0); }

INLINE void sign_as(const kin_feed *f, const int carry, const int residual) {
	enum { half = WIDTH / 2, pairs = kin_lanes / WIDTH };
	for (size_t at = 0; at < f->n; at += kin_block) {
		V y[vectors];
		D sum[2 * pairs];
		for (int u = 0; u < 2 * pairs; u++)
			sum[u] = d_zero;
		uint64_t word[kin_block / 64] = {0};
		for (int j = 0; j < vectors; j++) {
			y[j] = fed(f, at + j * WIDTH, carry);
			V m = v_of(magnitude(y[j]));
			int u = j % pairs;
			sum[2 * u] = d_add(sum[2 * u], d_low(m));
			sum[2 * u + 1] = d_add(sum[2 * u + 1], d_high(m));
			word[j * WIDTH / 64] |= (uint64_t)v_signs(y[j]) << (j * WIDTH % 64);
		}
		double lane[kin_lanes];
		for (int u = 0; u < 2 * pairs; u++)
			d_store(lane + u * half, sum[u]);
		for (int k = kin_lanes / 2; k > 0; k /= 2)
			for (int l = 0; l < k; l++)
				lane[l] += lane[l + k];
		float mean = (float)(lane[0] * (1.0 / kin_block)); // a power of two: exact, like the division
		__builtin_memcpy(f->scales + at / kin_block * 4, &mean, 4);
		__builtin_memcpy(f->codes + at / 8, word, kin_block / 8);
		if (residual)
			for (int j = 0; j < vectors; j++)
				keep_loss(f, at + j * WIDTH, v_sub(y[j], v_of(i_or(i_of(v_set(mean)), sign_bit(y[j])))), residual);
	}
}

void NAME(to_sign)(const kin_feed *f) { EACH(sign_as, f); }

// collect_as appends index and bits of each value whose magnitude is at least least, in order, and returns the
// number of these values. It may write kin_select_slack more words. n is a multiple of WIDTH.
INLINE void collect_as(const kin_feed *f, const int carry, const int residual, uint32_t least, uint32_t *index, uint32_t *bits, size_t *count) {
	size_t found = 0;
	for (size_t i = 0; i < f->n; i += WIDTH) {
		V y = fed(f, i, carry);
		keep_loss(f, i, y, residual);
		found += APPEND(i_add(i_set((int)i), i_count), i_of(y), least, 0x7fffffff - least, index + found, bits + found);
	}
	*count = found;
}

size_t NAME(collect)(const kin_feed *f, uint32_t least, uint32_t *index, uint32_t *bits) {
	size_t count;
	EACH(collect_as, f, least, index, bits, &count);
	return count;
}

// keep keeps the words whose magnitude is in [least, least + span], in order and in place, and returns their number.
// Behind these it overwrites only words that it has already read. index may be the same array as bits.
size_t NAME(keep)(uint32_t *index, uint32_t *bits, size_t n, uint32_t least, uint32_t span) {
	size_t kept = 0, i = 0;
	for (; i + WIDTH <= n; i += WIDTH)
		kept += APPEND(i_load(index + i), i_load(bits + i), least, span, index + kept, bits + kept);
	for (; i < n; i++) {
		index[kept] = index[i];
		bits[kept] = bits[i];
		kept += (bits[i] & 0x7fffffff) - least <= span;
	}
	return kept;
}
