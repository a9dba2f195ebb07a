//go:build cgo && (amd64 || arm64) && !windows

#include "nn_seq.h"

#if defined(__x86_64__)
#define DISPATCH(isa, call) ((isa) == kin_nn_avx512 ? kin_nn_avx512_##call : kin_nn_avx2_##call)
#else
#define DISPATCH(isa, call) ((void)(isa), kin_nn_neon_##call)
#endif

void kin_nn_gelu(int isa, float *y, const float *x, size_t n) { DISPATCH(isa, gelu(y, x, n)); }

void kin_nn_gelu_gradient(int isa, float *dx, const float *dy, const float *x, size_t n) {
	DISPATCH(isa, gelu_gradient(dx, dy, x, n));
}

void kin_nn_layer_norm(int isa, float *y, float *stats, const float *x, const float *w, const float *b, size_t rows, size_t n) {
	DISPATCH(isa, layer_norm(y, stats, x, w, b, rows, n));
}

void kin_nn_layer_norm_gradient(int isa, float *dx, float *dw, float *db, const float *dy, const float *x, const float *w,
	const float *stats, size_t rows, size_t n) {
	DISPATCH(isa, layer_norm_gradient(dx, dw, db, dy, x, w, stats, rows, n));
}

void kin_nn_attention(int isa, kin_nn_head h) { DISPATCH(isa, attention(&h)); }

void kin_nn_attention_gradient(int isa, kin_nn_head h) { DISPATCH(isa, attention_gradient(&h)); }
