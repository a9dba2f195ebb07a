// The built-in matrix product. It has one implementation for each instruction set, generated from gemm_body.h.
// All of them give the same bits: see builtin.go.
#ifndef KIN_GEMM_H
#define KIN_GEMM_H

#include <stddef.h>

#ifdef __FAST_MATH__
#error "the built-in product promises equal bits: remove -ffast-math and -Ofast from CGO_CFLAGS"
#endif

enum { kin_gemm_avx2 = 1, kin_gemm_avx512 = 2, kin_gemm_neon = 3 };

// The blocks in which operands are copied. kin_gemm_depth decides where a sum over k is rounded into C. So it is
// the same for all instruction sets. The others affect only the speed.
enum {
	kin_gemm_depth = 256,  // values of k: a panel of B, 32 columns, is 32 KiB and stays in the first-level cache
	kin_gemm_rows = 288,   // of A: 288 KiB, which stay in the second-level cache together with as many rows of C; a multiple of every tile's rows
	kin_gemm_cols = 512,   // of B: 512 KiB; a multiple of every tile's columns
};

enum { kin_gemm_lanes = 16 }; // of a sum of dots

// kin_gemm_arena is the number of floats that a call needs for copies. 16 of them let it begin at a cache line.
enum { kin_gemm_arena = kin_gemm_depth * (kin_gemm_rows + kin_gemm_cols) + 16 };

// kin_gemm_detect returns the instruction sets that this processor and operating system can run, as bits 1 << k.
int kin_gemm_detect(void);

// kin_sgemm computes C = alpha·op(A)·op(B) + beta·C for row-major matrices. m, n and k are positive, and alpha is
// not 0. If dots is set, each element is the dot product of two rows: dots in gemm_body.h. That requires trans_b to
// be set, and trans_a not.
void kin_sgemm(int isa, int trans_a, int trans_b, size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda,
	const float *b, size_t ldb, float beta, float *c, size_t ldc, float *arena, int dots);

// A product, described by the places of its values. Element (i, l) of op(A) is a[i·a_row + l·a_step], and element
// (l, j) of op(B) is b[l·b_row + j·b_step]. One stride of each pair is 1.
typedef struct {
	size_t m, n, k;
	const float *a, *b;
	size_t a_row, a_step, b_row, b_step;
	float *c;
	size_t ldc;
	float alpha, beta;
	float *arena;
	int dots;
} kin_product;

void kin_gemm_avx2_run(const kin_product *p);
void kin_gemm_avx512_run(const kin_product *p);
void kin_gemm_neon_run(const kin_product *p);

#endif
