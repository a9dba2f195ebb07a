//go:build cgo && (amd64 || arm64) && !windows

#include "nn.h"

#if defined(__x86_64__)
#define DISPATCH(isa, call) ((isa) == kin_nn_avx512 ? kin_nn_avx512_##call : kin_nn_avx2_##call)
#else
#define DISPATCH(isa, call) ((void)(isa), kin_nn_neon_##call)
#endif

int kin_nn_detect(void) {
#if defined(__x86_64__)
	__builtin_cpu_init();
	int fma = __builtin_cpu_supports("fma");
	return (fma && __builtin_cpu_supports("avx2") ? 1 << kin_nn_avx2 : 0) |
		(fma && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") ? 1 << kin_nn_avx512 : 0);
#else
	return 1 << kin_nn_neon; // part of every arm64
#endif
}

void kin_nn_add_bias(int isa, float *y, size_t stride, size_t rows, const float *bias, size_t n, int relu) {
	DISPATCH(isa, add_bias(y, stride, rows, bias, n, relu));
}

void kin_nn_relu(int isa, float *y, const float *x, size_t n) { DISPATCH(isa, relu(y, x, n)); }

void kin_nn_relu_gradient(int isa, float *dx, const float *y, const float *dy, size_t n) {
	DISPATCH(isa, relu_gradient(dx, y, dy, n));
}

void kin_nn_multiply(int isa, float *z, const float *x, const float *y, size_t n) { DISPATCH(isa, multiply(z, x, y, n)); }

void kin_nn_add_row_sums(int isa, float *sum, const float *x, size_t n, size_t rows) {
	DISPATCH(isa, add_row_sums(sum, x, n, rows));
}

void kin_nn_conv_run_forward(int isa, kin_nn_conv c, kin_nn_conv_forward a) { DISPATCH(isa, conv_forward(&c, a)); }

void kin_nn_conv_run_backward(int isa, kin_nn_conv c, kin_nn_conv_backward a) { DISPATCH(isa, conv_backward(&c, a)); }

void kin_nn_pool_forward(int isa, size_t planes, size_t height, size_t width, size_t size, float *y, uint8_t *at, const float *x) {
	DISPATCH(isa, pool_forward(planes, height, width, size, y, at, x));
}

void kin_nn_pool_backward(int isa, size_t planes, size_t height, size_t width, size_t size, float *dx, const uint8_t *at, const float *dy) {
	DISPATCH(isa, pool_backward(planes, height, width, size, dx, at, dy));
}
