//go:build cgo && !windows

// A copy with its CRC32C, for processors that can multiply without carry, but not in wide vectors. It does
// with 128 bits at once what crc32c_amd64.c does with four times 128. The instruction for CRCs is as fast,
// but only with three streams, and three streams of stores are slower than one if they miss the caches.

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx,pclmul,sse4.2"))), apply_to = function)
#else
#pragma GCC target("avx,pclmul,sse4.2")
#endif

#include <immintrin.h>

#include "crc32c.h"

int kin_copy_crc32c_narrow_detect(void) {
	__builtin_cpu_init();
	return __builtin_cpu_supports("avx") && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2");
}

typedef __m128i I;

#define INLINE static inline __attribute__((always_inline))

// As in crc32c_amd64.c. AHEAD vectors are under way at a time, with two multiplications each.
#define AHEAD 8
#define MOVE_1024 _mm_set_epi64x(0xd3b6092, 0x6992cea2)
#define MOVE_128 _mm_set_epi64x(0x14cd00bd6, 0xf20c0dfe)

INLINE I moved(I x, I by, I next) {
	I low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);
	return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

INLINE I take(uint8_t *dst, const uint8_t *src) {
	I x = _mm_loadu_si128((const I *)src);
	_mm_storeu_si128((I *)dst, x);
	return x;
}

uint32_t kin_copy_crc32c_narrow(uint32_t crc, uint8_t *restrict dst, const uint8_t *restrict src, size_t n) {
	const I far = MOVE_1024, near = MOVE_128;
	I x[AHEAD];
	for (int j = 0; j < AHEAD; j++)
		x[j] = take(dst + 16 * j, src + 16 * j);
	x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)~crc));
	size_t at = 16 * AHEAD;
	for (; at + 16 * AHEAD <= n; at += 16 * AHEAD) {
		_mm_prefetch((const char *)dst + at + KIN_COPY_AHEAD, _MM_HINT_T0);
		_mm_prefetch((const char *)dst + at + KIN_COPY_AHEAD + 64, _MM_HINT_T0);
#pragma GCC unroll 8
		for (int j = 0; j < AHEAD; j++)
			x[j] = moved(x[j], far, take(dst + at + 16 * j, src + at + 16 * j));
	}
	for (int j = 1; j < AHEAD; j++)
		x[j] = moved(x[j - 1], near, x[j]);
	I y = x[AHEAD - 1];
	for (; at + 16 <= n; at += 16)
		y = moved(y, near, take(dst + at, src + at));
	uint64_t rest = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(y));
	rest = _mm_crc32_u64(rest, (uint64_t)_mm_extract_epi64(y, 1));
	return ~(uint32_t)rest;
}

#if defined(__clang__)
#pragma clang attribute pop
#endif
