// The C side of the devices of layers. Every function has one implementation for each instruction set, generated from
// nn_body.h. The comments of device.go say what they compute.
#ifndef KIN_NN_H
#define KIN_NN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __FAST_MATH__
#error "nn keeps NaN, so that it is noticed: remove -ffast-math and -Ofast from CGO_CFLAGS"
#endif

enum { kin_nn_avx2 = 1, kin_nn_avx512 = 2, kin_nn_neon = 3 };

// kin_nn_detect returns the instruction sets that this processor and operating system can run, as bits 1 << k.
int kin_nn_detect(void);

void kin_nn_add_bias(int isa, float *y, size_t stride, size_t rows, const float *bias, size_t n, int relu);
void kin_nn_relu(int isa, float *y, const float *x, size_t n);
void kin_nn_relu_gradient(int isa, float *dx, const float *y, const float *dy, size_t n);
void kin_nn_multiply(int isa, float *z, const float *x, const float *y, size_t n);
void kin_nn_add_row_sums(int isa, float *sum, const float *x, size_t n, size_t rows);

#define KIN_NN_DECLARE(isa) \
	void isa##_add_bias(float *y, size_t stride, size_t rows, const float *bias, size_t n, int relu); \
	void isa##_relu(float *y, const float *x, size_t n); \
	void isa##_relu_gradient(float *dx, const float *y, const float *dy, size_t n); \
	void isa##_multiply(float *z, const float *x, const float *y, size_t n); \
	void isa##_add_row_sums(float *sum, const float *x, size_t n, size_t rows);

KIN_NN_DECLARE(kin_nn_avx2)
KIN_NN_DECLARE(kin_nn_avx512)
KIN_NN_DECLARE(kin_nn_neon)

#endif
