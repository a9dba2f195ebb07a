// A libcublas.so.12 on the emulated driver, for the tests of package cuda: products of matrices that lie column after column, in streams and in
// captures. It is as strict as the real one may be: it works in a thread with a context only, it is without a workspace after its stream
// has been set, what is captured needs one, and a product with beta 0 does not read what C holds. Its sums go backward, so that they have other
// bits than those of the kernels, and each product leaves its marks in the workspace.
//
// KINTSUGI_EMU_CUBLAS: none: it does not start; uncaptured: it refuses to be captured.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "../../internal/driver/cublas.h"
#include "streams.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")
#endif

std::atomic<int> emu::libraries;

struct cublasContext {
	CUstream stream = nullptr;
	char *workspace = nullptr;
	size_t bytes = 0;
	int math = CUBLAS_DEFAULT_MATH, atomics = CUBLAS_ATOMICS_NOT_ALLOWED;
};

static bool asked(const char *what) {
	const char *s = getenv("KINTSUGI_EMU_CUBLAS");
	return s && !strcmp(s, what);
}

// A matrix of a batch: value [i][j] of what goes into the product.
struct Factor {
	const float *x;
	long long ld, stride;
	bool transposed;
	float at(long long z, long long i, long long j) const { return x[z * stride + (transposed ? i * ld + j : j * ld + i)]; }
};

// Whether a matrix of so many rows and columns, as it lies, is on the device with all of its batch.
static bool fits(const float *x, int rows, int columns, int ld, long long stride, int batch) {
	const size_t values = (size_t)(batch - 1) * stride + (size_t)(columns - 1) * ld + rows;
	return ld >= std::max(1, rows) && stride >= 0 && emu::on_device(x, values * sizeof *x);
}

// To nearest, ties away from zero.
static float eleven_bits(float v) {
	uint32_t b;
	memcpy(&b, &v, sizeof b);
	b = (b + 0x1000) & 0xffffe000;
	memcpy(&v, &b, sizeof v);
	return v;
}

#define ENTRY extern "C" __attribute__((visibility("default"))) cublasStatus_t

ENTRY cublasCreate_v2(cublasHandle_t *handle) {
	if (!emu::has_context() || asked("none")) return CUBLAS_STATUS_NOT_INITIALIZED;
	*handle = new cublasContext();
	emu::libraries++;
	return CUBLAS_STATUS_SUCCESS;
}
ENTRY cublasDestroy_v2(cublasHandle_t handle) {
	delete handle;
	emu::libraries--;
	return CUBLAS_STATUS_SUCCESS;
}
ENTRY cublasGetVersion_v2(cublasHandle_t, int *version) {
	*version = 120304;
	return CUBLAS_STATUS_SUCCESS;
}
ENTRY cublasSetStream_v2(cublasHandle_t handle, CUstream stream) {
	handle->stream = stream;
	handle->workspace = nullptr;
	return CUBLAS_STATUS_SUCCESS;
}
ENTRY cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes) {
	if ((uintptr_t)workspace % 256 || !emu::on_device(workspace, bytes)) return CUBLAS_STATUS_INVALID_VALUE;
	handle->workspace = (char *)workspace;
	handle->bytes = bytes;
	return CUBLAS_STATUS_SUCCESS;
}
ENTRY cublasSetMathMode(cublasHandle_t handle, int mode) {
	handle->math = mode;
	return CUBLAS_STATUS_SUCCESS;
}
ENTRY cublasSetAtomicsMode(cublasHandle_t handle, int mode) {
	handle->atomics = mode;
	return CUBLAS_STATUS_SUCCESS;
}
ENTRY cublasSgemmStridedBatched(cublasHandle_t handle, int op_a, int op_b, int m, int n, int k, const float *alpha, const float *a, int lda, long long stride_a, const float *b, int ldb, long long stride_b, const float *beta, float *c, int ldc, long long stride_c, int batch) {
	if (!emu::has_context()) return CUBLAS_STATUS_NOT_INITIALIZED;
	if (emu::capturing(handle->stream) && (!handle->workspace || asked("uncaptured"))) return CUBLAS_STATUS_EXECUTION_FAILED;
	const bool ta = op_a == CUBLAS_OP_T, tb = op_b == CUBLAS_OP_T;
	if (m < 1 || n < 1 || k < 1 || batch < 1 || !fits(a, ta ? k : m, ta ? m : k, lda, stride_a, batch) || !fits(b, tb ? n : k, tb ? k : n, ldb, stride_b, batch) ||
		!fits(c, m, n, ldc, stride_c, batch) || batch > 1 && stride_c < (long long)ldc * (n - 1) + m)
		return CUBLAS_STATUS_INVALID_VALUE;
	const Factor x = {a, lda, stride_a, ta}, y = {b, ldb, stride_b, tb};
	const float one = *alpha, keep = *beta; // they are the caller's
	const bool tf32 = handle->math == CUBLAS_TF32_TENSOR_OP_MATH;
	char *workspace = handle->workspace;
	const size_t bytes = std::min(handle->bytes, (size_t)4096);
	const CUresult r = emu::enqueue(handle->stream, [=] {
		if (workspace) memset(workspace, 0x5a, bytes);
		for (long long z = 0; z < batch; z++)
			for (int j = 0; j < n; j++)
				for (int i = 0; i < m; i++) {
					float sum = 0;
					for (int e = k - 1; e >= 0; e--) {
						const float v = x.at(z, i, e), w = y.at(z, e, j);
						sum += tf32 ? eleven_bits(v) * eleven_bits(w) : v * w;
					}
					float &to = c[z * stride_c + (long long)j * ldc + i];
					to = one * sum + (keep ? keep * to : 0);
				}
		return (CUresult)CUDA_SUCCESS;
	});
	return r == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
ENTRY cublasSgemm_v2(cublasHandle_t handle, int op_a, int op_b, int m, int n, int k, const float *alpha, const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc) {
	return cublasSgemmStridedBatched(handle, op_a, op_b, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);
}
