//go:build cgo && !windows

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include <arm_neon.h>

#include "gemm.h"

#define NAME(f) kin_gemm_neon_##f
#define TILE_ROWS 12
#define LOADS_PARTS 0
#define DOTS 2

typedef float32x4_t V;
enum { WIDTH = 4 };
#define v_load(p) vld1q_f32(p)
#define v_store(p, v) vst1q_f32(p, v)
#define v_set(x) vdupq_n_f32(x)
#define v_mul(a, b) vmulq_f32(a, b)
#define v_fma(a, b, c) vfmaq_f32(c, a, b)

// There are no masks. A part of a vector goes through an array, which happens only at the right edge of C.
typedef size_t M;
#define v_mask(n) (n)
static inline V v_load_part(const float *p, M n) {
	float part[4] = { 0 };
	for (size_t i = 0; i < n; i++)
		part[i] = p[i];
	return v_load(part);
}
static inline void v_store_part(float *p, M n, V v) {
	float part[4];
	v_store(part, v);
	for (size_t i = 0; i < n; i++)
		p[i] = part[i];
}

typedef float32x4_t Q;
#define q_load(p) vld1q_f32(p)
#define q_store(p, q) vst1q_f32(p, q)
static inline void q_turn(Q *q) {
	float32x4x2_t low = vtrnq_f32(q[0], q[1]), high = vtrnq_f32(q[2], q[3]);
	q[0] = vcombine_f32(vget_low_f32(low.val[0]), vget_low_f32(high.val[0]));
	q[1] = vcombine_f32(vget_low_f32(low.val[1]), vget_low_f32(high.val[1]));
	q[2] = vcombine_f32(vget_high_f32(low.val[0]), vget_high_f32(high.val[0]));
	q[3] = vcombine_f32(vget_high_f32(low.val[1]), vget_high_f32(high.val[1]));
}

static inline float v_total(const V *v) {
	V s = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
	float32x2_t h = vadd_f32(vget_low_f32(s), vget_high_f32(s));
	return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}

#include "gemm_body.h"
