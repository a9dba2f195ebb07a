//go:build cgo && !windows

// CRC32C by folding. A message is a polynomial over GF(2), and its CRC is the remainder of a division by a
// fixed polynomial P. Multiplying 128 bits of the message by x^D mod P moves them D bits on without changing
// the remainder. A carry-less multiplication does that to four times 128 bits at once. So 256 bytes are kept,
// and folded into the next 256, until fewer are left. The kept bytes are then folded into one another, and
// the processor's CRC instruction divides the last 16 bytes.

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2"))), apply_to = function)
#else
#pragma GCC target("avx512f,vpclmulqdq,pclmul,sse4.2")
#endif

#include <immintrin.h>

#include "crc32c.h"

int kin_crc32c_detect(void) {
	__builtin_cpu_init();
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("sse4.2");
}

typedef __m512i I;

#define INLINE static inline __attribute__((always_inline))

// Pairs of x^(D+32) and x^(D−32) mod P, with the bits reversed and moved up by one, for the reversed order of CRC32C.
#define MOVE_2048 _mm512_set4_epi32(0, (int)0xb9e02b86, 0, (int)0xdcb17aa4)
#define MOVE_512 _mm512_set4_epi32(0, (int)0x9e4addf8, 0, (int)0x740eef02)
#define MOVE_128 _mm_set_epi64x(0x14cd00bd6, 0xf20c0dfe)

// moved moves x on by the number of bits that by stands for, and adds it to next.
INLINE I moved(I x, I by, I next) {
	I low = _mm512_clmulepi64_epi128(x, by, 0x00), high = _mm512_clmulepi64_epi128(x, by, 0x11);
	return _mm512_ternarylogic_epi64(low, high, next, 0x96); // exclusive or of three
}

INLINE __m128i moved128(__m128i x, __m128i next) {
	__m128i low = _mm_clmulepi64_si128(x, MOVE_128, 0x00), high = _mm_clmulepi64_si128(x, MOVE_128, 0x11);
	return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// take loads 64 bytes and, with a copy, stores them.
INLINE I take(uint8_t *dst, const uint8_t *src, size_t at, const int copy) {
	I x = _mm512_loadu_si512(src + at);
	if (copy) {
		_mm_prefetch((const char *)dst + at + KIN_COPY_AHEAD, _MM_HINT_T0);
		_mm512_storeu_si512(dst + at, x);
	}
	return x;
}

INLINE uint32_t crc32c_as(uint32_t crc, uint8_t *dst, const uint8_t *src, size_t n, const int copy) {
	I x[4];
	for (int j = 0; j < 4; j++)
		x[j] = take(dst, src, 64 * j, copy);
	x[0] = _mm512_xor_si512(x[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
	size_t at = 256;
	for (; at + 256 <= n; at += 256)
		for (int j = 0; j < 4; j++)
			x[j] = moved(x[j], MOVE_2048, take(dst, src, at + 64 * j, copy));
	for (int j = 1; j < 4; j++)
		x[j] = moved(x[j - 1], MOVE_512, x[j]);
	for (; at + 64 <= n; at += 64)
		x[3] = moved(x[3], MOVE_512, take(dst, src, at, copy));
	__m128i y = moved128(_mm512_extracti32x4_epi32(x[3], 0), _mm512_extracti32x4_epi32(x[3], 1));
	y = moved128(y, _mm512_extracti32x4_epi32(x[3], 2));
	y = moved128(y, _mm512_extracti32x4_epi32(x[3], 3));
	uint64_t rest = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(y));
	rest = _mm_crc32_u64(rest, (uint64_t)_mm_extract_epi64(y, 1));
	return ~(uint32_t)rest;
}

uint32_t kin_crc32c(uint32_t crc, const uint8_t *src, size_t n) { return crc32c_as(crc, 0, src, n, 0); }

uint32_t kin_copy_crc32c(uint32_t crc, uint8_t *dst, const uint8_t *src, size_t n) {
	return crc32c_as(crc, dst, src, n, 1);
}

#if defined(__clang__)
#pragma clang attribute pop
#endif
