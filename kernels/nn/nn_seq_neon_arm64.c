//go:build cgo && !windows

// Contraction is off twice, here and by -std=c11: gcc 12 fuses a product and a sum even in vectors.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#define NAME(f) kin_nn_neon_##f
#define WIDTH 4

#include "nn_seq_body.h"
