// The AVX-512 operations that steps and encoders share: the vocabulary of simd_body.h and simd_encode_body.h.

// Contraction is off twice, here and by -std=c11: gcc 12 fuses a product and a sum even in intrinsics.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang attribute push(__attribute__((target("avx512f,popcnt"))), apply_to = function)
#else
#pragma GCC optimize("fp-contract=off")
#pragma GCC target("avx512f,popcnt")
#endif

#include <immintrin.h>

#define NAME(f) kin_avx512_##f

typedef __m512 V;
enum { WIDTH = 16 };
#define v_load(p) _mm512_loadu_ps(p)
#define v_store(p, v) _mm512_storeu_ps(p, v)
#define v_stream(p, v) _mm512_stream_ps(p, v)
#define v_fence() _mm_sfence()
#define v_set(x) _mm512_set1_ps(x)
#define v_add(a, b) _mm512_add_ps(a, b)
#define v_sub(a, b) _mm512_sub_ps(a, b)
#define v_mul(a, b) _mm512_mul_ps(a, b)
#define v_div(a, b) _mm512_div_ps(a, b)

typedef __m512d D;
#define d_store(p, v) _mm512_storeu_pd(p, v)
#define d_add(a, b) _mm512_add_pd(a, b)
#define d_low(v) _mm512_cvtps_pd(_mm512_castps512_ps256(v))
#define d_high(v) _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1)))
