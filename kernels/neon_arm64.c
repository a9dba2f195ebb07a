//go:build cgo && !windows

#include "neon_arm64.h"
#include "simd.h"

#define v_sqrt(a) vsqrtq_f32(a)
#define v_unless_zero(x, a, b) vbslq_f32(vceqzq_f32(x), b, a)

#define d_load(p) vld1q_f64(p)
#define d_mul(a, b) vmulq_f64(a, b)
#define d_from(p) vcvt_f64_f32(vld1_f32(p))

static inline V v_load_bf16(const uint8_t *p) {
	return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vreinterpret_u16_u8(vld1_u8(p))), 16));
}

static inline V v_load_fp16(const uint8_t *p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }

static inline V v_load_int8(const uint8_t *p) {
	uint32_t four;
	memcpy(&four, p, sizeof four);
	int16x8_t x = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)));
	return vcvtq_f32_s32(vmovl_s16(vget_low_s16(x)));
}

static inline V v_load_int4(const uint8_t *p) { // moves each byte so that each of its two numbers begins a lane
	uint64x2_t two = vcombine_u64(vcreate_u64(p[0]), vcreate_u64(p[1]));
	uint64x2_t x = vorrq_u64(vshlq_n_u64(two, 28), vshlq_n_u64(two, 56));
	return vcvtq_f32_s32(vshrq_n_s32(vreinterpretq_s32_u64(x), 28));
}

static inline V v_flip(V v, const uint8_t *bits, size_t i) {
	const int32_t places[] = {31, 30, 29, 28};
	uint32x4_t flip = vshlq_u32(vdupq_n_u32(bits[i / 8] >> i % 8), vld1q_s32(places));
	return vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(v), vandq_u32(flip, vdupq_n_u32(0x80000000))));
}

static inline V v_gather(const uint8_t *p, size_t stride) {
	float x[4];
	for (int i = 0; i < 4; i++)
		memcpy(x + i, p + 4 * i * stride, sizeof *x);
	return vld1q_f32(x);
}

static inline void v_store_bf16(uint8_t *p, V v) {
	const uint32x4_t infinity = vdupq_n_u32(0x7f800000);
	uint32x4_t u = vreinterpretq_u32_f32(v), a = vandq_u32(u, vdupq_n_u32(0x7fffffff));
	uint32x4_t odd = vandq_u32(vshrq_n_u32(a, 16), vdupq_n_u32(1));
	uint32x4_t r = vaddq_u32(a, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
	r = vminq_u32(r, vdupq_n_u32(0x7f7fffff));
	r = vbslq_u32(vceqq_u32(a, infinity), infinity, r);
	r = vorrq_u32(r, vandq_u32(u, vdupq_n_u32(0x80000000)));
	r = vbslq_u32(vcgtq_u32(a, infinity), vdupq_n_u32(0x7fc00000), r);
	vst1_u8(p, vreinterpret_u8_u16(vshrn_n_u32(r, 16)));
}

#include "simd_body.h"
