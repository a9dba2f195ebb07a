// Pooling over 2×2 windows, 16 at a time. Lanes past the end of a row are masked.

// lanes returns the mask of the first n lanes, all of them if n is 16 or more.
static inline __mmask16 lanes(ptrdiff_t n) { return n >= 16 ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1); }

// larger replaces the best value so far, and its place, by v in each lane in which v is larger.
static inline void larger(__m512 *best, __m512i *place, __m512 v, int at) {
	__mmask16 m = _mm512_cmp_ps_mask(v, *best, _CMP_GT_OQ);
	*best = _mm512_mask_mov_ps(*best, m, v);
	*place = _mm512_mask_mov_epi32(*place, m, _mm512_set1_epi32(at));
}

static void pool2(float *y, uint8_t *at, const float *plane, size_t stride, size_t rows, size_t cols, float bias, int relu) {
	const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
	const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
	for (size_t r = 0; r < rows; r++, plane += 2 * stride, y += cols, at += cols)
		for (size_t j = 0; j < cols; j += 16) {
			ptrdiff_t left = (ptrdiff_t)(cols - j);
			__mmask16 first = lanes(2 * left), second = lanes(2 * left - 16), out = lanes(left);
			const float *top = plane + 2 * j, *bottom = top + stride;
			__m512 t0 = _mm512_maskz_loadu_ps(first, top), t1 = _mm512_maskz_loadu_ps(second, top + 16);
			__m512 b0 = _mm512_maskz_loadu_ps(first, bottom), b1 = _mm512_maskz_loadu_ps(second, bottom + 16);
			__m512 best = _mm512_permutex2var_ps(t0, even, t1);
			__m512i place = _mm512_setzero_si512();
			larger(&best, &place, _mm512_permutex2var_ps(t0, odd, t1), 1);
			larger(&best, &place, _mm512_permutex2var_ps(b0, even, b1), 2);
			larger(&best, &place, _mm512_permutex2var_ps(b0, odd, b1), 3);
			best = _mm512_add_ps(best, _mm512_set1_ps(bias));
			if (relu) {
				__mmask16 dead = _mm512_cmp_ps_mask(best, _mm512_setzero_ps(), _CMP_LE_OQ);
				best = _mm512_mask_mov_ps(best, dead, _mm512_setzero_ps());
				place = _mm512_mask_mov_epi32(place, dead, _mm512_set1_epi32(kin_nn_blocked));
			}
			_mm512_mask_storeu_ps(y + j, out, best);
			_mm512_mask_cvtepi32_storeu_epi8(at + j, out, place);
		}
}

static float unpool2(float *plane, const uint8_t *at, const float *dy, size_t stride, size_t rows, size_t cols) {
	const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
	const __m512i high = _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
	__m512 sum = _mm512_setzero_ps();
	for (size_t r = 0; r < rows; r++, plane += 2 * stride, at += cols, dy += cols)
		for (size_t j = 0; j < cols; j += 16) {
			ptrdiff_t left = (ptrdiff_t)(cols - j);
			__mmask16 first = lanes(2 * left), second = lanes(2 * left - 16), in = lanes(left);
			__m512 v = _mm512_maskz_loadu_ps(in, dy + j), part[4];
			__m512i place = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(in, at + j));
			for (int k = 0; k < 4; k++) {
				part[k] = _mm512_maskz_mov_ps(_mm512_cmpeq_epi32_mask(place, _mm512_set1_epi32(k)), v);
				sum = _mm512_add_ps(sum, part[k]);
			}
			float *top = plane + 2 * j, *bottom = top + stride;
			_mm512_mask_storeu_ps(top, first, _mm512_permutex2var_ps(part[0], low, part[1]));
			_mm512_mask_storeu_ps(top + 16, second, _mm512_permutex2var_ps(part[0], high, part[1]));
			_mm512_mask_storeu_ps(bottom, first, _mm512_permutex2var_ps(part[2], low, part[3]));
			_mm512_mask_storeu_ps(bottom + 16, second, _mm512_permutex2var_ps(part[2], high, part[3]));
		}
	return _mm512_reduce_add_ps(sum);
}
