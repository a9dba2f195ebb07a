// What both instruction sets of amd64 share: four by four values, and the sum of eight.
typedef __m128 Q;
#define q_load(p) _mm_loadu_ps(p)
#define q_store(p, q) _mm_storeu_ps(p, q)
#define q_turn(q) _MM_TRANSPOSE4_PS((q)[0], (q)[1], (q)[2], (q)[3])

static inline float total_of_8(__m256 v) {
	__m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
	h = _mm_add_ps(h, _mm_movehl_ps(h, h));
	return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}
