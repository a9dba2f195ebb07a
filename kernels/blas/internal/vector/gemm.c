//go:build cgo && (amd64 || arm64) && !windows

#include <stdint.h>

#include "gemm.h"

int kin_gemm_detect(void) {
#if defined(__x86_64__)
	__builtin_cpu_init();
	int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	return (avx2 ? 1 << kin_gemm_avx2 : 0) | (avx2 && __builtin_cpu_supports("avx512f") ? 1 << kin_gemm_avx512 : 0);
#else
	return 1 << kin_gemm_neon; // part of every arm64
#endif
}

void kin_sgemm(int isa, int trans_a, int trans_b, size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda,
		const float *b, size_t ldb, float beta, float *c, size_t ldc, float *arena, int dots) {
	kin_product p = {
		.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .ldc = ldc, .alpha = alpha, .beta = beta,
		.arena = (float *)(((uintptr_t)arena + 63) & ~(uintptr_t)63),
		.a_row = trans_a ? 1 : lda, .a_step = trans_a ? lda : 1,
		.b_row = trans_b ? 1 : ldb, .b_step = trans_b ? ldb : 1,
		.dots = dots,
	};
#if defined(__x86_64__)
	if (isa == kin_gemm_avx512)
		kin_gemm_avx512_run(&p);
	else
		kin_gemm_avx2_run(&p);
#else
	(void)isa;
	kin_gemm_neon_run(&p);
#endif
}
