// Four by four values with the vectors of every amd64.
typedef __m128 Q;
#define q_load(p) _mm_loadu_ps(p)
#define q_store(p, q) _mm_storeu_ps(p, q)
#define q_turn(q) _MM_TRANSPOSE4_PS((q)[0], (q)[1], (q)[2], (q)[3])
