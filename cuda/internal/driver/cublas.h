// The part of cuBLAS that is used: its types, codes and entry points, as in its binary interface
// since version 11.4. As with the driver, a program that includes this needs no part of CUDA,
// neither to build nor to start.
#pragma once

#include "driver.h"

typedef int cublasStatus_t;
typedef struct cublasContext *cublasHandle_t;

enum {
	CUBLAS_STATUS_SUCCESS = 0,
	CUBLAS_STATUS_NOT_INITIALIZED = 1,
	CUBLAS_STATUS_INVALID_VALUE = 7,
	CUBLAS_STATUS_EXECUTION_FAILED = 13,
	CUBLAS_STATUS_NOT_SUPPORTED = 15,
};

enum {
	CUBLAS_OP_N = 0,
	CUBLAS_OP_T = 1,
	CUBLAS_ATOMICS_NOT_ALLOWED = 0,
	CUBLAS_GEMM_DEFAULT = -1,
	CUDA_R_32F = 0, // matrices of float32

	// Sums of float32. The last two allow cuBLAS to round float32 factors on their way to the
	// matrix units.
	CUBLAS_COMPUTE_32F = 68,
	CUBLAS_COMPUTE_32F_FAST_16BF = 75,
	CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
};

// X(short name, name in the library, parameters). Matrices are column-major.
#define CUBLAS_FUNCTIONS(X) \
	X(create, cublasCreate_v2, (cublasHandle_t * handle)) \
	X(destroy, cublasDestroy_v2, (cublasHandle_t handle)) \
	X(version, cublasGetVersion_v2, (cublasHandle_t handle, int *version)) \
	X(set_stream, cublasSetStream_v2, (cublasHandle_t handle, CUstream stream)) \
	X(set_workspace, cublasSetWorkspace_v2, (cublasHandle_t handle, void *workspace, size_t bytes)) \
	X(set_atomics, cublasSetAtomicsMode, (cublasHandle_t handle, int mode)) \
	X(gemm, cublasGemmEx, (cublasHandle_t handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute, int algorithm)) \
	X(gemm_batch, cublasGemmStridedBatchedEx, (cublasHandle_t handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda, long long stride_a, const void *b, int type_b, int ldb, long long stride_b, const void *beta, void *c, int type_c, int ldc, long long stride_c, int batch, int compute, int algorithm))

// cuBLAS on a context.
typedef struct {
#define X(name, symbol, params) cublasStatus_t(*name) params;
	CUBLAS_FUNCTIONS(X)
#undef X
	driver *d;
	cublasHandle_t handle;
	int compute; // CUBLAS_COMPUTE_32F or one of its variants
} cublas;

// c = a·b, or c += a·b, of row-major matrices, for each matrix of a batch. See BLAS.Multiply.
typedef struct {
	uint64_t a, b, c;
	int m, n, k;
	int lda, ldb, ldc;
	long long stride_a, stride_b, stride_c;
	int a_transposed, b_transposed, accumulate, batch;
} cublas_product;

// Fills the table. Returns 0, or an error message in memory of the calling thread.
const char *cublas_open(const char *library, cublas *l);

// Functions that first make the context current. Those that call cuBLAS return its status.
cublasStatus_t cublas_create(cublas *l, driver *d, int *version);
cublasStatus_t cublas_destroy(cublas *l);
cublasStatus_t cublas_configure(cublas *l, uintptr_t stream, uint64_t workspace, size_t bytes, int compute);
cublasStatus_t cublas_multiply(cublas *l, const cublas_product *p);
