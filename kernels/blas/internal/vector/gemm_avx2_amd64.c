//go:build cgo && !windows

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC optimize("fp-contract=off")
#pragma GCC target("avx2,fma")
#endif

#include <immintrin.h>

#include "gemm.h"

#define NAME(f) kin_gemm_avx2_##f
#define TILE_ROWS 6
#define LOADS_PARTS 2
#define DOTS 2

typedef __m256 V;
enum { WIDTH = 8 };
#define v_load(p) _mm256_loadu_ps(p)
#define v_store(p, v) _mm256_storeu_ps(p, v)
#define v_set(x) _mm256_set1_ps(x)
#define v_mul(a, b) _mm256_mul_ps(a, b)
#define v_fma(a, b, c) _mm256_fmadd_ps(a, b, c)

typedef __m256i M;
static inline M v_mask(size_t n) {
	return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
#define v_load_part(p, mask) _mm256_maskload_ps(p, mask)
#define v_store_part(p, mask, v) _mm256_maskstore_ps(p, mask, v)

#include "gemm_amd64.h"

static inline float v_total(const V *v) { return total_of_8(_mm256_add_ps(v[0], v[1])); }

#include "gemm_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
