//go:build cgo && !windows

// Contraction is off: where a product and a sum are to be one operation, the source says so.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include <arm_neon.h>

#include "nn.h"

#define NAME(f) kin_nn_neon_##f

#include "nn_body.h"
