// Pooling over 2×2 windows, 8 at a time. The remaining windows of a row are done one by one.

// larger replaces the best value so far, and its place, by v in each lane in which v is larger.
static inline void larger(__m256 *best, __m256i *place, __m256 v, int at) {
	__m256 m = _mm256_cmp_ps(v, *best, _CMP_GT_OQ);
	*best = _mm256_blendv_ps(*best, v, m);
	*place = _mm256_blendv_epi8(*place, _mm256_set1_epi32(at), _mm256_castps_si256(m));
}

// evens and odds take every second one of 16 values.
static inline __m256 in_order(__m256 v) {
	return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
}
static inline __m256 evens(__m256 a, __m256 b) { return in_order(_mm256_shuffle_ps(a, b, 0x88)); }
static inline __m256 odds(__m256 a, __m256 b) { return in_order(_mm256_shuffle_ps(a, b, 0xdd)); }

static inline void pool2_one(float *y, uint8_t *at, const float *top, const float *bottom, float bias, int relu) {
	const float v[4] = {top[0], top[1], bottom[0], bottom[1]};
	float best = v[0];
	int place = 0;
	for (int k = 1; k < 4; k++)
		if (v[k] > best) {
			best = v[k];
			place = k;
		}
	best += bias;
	*at = (uint8_t)(relu && best <= 0 ? kin_nn_blocked : place);
	*y = relu ? rectified(best) : best;
}

static void pool2(float *y, uint8_t *at, const float *plane, size_t stride, size_t rows, size_t cols, float bias, int relu) {
	for (size_t r = 0; r < rows; r++, plane += 2 * stride, y += cols, at += cols) {
		const float *bottom = plane + stride;
		size_t j = 0;
		for (; j + 8 <= cols; j += 8) {
			__m256 t0 = _mm256_loadu_ps(plane + 2 * j), t1 = _mm256_loadu_ps(plane + 2 * j + 8);
			__m256 b0 = _mm256_loadu_ps(bottom + 2 * j), b1 = _mm256_loadu_ps(bottom + 2 * j + 8);
			__m256 best = evens(t0, t1);
			__m256i place = _mm256_setzero_si256();
			larger(&best, &place, odds(t0, t1), 1);
			larger(&best, &place, evens(b0, b1), 2);
			larger(&best, &place, odds(b0, b1), 3);
			best = _mm256_add_ps(best, _mm256_set1_ps(bias));
			if (relu) {
				__m256 dead = _mm256_cmp_ps(best, _mm256_setzero_ps(), _CMP_LE_OQ);
				best = _mm256_andnot_ps(dead, best);
				place = _mm256_blendv_epi8(place, _mm256_set1_epi32(kin_nn_blocked), _mm256_castps_si256(dead));
			}
			_mm256_storeu_ps(y + j, best);
			__m128i words = _mm_packus_epi32(_mm256_castsi256_si128(place), _mm256_extracti128_si256(place, 1));
			_mm_storel_epi64((__m128i *)(at + j), _mm_packus_epi16(words, words));
		}
		for (; j < cols; j++)
			pool2_one(y + j, at + j, plane + 2 * j, bottom + 2 * j, bias, relu);
	}
}

static float unpool2(float *plane, const uint8_t *at, const float *dy, size_t stride, size_t rows, size_t cols) {
	__m256 sum = _mm256_setzero_ps();
	float rest = 0;
	for (size_t r = 0; r < rows; r++, plane += 2 * stride, at += cols, dy += cols) {
		float *bottom = plane + stride;
		size_t j = 0;
		for (; j + 8 <= cols; j += 8) {
			__m256 v = _mm256_loadu_ps(dy + j), part[4];
			__m256i place = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(at + j)));
			for (int k = 0; k < 4; k++) {
				part[k] = _mm256_and_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(place, _mm256_set1_epi32(k))), v);
				sum = _mm256_add_ps(sum, part[k]);
			}
			for (int k = 0; k < 2; k++) {
				float *row = k ? bottom : plane;
				__m256 low = _mm256_unpacklo_ps(part[2 * k], part[2 * k + 1]), high = _mm256_unpackhi_ps(part[2 * k], part[2 * k + 1]);
				_mm256_storeu_ps(row + 2 * j, _mm256_permute2f128_ps(low, high, 0x20));
				_mm256_storeu_ps(row + 2 * j + 8, _mm256_permute2f128_ps(low, high, 0x31));
			}
		}
		for (; j < cols; j++) {
			plane[2 * j] = at[j] == 0 ? dy[j] : 0;
			plane[2 * j + 1] = at[j] == 1 ? dy[j] : 0;
			bottom[2 * j] = at[j] == 2 ? dy[j] : 0;
			bottom[2 * j + 1] = at[j] == 3 ? dy[j] : 0;
			rest += at[j] == kin_nn_blocked ? 0 : dy[j];
		}
	}
	return v_sum(sum) + rest;
}
