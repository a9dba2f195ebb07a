//go:build cgo && !windows

#include "avx2_amd64.h"
#include "simd.h"

#define v_sqrt(a) _mm256_sqrt_ps(a)
#define v_unless_zero(x, a, b) _mm256_blendv_ps(a, b, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ))

#define d_load(p) _mm256_loadu_pd(p)
#define d_mul(a, b) _mm256_mul_pd(a, b)
#define d_from(p) _mm256_cvtps_pd(_mm_loadu_ps(p))

#define v_load_bf16(p) \
	_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p))), 16))
#define v_load_fp16(p) _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p)))
#define v_load_int8(p) _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p))))

static inline V v_load_int4(const uint8_t *p) { // moves each byte so that each of its two numbers begins a lane
	int32_t four;
	memcpy(&four, p, sizeof four);
	__m256i two = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four));
	__m256i x = _mm256_or_si256(_mm256_slli_epi64(two, 28), _mm256_slli_epi64(two, 56));
	return _mm256_cvtepi32_ps(_mm256_srai_epi32(x, 28));
}

static inline V v_flip(V v, const uint8_t *bits, size_t i) {
	const __m256i place = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
	__m256i flip = _mm256_sllv_epi32(_mm256_set1_epi32(bits[i / 8]), place);
	return _mm256_xor_ps(v, _mm256_castsi256_ps(_mm256_and_si256(flip, _mm256_set1_epi32(INT32_MIN))));
}

static inline V v_gather(const uint8_t *p, size_t stride) {
	const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
	return _mm256_i32gather_ps((const void *)p, _mm256_mullo_epi32(lane, _mm256_set1_epi32((int)stride)), 4);
}

static inline void v_store_bf16(uint8_t *p, V v) {
	const __m256i infinity = _mm256_set1_epi32(0x7f800000);
	__m256i u = _mm256_castps_si256(v), a = _mm256_and_si256(u, _mm256_set1_epi32(INT32_MAX));
	__m256i odd = _mm256_and_si256(_mm256_srli_epi32(a, 16), _mm256_set1_epi32(1));
	__m256i r = _mm256_add_epi32(a, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
	r = _mm256_min_epi32(r, _mm256_set1_epi32(0x7f7fffff));
	r = _mm256_blendv_epi8(r, infinity, _mm256_cmpeq_epi32(a, infinity));
	r = _mm256_or_si256(r, _mm256_andnot_si256(_mm256_set1_epi32(INT32_MAX), u));
	r = _mm256_blendv_epi8(r, _mm256_set1_epi32(0x7fc00000), _mm256_cmpgt_epi32(a, infinity));
	r = _mm256_srli_epi32(r, 16);
	_mm_storeu_si128((void *)p, _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1)));
}

#include "simd_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
