// A BLAS found by the dynamic loader: the handle, and the CBLAS functions we call.
#ifndef KIN_BLAS_DLOPEN_H
#define KIN_BLAS_DLOPEN_H

// CBLAS passes enumerations as int: row-major 101, no transpose 111, transpose 112.
struct kin_blas {
	void *handle;
	void (*sgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
	void (*dgemm)(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);
	void (*sgemv)(int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
	void (*dgemv)(int, int, int, int, double, const double *, int, const double *, int, double, double *, int);
	void (*sger)(int, int, int, float, const float *, int, const float *, int, float *, int);
	void (*dger)(int, int, int, double, const double *, int, const double *, int, double *, int);
	float (*sdot)(int, const float *, int, const float *, int);
	double (*ddot)(int, const double *, int, const double *, int);
	void (*saxpy)(int, float, const float *, int, float *, int);
	void (*daxpy)(int, double, const double *, int, double *, int);
};

// kin_blas_load fills b from the library in file. It returns 0, or 1 if there is no such library, or 2 if the
// library lacks a function. message receives the reason, cut to size bytes.
int kin_blas_load(struct kin_blas *b, const char *file, char *message, int size);

// kin_blas_openblas and kin_blas_mkl set the number of threads of the library in b, and write its version. For
// OpenBLAS, they also write the processor whose kernels it runs: "OpenBLAS 0.3.21 (SkylakeX)".
void kin_blas_openblas(const struct kin_blas *b, int threads, char *version, int size);
void kin_blas_mkl(const struct kin_blas *b, int threads, char *version, int size);

void kin_blas_sgemm(const struct kin_blas *b, int ta, int tb, int m, int n, int k, float alpha, const float *x, int ldx,
	const float *y, int ldy, float beta, float *z, int ldz);
void kin_blas_dgemm(const struct kin_blas *b, int ta, int tb, int m, int n, int k, double alpha, const double *x, int ldx,
	const double *y, int ldy, double beta, double *z, int ldz);
void kin_blas_sgemv(const struct kin_blas *b, int t, int m, int n, float alpha, const float *a, int lda, const float *x,
	int incx, float beta, float *y, int incy);
void kin_blas_dgemv(const struct kin_blas *b, int t, int m, int n, double alpha, const double *a, int lda, const double *x,
	int incx, double beta, double *y, int incy);
void kin_blas_sger(const struct kin_blas *b, int m, int n, float alpha, const float *x, int incx, const float *y, int incy,
	float *a, int lda);
void kin_blas_dger(const struct kin_blas *b, int m, int n, double alpha, const double *x, int incx, const double *y,
	int incy, double *a, int lda);
float kin_blas_sdot(const struct kin_blas *b, int n, const float *x, int incx, const float *y, int incy);
double kin_blas_ddot(const struct kin_blas *b, int n, const double *x, int incx, const double *y, int incy);
void kin_blas_saxpy(const struct kin_blas *b, int n, float alpha, const float *x, int incx, float *y, int incy);
void kin_blas_daxpy(const struct kin_blas *b, int n, double alpha, const double *x, int incx, double *y, int incy);

#endif
