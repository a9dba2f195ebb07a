//go:build cgo && !windows

// Contraction is off. If a product and a sum should be one operation, the source says so.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC optimize("fp-contract=off")
#pragma GCC target("avx512f,avx512bw,avx512vl,avx2,fma")
#endif

#include <immintrin.h>
#include <string.h>

#include "nn.h"

#define NAME(f) kin_nn_avx512_##f

typedef __m512 V;
enum { WIDTH = 16 };
#define ROWS 8
#define v_load(p) _mm512_loadu_ps(p)
#define v_store(p, v) _mm512_storeu_ps(p, v)
#define v_set(x) _mm512_set1_ps(x)
#define v_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define v_sum(v) _mm512_reduce_add_ps(v)
#define COLS(m) ((m) > 6 ? 3 : 4)
#define TAPS(m) ((m) > 6 ? 3 : 4)

#include "nn_body.h"

#define POOL2
#include "pool_avx512_amd64.h"
#include "conv_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
