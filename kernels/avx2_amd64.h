// The AVX2 operations that steps and encoders share: the vocabulary of simd_body.h and simd_encode_body.h.

// Contraction is off twice, here and by -std=c11: gcc 12 fuses a product and a sum even in intrinsics.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC optimize("fp-contract=off")
#pragma GCC target("avx2,f16c")
#endif

#include <immintrin.h>

#define NAME(f) kin_avx2_##f

typedef __m256 V;
enum { WIDTH = 8 };
#define v_load(p) _mm256_loadu_ps(p)
#define v_store(p, v) _mm256_storeu_ps(p, v)
#define v_stream(p, v) _mm256_stream_ps(p, v)
#define v_fence() _mm_sfence()
#define v_set(x) _mm256_set1_ps(x)
#define v_add(a, b) _mm256_add_ps(a, b)
#define v_sub(a, b) _mm256_sub_ps(a, b)
#define v_mul(a, b) _mm256_mul_ps(a, b)
#define v_div(a, b) _mm256_div_ps(a, b)

typedef __m256d D;
#define d_store(p, v) _mm256_storeu_pd(p, v)
#define d_add(a, b) _mm256_add_pd(a, b)
#define d_low(v) _mm256_cvtps_pd(_mm256_castps256_ps128(v))
#define d_high(v) _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1))
