//go:build cgo && !windows

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang attribute push(__attribute__((target("avx512f"))), apply_to = function)
#else
#pragma GCC optimize("fp-contract=off")
#pragma GCC target("avx512f")
#endif

#include <immintrin.h>

#include "gemm.h"

#define NAME(f) kin_gemm_avx512_##f
#define TILE_ROWS 12
#define LOADS_PARTS 1
#define DOTS 4

typedef __m512 V;
enum { WIDTH = 16 };
#define v_load(p) _mm512_loadu_ps(p)
#define v_store(p, v) _mm512_storeu_ps(p, v)
#define v_set(x) _mm512_set1_ps(x)
#define v_mul(a, b) _mm512_mul_ps(a, b)
#define v_fma(a, b, c) _mm512_fmadd_ps(a, b, c)

typedef __mmask16 M;
#define v_mask(n) ((__mmask16)((1u << (n)) - 1))
#define v_load_part(p, mask) _mm512_maskz_loadu_ps(mask, p)
#define v_store_part(p, mask, v) _mm512_mask_storeu_ps(p, mask, v)

#include "gemm_amd64.h"

static inline float v_total(const V *v) {
	__m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v[0]), 1));
	return total_of_8(_mm256_add_ps(_mm512_castps512_ps256(v[0]), high));
}

#include "gemm_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
