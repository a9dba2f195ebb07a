// The operations on single values, once for all instruction sets, as loops that the compiler vectorizes. The file
// that includes this one defines NAME(f), the exported name of f, and turns contraction off.

// rectified is max(0, v). NaN is not below 0, so it stays. −0 becomes +0.
static inline float rectified(float v) { return v <= 0 ? 0 : v; }

void NAME(add_bias)(float *y, size_t stride, size_t rows, const float *restrict bias, size_t n, int relu) {
	for (size_t r = 0; r < rows; r++) {
		float *restrict row = y + r * stride;
		if (relu)
			for (size_t j = 0; j < n; j++)
				row[j] = rectified(row[j] + bias[j]);
		else
			for (size_t j = 0; j < n; j++)
				row[j] += bias[j];
	}
}

void NAME(relu)(float *y, const float *x, size_t n) {
	for (size_t i = 0; i < n; i++)
		y[i] = rectified(x[i]);
}

void NAME(relu_gradient)(float *dx, const float *y, const float *dy, size_t n) {
	for (size_t i = 0; i < n; i++)
		dx[i] = y[i] == 0 ? 0 : dy[i];
}

void NAME(multiply)(float *z, const float *x, const float *y, size_t n) {
	for (size_t i = 0; i < n; i++)
		z[i] = x[i] * y[i];
}

void NAME(add_row_sums)(float *restrict sum, const float *restrict x, size_t n, size_t rows) {
	for (size_t r = 0; r < rows; r++, x += n)
		for (size_t j = 0; j < n; j++)
			sum[j] += x[j];
}
