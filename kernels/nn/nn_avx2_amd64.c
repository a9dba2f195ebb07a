//go:build cgo && !windows

// Contraction is off. If a product and a sum should be one operation, the source says so.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC optimize("fp-contract=off")
#pragma GCC target("avx2,fma")
#endif

#include <immintrin.h>
#include <string.h>

#include "nn.h"

#define NAME(f) kin_nn_avx2_##f

typedef __m256 V;
enum { WIDTH = 8 };
#define ROWS 4
#define v_load(p) _mm256_loadu_ps(p)
#define v_store(p, v) _mm256_storeu_ps(p, v)
#define v_set(x) _mm256_set1_ps(x)
#define v_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define COLS(m) 3
#define TAPS(m) 3

static inline float v_sum(__m256 v) {
	__m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
	s = _mm_add_ps(s, _mm_movehl_ps(s, s));
	return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

#include "nn_body.h"

#define POOL2
#include "pool_avx2_amd64.h"
#include "conv_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
