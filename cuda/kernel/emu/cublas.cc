// A libcublas.so.12 on the emulated driver, for the tests of package cuda: products of column-major
// matrices, in streams and in captures. It is as strict as the real one may be:
//
//	- It works only in a thread with a context.
//	- It has no workspace after its stream has been set, and a product that is captured needs one.
//	- It multiplies only float32.
//	- A product with beta 0 does not read what C holds.
//
// Its sums go backward, so that their bits differ from those of the kernels. Each product writes marks
// into the workspace.
//
// KINTSUGI_EMU_CUBLAS may be "none": it does not start; or "uncaptured": it refuses to be captured.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../../internal/driver/cublas.h"
#include "round.h"
#include "streams.h"

std::atomic<int> emu::libraries;

struct cublasContext {
	CUstream stream = nullptr;
	char *workspace = nullptr;
	size_t bytes = 0;
	int atomics = CUBLAS_ATOMICS_NOT_ALLOWED;
};

static bool asked(const char *what) {
	const char *s = getenv("KINTSUGI_EMU_CUBLAS");
	return s && !strcmp(s, what);
}

// A batch of matrices. at returns value [i][j] of a matrix as the product uses it.
struct Factor {
	const float *x;
	long long ld, stride;
	bool transposed;
	float at(long long z, long long i, long long j) const { return x[z * stride + (transposed ? i * ld + j : j * ld + i)]; }
};

// Reports whether the whole batch of matrices is on the device. rows and columns are those in memory.
static bool fits(const float *x, int rows, int columns, int ld, long long stride, int batch) {
	const size_t values = (size_t)(batch - 1) * stride + (size_t)(columns - 1) * ld + rows;
	return ld >= std::max(1, rows) && stride >= 0 && emu::on_device(x, values * sizeof *x);
}

// Returns the nearest factor of the kind that the matrix units get.
static float rounded(float v, int compute) {
	uint32_t b;
	memcpy(&b, &v, sizeof b);
	if (compute == CUBLAS_COMPUTE_32F_FAST_TF32) b = emu::nearest_tf32(b);
	if (compute == CUBLAS_COMPUTE_32F_FAST_16BF) b = emu::nearest_bf16(b) << 16;
	memcpy(&v, &b, sizeof v);
	return v;
}

// Declares that a work touches the columns of a batch of matrices, and nothing between them.
static void columns(emu::Work &w, const void *x, int rows, int columns, int ld, long long stride, int batch, bool write) {
	const size_t first = w.touches.size();
	for (long long z = 0; z < (stride ? batch : 1); z++)
		for (long long j = 0; j < columns; j++) {
			const uintptr_t at = (uintptr_t)((const float *)x + z * stride + j * ld);
			if (w.touches.size() > first && w.touches.back().at + w.touches.back().bytes == at)
				w.touches.back().bytes += rows * sizeof(float);
			else
				w.touches.push_back({at, rows * sizeof(float), write});
		}
}

#undef ENTRY
#define ENTRY ENTRY_OF(cublasStatus_t)

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
ENTRY cublasSetAtomicsMode(cublasHandle_t handle, int mode) {
	handle->atomics = mode;
	return CUBLAS_STATUS_SUCCESS;
}
ENTRY cublasGemmStridedBatchedEx(cublasHandle_t handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda, long long stride_a, const void *b, int type_b, int ldb, long long stride_b, const void *beta, void *c, int type_c, int ldc, long long stride_c, int batch, int compute, int algorithm) {
	if (!emu::has_context()) return CUBLAS_STATUS_NOT_INITIALIZED;
	if (emu::capturing(handle->stream) && (!handle->workspace || asked("uncaptured"))) return CUBLAS_STATUS_EXECUTION_FAILED;
	if (type_a != CUDA_R_32F || type_b != CUDA_R_32F || type_c != CUDA_R_32F || algorithm != CUBLAS_GEMM_DEFAULT ||
		compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32 && compute != CUBLAS_COMPUTE_32F_FAST_16BF)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	const bool ta = op_a == CUBLAS_OP_T, tb = op_b == CUBLAS_OP_T;
	const Factor x = {(const float *)a, lda, stride_a, ta}, y = {(const float *)b, ldb, stride_b, tb};
	float *const sums = (float *)c;
	if (m < 1 || n < 1 || k < 1 || batch < 1 || !fits(x.x, ta ? k : m, ta ? m : k, lda, stride_a, batch) || !fits(y.x, tb ? n : k, tb ? k : n, ldb, stride_b, batch) ||
		!fits(sums, m, n, ldc, stride_c, batch) || batch > 1 && stride_c < (long long)ldc * (n - 1) + m)
		return CUBLAS_STATUS_INVALID_VALUE;
	const float one = *(const float *)alpha, keep = *(const float *)beta; // alpha and beta belong to the caller
	char *workspace = handle->workspace;
	const size_t bytes = std::min(handle->bytes, (size_t)4096);
	const auto run = [=] {
		if (workspace) memset(workspace, 0x5a, bytes);
		std::vector<float> factors((size_t)m * k), sum(m); // each factor is rounded once, not in each product that has it
		for (long long z = 0; z < batch; z++) {
			for (int e = 0; e < k; e++)
				for (int i = 0; i < m; i++) factors[(size_t)e * m + i] = rounded(x.at(z, i, e), compute);
			for (int j = 0; j < n; j++) {
				std::fill(sum.begin(), sum.end(), 0);
				for (int e = k - 1; e >= 0; e--) {
					const float factor = rounded(y.at(z, e, j), compute), *const of = &factors[(size_t)e * m];
					for (int i = 0; i < m; i++) sum[i] += of[i] * factor;
				}
				for (int i = 0; i < m; i++) {
					float &to = sums[z * stride_c + (long long)j * ldc + i];
					to = one * sum[i] + (keep ? keep * to : 0);
				}
			}
		}
		return (CUresult)CUDA_SUCCESS;
	};
	emu::Work work = {"a product of cuBLAS", run, {}};
	if (workspace) work.touches.push_back({(uintptr_t)workspace, bytes, true});
	columns(work, a, ta ? k : m, ta ? m : k, lda, stride_a, batch, false);
	columns(work, b, tb ? n : k, tb ? k : n, ldb, stride_b, batch, false);
	columns(work, c, m, n, ldc, stride_c, batch, true);
	const CUresult r = emu::enqueue(handle->stream, work);
	return r == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
ENTRY cublasGemmEx(cublasHandle_t handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute, int algorithm) {
	return cublasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, 0, b, type_b, ldb, 0, beta, c, type_c, ldc, 0, 1, compute, algorithm);
}
