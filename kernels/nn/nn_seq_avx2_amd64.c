//go:build cgo && !windows

// Contraction is off twice, here and by -std=c11: gcc 12 fuses a product and a sum even in vectors.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC optimize("fp-contract=off")
#pragma GCC target("avx2")
#endif

#define NAME(f) kin_nn_avx2_##f
#define WIDTH 8

#include "nn_seq_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
