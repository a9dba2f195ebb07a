//go:build cgo && !windows

#include <string.h>

#include "neon_arm64.h"
#include "simd_encode.h"

#define v_max(a, b) vmaxq_f32(a, b)
#define v_min(a, b) vminq_f32(a, b)
#define v_floor(a) vrndmq_f32(a)

#define d_zero vdupq_n_f64(0)

typedef int32x4_t I;
#define i_load(p) vreinterpretq_s32_u32(vld1q_u32(p))
#define i_store(p, v) vst1q_s32((int32_t *)(p), v)
#define i_set(x) vdupq_n_s32(x)
#define i_of(v) vreinterpretq_s32_f32(v)
#define v_of(i) vreinterpretq_f32_s32(i)
#define i_add(a, b) vaddq_s32(a, b)
#define i_mul(a, b) vmulq_s32(a, b)
#define i_and(a, b) vandq_s32(a, b)
#define i_or(a, b) vorrq_s32(a, b)
#define i_xor(a, b) veorq_s32(a, b)
#define i_shl(a, n) vshlq_n_s32(a, n)
#define i_shr(a, n) vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), n))
#define i_max(a, b) vmaxq_s32(a, b)
#define i_min(a, b) vminq_s32(a, b)
#define i_round(v) vcvtnq_s32_f32(v)
#define v_from(i) vcvtq_f32_s32(i)

static const int32_t counting[WIDTH] = {0, 1, 2, 3};
#define i_count vld1q_s32(counting)

static inline V v_less(V a, V b) { return v_of(vandq_s32(vreinterpretq_s32_u32(vcltq_f32(a, b)), i_of(v_set(1)))); }

static inline unsigned v_signs(V v) {
	uint32x4_t sign = vshrq_n_u32(vreinterpretq_u32_f32(v), 31);
	return vaddvq_u32(vshlq_u32(sign, i_count));
}

static inline void i_put16(uint8_t *to, I i) {
	int16x4_t low = vmovn_s32(i);
	memcpy(to, &low, 8);
}

static inline void i_put8(uint8_t *to, I i) {
	int16x4_t low = vmovn_s32(i);
	int8x8_t bytes = vmovn_s16(vcombine_s16(low, low));
	memcpy(to, &bytes, 4);
}

typedef float16x4_t H;
#define h_round(v) vcvt_f16_f32(v)
#define h_value(h) vcvt_f32_f16(h)

static inline void h_put(uint8_t *to, H h) { memcpy(to, &h, 8); }

// There is no compress instruction. Vectors without a hit are skipped, and others are appended without branches.
static inline size_t append(I index, I bits, uint32_t least, uint32_t span, uint32_t *to_index, uint32_t *to_bits) {
	uint32x4_t above = vreinterpretq_u32_s32(vsubq_s32(i_and(bits, i_set(0x7fffffff)), i_set((int)least)));
	uint32x4_t hits = vshrq_n_u32(vcleq_u32(above, vdupq_n_u32(span)), 31);
	if (vmaxvq_u32(hits) == 0)
		return 0;
	uint32_t i[WIDTH], b[WIDTH], hit[WIDTH];
	vst1q_u32(i, vreinterpretq_u32_s32(index));
	vst1q_u32(b, vreinterpretq_u32_s32(bits));
	vst1q_u32(hit, hits);
	size_t found = 0;
	for (int j = 0; j < WIDTH; j++) {
		to_index[found] = i[j];
		to_bits[found] = b[j];
		found += hit[j];
	}
	return found;
}
#define APPEND append

#include "simd_encode_body.h"
