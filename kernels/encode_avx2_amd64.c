//go:build cgo && !windows

#include "avx2_amd64.h"
#include "simd_encode.h"

#define v_max(a, b) _mm256_max_ps(a, b)
#define v_min(a, b) _mm256_min_ps(a, b)
#define v_floor(a) _mm256_floor_ps(a)
#define v_less(a, b) _mm256_and_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ), _mm256_set1_ps(1))
#define v_signs(v) ((unsigned)_mm256_movemask_ps(v))

#define d_zero _mm256_setzero_pd()

typedef __m256i I;
#define i_load(p) _mm256_loadu_si256((const void *)(p))
#define i_store(p, v) _mm256_storeu_si256((void *)(p), v)
#define i_set(x) _mm256_set1_epi32(x)
#define i_count _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)
#define i_of(v) _mm256_castps_si256(v)
#define v_of(i) _mm256_castsi256_ps(i)
#define i_add(a, b) _mm256_add_epi32(a, b)
#define i_mul(a, b) _mm256_mullo_epi32(a, b)
#define i_and(a, b) _mm256_and_si256(a, b)
#define i_or(a, b) _mm256_or_si256(a, b)
#define i_xor(a, b) _mm256_xor_si256(a, b)
#define i_shl(a, n) _mm256_slli_epi32(a, n)
#define i_shr(a, n) _mm256_srli_epi32(a, n)
#define i_max(a, b) _mm256_max_epi32(a, b)
#define i_min(a, b) _mm256_min_epi32(a, b)
#define i_round(v) _mm256_cvtps_epi32(v)
#define v_from(i) _mm256_cvtepi32_ps(i)

// low16 narrows to words. The pack saturates, so the upper bits are masked off first.
static inline __m128i low16(I i) {
	i = i_and(i, i_set(0xffff));
	return _mm_packus_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
}
#define i_put16(p, i) _mm_storeu_si128((void *)(p), low16(i))
#define i_put8(p, i) _mm_storel_epi64((void *)(p), _mm_packus_epi16(low16(i_and(i, i_set(0xff))), _mm_setzero_si128()))

typedef __m128i H;
#define h_round(v) _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)
#define h_value(h) _mm256_cvtph_ps(h)
#define h_put(p, h) _mm_storeu_si128((void *)(p), h)

// There is no compress instruction. Vectors without a hit are skipped, and others are appended without branches.
static inline size_t append(I index, I bits, uint32_t least, uint32_t span, uint32_t *to_index, uint32_t *to_bits) {
	I above = _mm256_sub_epi32(i_and(bits, i_set(0x7fffffff)), i_set((int)least));
	unsigned hits = v_signs(v_of(_mm256_cmpeq_epi32(above, _mm256_min_epu32(above, i_set((int)span)))));
	if (hits == 0)
		return 0;
	uint32_t i[WIDTH], b[WIDTH];
	i_store(i, index);
	i_store(b, bits);
	size_t found = 0;
	for (int j = 0; j < WIDTH; j++) {
		to_index[found] = i[j];
		to_bits[found] = b[j];
		found += hits >> j & 1;
	}
	return found;
}
#define APPEND append

#include "simd_encode_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
