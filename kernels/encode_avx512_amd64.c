//go:build cgo && !windows

#include "avx512_amd64.h"
#include "simd_encode.h"

#define v_max(a, b) _mm512_max_ps(a, b)
#define v_min(a, b) _mm512_min_ps(a, b)
#define v_floor(a) _mm512_roundscale_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)
#define v_less(a, b) _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), _mm512_set1_ps(1))
#define v_signs(v) ((unsigned)_mm512_cmplt_epi32_mask(_mm512_castps_si512(v), _mm512_setzero_si512()))

#define d_zero _mm512_setzero_pd()

typedef __m512i I;
#define i_load(p) _mm512_loadu_si512(p)
#define i_store(p, v) _mm512_storeu_si512(p, v)
#define i_set(x) _mm512_set1_epi32(x)
#define i_count _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define i_of(v) _mm512_castps_si512(v)
#define v_of(i) _mm512_castsi512_ps(i)
#define i_add(a, b) _mm512_add_epi32(a, b)
#define i_mul(a, b) _mm512_mullo_epi32(a, b)
#define i_and(a, b) _mm512_and_si512(a, b)
#define i_or(a, b) _mm512_or_si512(a, b)
#define i_xor(a, b) _mm512_xor_si512(a, b)
#define i_shl(a, n) _mm512_slli_epi32(a, n)
#define i_shr(a, n) _mm512_srli_epi32(a, n)
#define i_max(a, b) _mm512_max_epi32(a, b)
#define i_min(a, b) _mm512_min_epi32(a, b)
#define i_round(v) _mm512_cvtps_epi32(v)
#define v_from(i) _mm512_cvtepi32_ps(i)
#define i_put16(p, i) _mm256_storeu_si256((void *)(p), _mm512_cvtepi32_epi16(i))
#define i_put8(p, i) _mm_storeu_si128((void *)(p), _mm512_cvtepi32_epi8(i))

typedef __m256i H;
#define h_round(v) _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define h_value(h) _mm512_cvtph_ps(h)
#define h_put(p, h) _mm256_storeu_si256((void *)(p), h)

// Words are compressed in a register and stored whole: on some processors, a compressing store takes a hundred cycles.
static inline size_t append(I index, I bits, uint32_t least, uint32_t span, uint32_t *to_index, uint32_t *to_bits) {
	I above = _mm512_sub_epi32(i_and(bits, i_set(0x7fffffff)), i_set((int)least));
	__mmask16 hits = _mm512_cmple_epu32_mask(above, i_set((int)span));
	i_store(to_index, _mm512_maskz_compress_epi32(hits, index));
	i_store(to_bits, _mm512_maskz_compress_epi32(hits, bits));
	return (size_t)__builtin_popcount(hits);
}
#define APPEND append

#include "simd_encode_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
