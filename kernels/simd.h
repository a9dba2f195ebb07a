// The C side of the SIMD devices. Every function has one implementation for each instruction set,
// generated from simd_body.h, and has the bits of the Go reference: see the package comment in doc.go.
#ifndef KIN_SIMD_H
#define KIN_SIMD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __FAST_MATH__
#error "kernels promises equal bits on every machine: remove -ffast-math and -Ofast from CGO_CFLAGS"
#endif

enum { kin_avx2 = 1, kin_avx512 = 2, kin_neon = 3 };

enum { kin_max_operands = 64, kin_lanes = 16, kin_tile = 512 };

// The rules of step.go, and kin_sum, which only writes the unscaled sum to update.
enum { kin_sum = 0, kin_sgd, kin_momentum, kin_nesterov, kin_adam, kin_adamw, kin_add, kin_assign, kin_adagrad, kin_lazy_adam };

// The encodings of encoding.go.
enum { kin_fp32 = 0, kin_bf16, kin_fp16, kin_int8, kin_sign, kin_sparse16, kin_sparse32, kin_low_rank, kin_int4 };

enum { kin_block = 256 }; // values that share a scale

// kin_step is passed by value. Go pointers in an argument need no pinning, but pointers in memory that an
// argument points to do, which costs more than the copy (64 operands: 107 ns against 4600 ns).
typedef struct {
	const uint8_t *operand[kin_max_operands]; // the payload; for kin_fp32 the values, aligned
	float weight[kin_max_operands];
	uint8_t encoding[kin_max_operands];
	const float *start; // the sum to start from; NULL: +0
	const float *from;  // the scaled sum itself, or NULL
	const float *params, *previous;
	const float *saved; // or NULL
	const float *state0, *state1;
	float *next, *next_state0, *next_state1, *update; // update may be NULL
	uint8_t *broadcast;                               // or NULL
	float *copy;                                      // or NULL
	size_t values;                                    // of the chunk and the payloads
	size_t n;                                         // values to compute, a multiple of kin_lanes
	int operands, rule, want_dot, want_displacement, past;

	// The coefficients of step.go.
	float scale, rate, momentum, decay, beta1, rest1, beta2, rest2, alpha, rho, epsilon, weight_kept;
} kin_step;

// kin_detect returns the instruction sets that this processor and operating system can run, as bits 1 << k.
int kin_detect(void);

// kin_run computes a step and adds its by-products to sums: 4 × kin_lanes values, as in sums.go. The rule kin_sum has
// no by-products.
void kin_run(int isa, kin_step s, double *sums);

// kin_decode sets dst to the first n values of a payload with that many values, which must not be sparse. n is a
// multiple of kin_lanes.
void kin_decode(int isa, float *dst, int encoding, const uint8_t *data, size_t values, size_t n);

// kin_squares sets 16 lanes to the sums of x[i]²; n is a multiple of 16.
void kin_squares(int isa, const float *x, size_t n, double *lane);

// kin_distances sets 16 lanes to the sums of (x[i] − y[i])²; n is a multiple of 16.
void kin_distances(int isa, const float *x, const float *y, size_t n, double *lane);

// kin_finite returns the start of the first tile of x that holds a NaN or an infinity, or n; n is a multiple of 16.
size_t kin_finite(int isa, const float *x, size_t n);

// kin_add_rows adds row i of values to row rows[i] of dst, for i in order.
void kin_add_rows(int isa, float *dst, size_t row_len, const int32_t *rows, size_t n, const float *values);

#define KIN_DECLARE(isa) \
	void isa##_run(const kin_step *s, double *sums); \
	void isa##_decode(float *dst, int encoding, const uint8_t *data, size_t values, size_t n); \
	void isa##_squares(const float *x, size_t n, double *lane); \
	void isa##_distances(const float *x, const float *y, size_t n, double *lane); \
	size_t isa##_finite(const float *x, size_t n); \
	void isa##_add_rows(float *dst, size_t row_len, const int32_t *rows, size_t n, const float *values);

KIN_DECLARE(kin_avx2)
KIN_DECLARE(kin_avx512)
KIN_DECLARE(kin_neon)

#endif
