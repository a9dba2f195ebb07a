//go:build cgo && !windows

#include "stream.h"

#include <string.h>

// V is a cache line, in the vectors of the target. No V is passed to a function that is not inlined.
#pragma GCC diagnostic ignored "-Wpsabi"
typedef uint64_t V __attribute__((vector_size(64), aligned(1), may_alias));

#if defined(__x86_64__)
#include <immintrin.h>
#define PAST(to, v) past_line(to, v)
static inline __attribute__((always_inline)) void past_line(uint8_t *to, V v) {
	__m128i x[4];
	memcpy(x, &v, sizeof x);
	for (int i = 0; i < 4; i++)
		_mm_stream_si128((__m128i *)to + i, x[i]);
}
#else
#define PAST(to, v) (*(V *)(to) = (v))
#endif

static inline size_t border(size_t bytes, size_t part, size_t parts) {
	return part == parts ? bytes : bytes / parts * part / str_grain * str_grain;
}

static inline __attribute__((always_inline)) void move(const str_arrays *a) {
	V s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
	for (size_t part = 0; part < a->parts; part++) {
		for (int j = 0; j < a->reads; j++) {
			const uint8_t *p = a->at[j] + border(a->bytes[j], part, a->parts), *end = a->at[j] + border(a->bytes[j], part + 1, a->parts);
			const uintptr_t next = (uintptr_t)(end - p); // from here to the same place of the next part
			for (; end - p >= 4 * str_grain; p += 4 * str_grain) {
				if (a->ahead)
					for (int i = 0; i < 4; i++)
						__builtin_prefetch((const void *)((uintptr_t)p + next + i * str_grain));
				s0 ^= *(const V *)p;
				s1 ^= *(const V *)(p + str_grain);
				s2 ^= *(const V *)(p + 2 * str_grain);
				s3 ^= *(const V *)(p + 3 * str_grain);
			}
			for (; end - p >= str_grain; p += str_grain)
				s0 ^= *(const V *)p;
			for (; p < end; p++)
				s0[0] ^= *p;
		}
		s0 ^= s1 ^ s2 ^ s3;
		for (int j = a->reads; j < a->reads + a->writes; j++) {
			uint8_t *p = a->at[j] + border(a->bytes[j], part, a->parts), *end = a->at[j] + border(a->bytes[j], part + 1, a->parts);
			if (a->past)
				for (; end - p >= str_grain && (uintptr_t)p % 16 == 0; p += str_grain)
					PAST(p, s0);
			for (; end - p >= str_grain; p += str_grain)
				*(V *)p = s0;
			for (; p < end; p++)
				*p = (uint8_t)s0[0];
		}
	}
	static volatile uint64_t sink; // otherwise the compiler could leave out the reads
	if (a->writes == 0)
		sink = s0[0] ^ s0[1] ^ s0[2] ^ s0[3] ^ s0[4] ^ s0[5] ^ s0[6] ^ s0[7];
#if defined(__x86_64__)
	if (a->past)
		_mm_sfence();
#endif
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void move_avx512(const str_arrays *a) { move(a); }
__attribute__((target("avx2"))) static void move_avx2(const str_arrays *a) { move(a); }

void str_move(str_arrays a) {
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx512f"))
		move_avx512(&a);
	else if (__builtin_cpu_supports("avx2"))
		move_avx2(&a);
	else
		move(&a);
}
#else
void str_move(str_arrays a) { move(&a); }
#endif
