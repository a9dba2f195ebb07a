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

enum { kin_nn_blocked = 255 };

// kin_nn_conv is the geometry of conv.go, with the number of images. It is passed by value, like the arguments below:
// Go pointers in an argument need no pinning.
typedef struct {
	const int32_t *tap, *back_tap;
	size_t n, channels, height, width, filters, pad, pool, relu;
	size_t out_rows, out_cols, stride, plane, frame, z_plane, lead, dz_plane, dz, dx_plane;
	size_t taps, back_taps, positions, back_positions;
	size_t span; // positions that dot products run over, a multiple of 16
} kin_nn_conv;

typedef struct {
	const float *x, *weights, *bias;
	float *y, *frames, *scratch;
	uint8_t *at;
} kin_nn_conv_forward;

typedef struct {
	const float *dy, *frames, *weights;
	const uint8_t *at;
	float *dx, *dw, *db, *scratch;
} kin_nn_conv_backward;

void kin_nn_conv_run_forward(int isa, kin_nn_conv c, kin_nn_conv_forward a);
void kin_nn_conv_run_backward(int isa, kin_nn_conv c, kin_nn_conv_backward a);
void kin_nn_pool_forward(int isa, size_t planes, size_t height, size_t width, size_t size, float *y, uint8_t *at, const float *x);
void kin_nn_pool_backward(int isa, size_t planes, size_t height, size_t width, size_t size, float *dx, const uint8_t *at, const float *dy);

#define KIN_NN_DECLARE(isa) \
	void isa##_conv_forward(const kin_nn_conv *c, kin_nn_conv_forward a); \
	void isa##_conv_backward(const kin_nn_conv *c, kin_nn_conv_backward a); \
	void isa##_pool_forward(size_t planes, size_t height, size_t width, size_t size, float *y, uint8_t *at, const float *x); \
	void isa##_pool_backward(size_t planes, size_t height, size_t width, size_t size, float *dx, const uint8_t *at, const float *dy); \
	void isa##_add_bias(float *y, size_t stride, size_t rows, const float *bias, size_t n, int relu); \
	void isa##_relu(float *y, const float *x, size_t n); \
	void isa##_relu_gradient(float *dx, const float *y, const float *dy, size_t n); \
	void isa##_multiply(float *z, const float *x, const float *y, size_t n); \
	void isa##_add_row_sums(float *sum, const float *x, size_t n, size_t rows);

KIN_NN_DECLARE(kin_nn_avx2)
KIN_NN_DECLARE(kin_nn_avx512)
KIN_NN_DECLARE(kin_nn_neon)

#endif
