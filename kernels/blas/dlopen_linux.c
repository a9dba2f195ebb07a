#include "dlopen.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_MAJOR = 101 };

// find stores the address of a function; POSIX lets a void pointer hold one, ISO C does not, hence memcpy.
static int find(void *handle, const char *name, void *function) {
	void *address = dlsym(handle, name);
	memcpy(function, &address, sizeof address);
	return address != NULL;
}

int kin_blas_load(struct kin_blas *b, const char *file, char *message, int size) {
	// RTLD_LOCAL: the names of a BLAS must not take the place of another library's.
	b->handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (b->handle == NULL) {
		const char *why = dlerror();
		snprintf(message, (size_t)size, "%s", why ? why : file);
		return why && strstr(why, "No such file") && strstr(why, file) == why ? 1 : 2;
	}
	const struct {
		const char *name;
		void *function;
	} wanted[] = {
		{"cblas_sgemm", &b->sgemm}, {"cblas_dgemm", &b->dgemm}, {"cblas_sgemv", &b->sgemv}, {"cblas_dgemv", &b->dgemv},
		{"cblas_sger", &b->sger},   {"cblas_dger", &b->dger},   {"cblas_sdot", &b->sdot},   {"cblas_ddot", &b->ddot},
		{"cblas_saxpy", &b->saxpy}, {"cblas_daxpy", &b->daxpy},
	};
	for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
		if (!find(b->handle, wanted[i].name, wanted[i].function)) {
			snprintf(message, (size_t)size, "%s has no function %s", file, wanted[i].name);
			dlclose(b->handle);
			return 2;
		}
	}
	return 0;
}

void kin_blas_openblas(const struct kin_blas *b, int threads, char *version, int size) {
	void (*set_threads)(int);
	char *(*config)(void);
	char *(*corename)(void);
	if (find(b->handle, "openblas_set_num_threads", &set_threads)) set_threads(threads);
	snprintf(version, (size_t)size, "OpenBLAS");
	if (find(b->handle, "openblas_get_config", &config)) snprintf(version, (size_t)size, "%s", config());
	// The config is "OpenBLAS 0.3.21 NO_LAPACKE ... Prescott MAX_THREADS=64"; the version is enough. Another
	// function says for which processor its kernels are.
	char *space = strchr(version, ' ');
	if (space != NULL && (space = strchr(space + 1, ' ')) != NULL) *space = 0;
	if (find(b->handle, "openblas_get_corename", &corename)) {
		size_t used = strlen(version);
		snprintf(version + used, (size_t)size - used, " (%s)", corename());
	}
}

void kin_blas_mkl(const struct kin_blas *b, int threads, char *version, int size) {
	int (*set_layer)(int);
	void (*set_threads)(int);
	void (*get_version)(char *, int);
	// The sequential layer needs no OpenMP run time; it must be chosen before the first computation.
	if (threads == 1 && find(b->handle, "MKL_Set_Threading_Layer", &set_layer)) set_layer(1);
	if (find(b->handle, "MKL_Set_Num_Threads", &set_threads)) set_threads(threads);
	snprintf(version, (size_t)size, "MKL");
	if (find(b->handle, "MKL_Get_Version_String", &get_version)) {
		get_version(version, size);
		version[size - 1] = 0;
		// It is padded with spaces, and long.
		for (size_t n = strlen(version); n > 0 && version[n - 1] == ' '; n--) version[n - 1] = 0;
	}
}

void kin_blas_sgemm(const struct kin_blas *b, int ta, int tb, int m, int n, int k, float alpha, const float *x, int ldx,
	const float *y, int ldy, float beta, float *z, int ldz) {
	b->sgemm(ROW_MAJOR, ta, tb, m, n, k, alpha, x, ldx, y, ldy, beta, z, ldz);
}

void kin_blas_dgemm(const struct kin_blas *b, int ta, int tb, int m, int n, int k, double alpha, const double *x, int ldx,
	const double *y, int ldy, double beta, double *z, int ldz) {
	b->dgemm(ROW_MAJOR, ta, tb, m, n, k, alpha, x, ldx, y, ldy, beta, z, ldz);
}

void kin_blas_sgemv(const struct kin_blas *b, int t, int m, int n, float alpha, const float *a, int lda, const float *x,
	int incx, float beta, float *y, int incy) {
	b->sgemv(ROW_MAJOR, t, m, n, alpha, a, lda, x, incx, beta, y, incy);
}

void kin_blas_dgemv(const struct kin_blas *b, int t, int m, int n, double alpha, const double *a, int lda, const double *x,
	int incx, double beta, double *y, int incy) {
	b->dgemv(ROW_MAJOR, t, m, n, alpha, a, lda, x, incx, beta, y, incy);
}

void kin_blas_sger(const struct kin_blas *b, int m, int n, float alpha, const float *x, int incx, const float *y, int incy,
	float *a, int lda) {
	b->sger(ROW_MAJOR, m, n, alpha, x, incx, y, incy, a, lda);
}

void kin_blas_dger(const struct kin_blas *b, int m, int n, double alpha, const double *x, int incx, const double *y,
	int incy, double *a, int lda) {
	b->dger(ROW_MAJOR, m, n, alpha, x, incx, y, incy, a, lda);
}

float kin_blas_sdot(const struct kin_blas *b, int n, const float *x, int incx, const float *y, int incy) {
	return b->sdot(n, x, incx, y, incy);
}

double kin_blas_ddot(const struct kin_blas *b, int n, const double *x, int incx, const double *y, int incy) {
	return b->ddot(n, x, incx, y, incy);
}

void kin_blas_saxpy(const struct kin_blas *b, int n, float alpha, const float *x, int incx, float *y, int incy) {
	b->saxpy(n, alpha, x, incx, y, incy);
}

void kin_blas_daxpy(const struct kin_blas *b, int n, double alpha, const double *x, int incx, double *y, int incy) {
	b->daxpy(n, alpha, x, incx, y, incy);
}
