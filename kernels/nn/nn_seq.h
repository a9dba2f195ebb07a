// The C side of the operations on sequences. Every function has one implementation for each instruction set, generated
// from nn_seq_body.h, and has the bits of the Go code. sequence.go says what they compute, and host_sequence.go in
// which order.
#ifndef KIN_NN_SEQ_H
#define KIN_NN_SEQ_H

#include <stddef.h>

#include "nn.h"

// One head of one example. Rows of q, k, v and of their gradients begin stride values apart, and rows of y and dy
// y_stride values apart. Rows of p begin as many values apart as there are positions, rounded up to 16.
typedef struct {
	const float *q, *k, *v;
	float *y, *p, *scratch;
	const float *dy; // the gradients: only for the backward direction
	float *dq, *dk, *dv;
	size_t stride, y_stride, positions, size;
	float scale;
} kin_nn_head;

void kin_nn_gelu(int isa, float *y, const float *x, size_t n);
void kin_nn_gelu_gradient(int isa, float *dx, const float *dy, const float *x, size_t n);
void kin_nn_layer_norm(int isa, float *y, float *stats, const float *x, const float *w, const float *b, size_t rows, size_t n);
void kin_nn_layer_norm_gradient(int isa, float *dx, float *dw, float *db, const float *dy, const float *x, const float *w,
	const float *stats, size_t rows, size_t n);
void kin_nn_attention(int isa, kin_nn_head h);
void kin_nn_attention_gradient(int isa, kin_nn_head h);

#define KIN_NN_SEQ_DECLARE(isa) \
	void isa##_gelu(float *y, const float *x, size_t n); \
	void isa##_gelu_gradient(float *dx, const float *dy, const float *x, size_t n); \
	void isa##_layer_norm(float *y, float *stats, const float *x, const float *w, const float *b, size_t rows, size_t n); \
	void isa##_layer_norm_gradient(float *dx, float *dw, float *db, const float *dy, const float *x, const float *w, \
		const float *stats, size_t rows, size_t n); \
	void isa##_attention(const kin_nn_head *h); \
	void isa##_attention_gradient(const kin_nn_head *h);

KIN_NN_SEQ_DECLARE(kin_nn_avx2)
KIN_NN_SEQ_DECLARE(kin_nn_avx512)
KIN_NN_SEQ_DECLARE(kin_nn_neon)

#endif
