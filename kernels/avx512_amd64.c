//go:build cgo && !windows

#include "avx512_amd64.h"
#include "simd.h"

#define v_sqrt(a) _mm512_sqrt_ps(a)
#define v_unless_zero(x, a, b) _mm512_mask_mov_ps(a, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ), b)

#define d_load(p) _mm512_loadu_pd(p)
#define d_mul(a, b) _mm512_mul_pd(a, b)
#define d_from(p) _mm512_cvtps_pd(_mm256_loadu_ps(p))

#define v_load_bf16(p) \
	_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(p))), 16))
#define v_load_fp16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(p)))
#define v_load_int8(p) _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(p))))

static inline V v_load_int4(const uint8_t *p) { // moves each byte so that each of its two numbers begins a lane
	__m512i two = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const void *)p));
	__m512i x = _mm512_or_si512(_mm512_slli_epi64(two, 28), _mm512_slli_epi64(two, 56));
	return _mm512_cvtepi32_ps(_mm512_srai_epi32(x, 28));
}

static inline V v_flip(V v, const uint8_t *bits, size_t i) {
	uint16_t flip;
	memcpy(&flip, bits + i / 8, sizeof flip);
	__m512i x = _mm512_castps_si512(v);
	return _mm512_castsi512_ps(_mm512_mask_xor_epi32(x, flip, x, _mm512_set1_epi32(INT32_MIN)));
}

static inline V v_gather(const uint8_t *p, size_t stride) {
	const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	return _mm512_i32gather_ps(_mm512_mullo_epi32(lane, _mm512_set1_epi32((int)stride)), p, 4);
}

static inline void v_store_bf16(uint8_t *p, V v) {
	const __m512i infinity = _mm512_set1_epi32(0x7f800000);
	__m512i u = _mm512_castps_si512(v), a = _mm512_and_si512(u, _mm512_set1_epi32(INT32_MAX));
	__m512i odd = _mm512_and_si512(_mm512_srli_epi32(a, 16), _mm512_set1_epi32(1));
	__m512i r = _mm512_add_epi32(a, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
	r = _mm512_min_epi32(r, _mm512_set1_epi32(0x7f7fffff));
	r = _mm512_mask_mov_epi32(r, _mm512_cmpeq_epi32_mask(a, infinity), infinity);
	r = _mm512_or_si512(r, _mm512_andnot_si512(_mm512_set1_epi32(INT32_MAX), u));
	r = _mm512_mask_mov_epi32(r, _mm512_cmpgt_epi32_mask(a, infinity), _mm512_set1_epi32(0x7fc00000));
	_mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16)));
}

#include "simd_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
