//go:build cgo && !windows

// Contraction is off. If a product and a sum should be one operation, the source says so.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include <arm_neon.h>
#include <string.h>

#include "nn.h"

#define NAME(f) kin_nn_neon_##f

typedef float32x4_t V;
enum { WIDTH = 4 };
#define ROWS 8
#define v_load(p) vld1q_f32(p)
#define v_store(p, v) vst1q_f32(p, v)
#define v_set(x) vdupq_n_f32(x)
#define v_fma(a, b, c) vfmaq_f32(c, a, b)
#define v_sum(v) vaddvq_f32(v)
#define COLS(m) ((m) > 6 ? 2 : 4)
#define TAPS(m) ((m) > 6 ? 2 : 4)

#include "nn_body.h"

#include "conv_body.h"
