//go:build cgo && !windows

// Contraction is off: where a product and a sum are to be one operation, the source says so.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC optimize("fp-contract=off")
#pragma GCC target("avx2,fma")
#endif

#include <immintrin.h>

#include "nn.h"

#define NAME(f) kin_nn_avx2_##f

#include "nn_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
