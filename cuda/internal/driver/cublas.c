//go:build gpu && cgo && linux

#define _GNU_SOURCE
#include "cublas.h"

#include <dlfcn.h>
#include <stdio.h>

static __thread char message[400];

const char *cublas_open(const char *library, cublas *l) {
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL); // never closed: it has kernels in contexts
	if (!handle) {
		snprintf(message, sizeof message, "%s", dlerror());
		return message;
	}
#define X(name, symbol, params) \
	*(void **)&l->name = dlsym(handle, #symbol); \
	if (!l->name) { \
		snprintf(message, sizeof message, "%s has no %s: it is no cuBLAS, or too old", library, #symbol); \
		return message; \
	}
	CUBLAS_FUNCTIONS(X)
#undef X
	return 0;
}

// CURRENT makes the context current: cuBLAS works in the calling thread's context.
#define CURRENT(d) \
	if ((d)->set_current((d)->context) != CUDA_SUCCESS) return CUBLAS_STATUS_NOT_INITIALIZED

cublasStatus_t cublas_create(cublas *l, driver *d, int *version) {
	CURRENT(d);
	l->d = d;
	const cublasStatus_t r = l->create(&l->handle);
	return r != CUBLAS_STATUS_SUCCESS ? r : l->version(l->handle, version);
}

cublasStatus_t cublas_destroy(cublas *l) {
	if (!l->handle) return CUBLAS_STATUS_SUCCESS;
	CURRENT(l->d);
	const cublasStatus_t r = l->destroy(l->handle);
	l->handle = 0;
	return r;
}

cublasStatus_t cublas_configure(cublas *l, uintptr_t stream, uint64_t workspace, size_t bytes, int compute) {
	CURRENT(l->d);
	l->compute = compute;
	cublasStatus_t r = l->set_stream(l->handle, (CUstream)stream);
	// After setting the stream, because that resets the workspace.
	if (r == CUBLAS_STATUS_SUCCESS) r = l->set_workspace(l->handle, (void *)(uintptr_t)workspace, bytes);
	if (r == CUBLAS_STATUS_SUCCESS) r = l->set_atomics(l->handle, CUBLAS_ATOMICS_NOT_ALLOWED);
	return r;
}

// cuBLAS is column-major: our rows are its columns. So it computes bᵀ·aᵀ, which is cᵀ.
cublasStatus_t cublas_multiply(cublas *l, const cublas_product *p) {
	static const float one = 1, zero = 0;
	const float *beta = p->accumulate ? &one : &zero;
	const int op_a = p->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, op_b = p->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
	const float *a = (const float *)(uintptr_t)p->a, *b = (const float *)(uintptr_t)p->b;
	float *c = (float *)(uintptr_t)p->c;
	CURRENT(l->d);
	if (p->batch == 1)
		return l->gemm(l->handle, op_b, op_a, p->n, p->m, p->k, &one, b, CUDA_R_32F, p->ldb, a, CUDA_R_32F, p->lda, beta, c, CUDA_R_32F, p->ldc, l->compute, CUBLAS_GEMM_DEFAULT);
	return l->gemm_batch(l->handle, op_b, op_a, p->n, p->m, p->k, &one, b, CUDA_R_32F, p->ldb, p->stride_b, a, CUDA_R_32F, p->lda, p->stride_a, beta, c, CUDA_R_32F, p->ldc, p->stride_c, p->batch, l->compute, CUBLAS_GEMM_DEFAULT);
}
