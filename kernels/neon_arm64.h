// The NEON operations that steps and encoders share: the vocabulary of simd_body.h and simd_encode_body.h.

// Contraction is off twice, here and by -std=c11: gcc fuses a product and a sum even in intrinsics.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include <arm_neon.h>

#define NAME(f) kin_neon_##f

typedef float32x4_t V;
enum { WIDTH = 4 };
#define v_load(p) vld1q_f32(p)
#define v_store(p, v) vst1q_f32(p, v)
#define v_stream(p, v) vst1q_f32(p, v) // on arm64, stores past the caches do not pay
#define v_fence() (void)0
#define v_set(x) vdupq_n_f32(x)
#define v_add(a, b) vaddq_f32(a, b)
#define v_sub(a, b) vsubq_f32(a, b)
#define v_mul(a, b) vmulq_f32(a, b)
#define v_div(a, b) vdivq_f32(a, b)

typedef float64x2_t D;
#define d_store(p, v) vst1q_f64(p, v)
#define d_add(a, b) vaddq_f64(a, b)
#define d_low(v) vcvt_f64_f32(vget_low_f32(v))
#define d_high(v) vcvt_high_f64_f32(v)
