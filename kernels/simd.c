//go:build cgo && (amd64 || arm64) && !windows

#include "simd.h"

#if defined(__x86_64__)
#define DISPATCH(isa, call) ((isa) == kin_avx512 ? kin_avx512_##call : kin_avx2_##call)
#else
#define DISPATCH(isa, call) ((void)(isa), kin_neon_##call)
#endif

int kin_detect(void) {
#if defined(__x86_64__)
	__builtin_cpu_init();
	return (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") ? 1 << kin_avx2 : 0) | (__builtin_cpu_supports("avx512f") ? 1 << kin_avx512 : 0);
#else
	return 1 << kin_neon; // part of every arm64
#endif
}

void kin_run(int isa, kin_step s, double *sums) { DISPATCH(isa, run(&s, sums)); }

void kin_decode(int isa, float *dst, int encoding, const uint8_t *data, size_t values, size_t n) {
	DISPATCH(isa, decode(dst, encoding, data, values, n));
}

void kin_squares(int isa, const float *x, size_t n, double *lane) { DISPATCH(isa, squares(x, n, lane)); }

void kin_distances(int isa, const float *x, const float *y, size_t n, double *lane) {
	DISPATCH(isa, distances(x, y, n, lane));
}

size_t kin_finite(int isa, const float *x, size_t n) { return DISPATCH(isa, finite(x, n)); }

void kin_add_rows(int isa, float *dst, size_t row_len, const int32_t *rows, size_t n, const float *values) {
	DISPATCH(isa, add_rows(dst, row_len, rows, n, values));
}
