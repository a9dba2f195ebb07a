// The encoders of encode.go and select.go, for each instruction set from simd_encode_body.h.
#ifndef KIN_SIMD_ENCODE_H
#define KIN_SIMD_ENCODE_H

#include "simd.h"

enum { kin_to_bf16 = 0, kin_to_fp16, kin_to_int8, kin_to_int8_stochastic, kin_to_sign, kin_to_int4 };

// kin_feed says which n values are encoded, and where to. It is passed by value for the same reason as kin_step.
typedef struct {
	const float *x, *carry; // carry may be NULL
	float *residual;        // may be NULL
	uint8_t *scales;        // of Int8, Int4 and Sign
	uint8_t *codes;
	size_t n;      // BF16, FP16: a multiple of kin_lanes; Int8, Int4, Sign: of kin_block
	uint32_t a, b; // the key of random rounding
	int past;      // write the residual past the caches, if it is aligned and carry is not NULL
} kin_feed;

// kin_encode writes the payload of f in the encoding that to names (kin_to_bf16 and so on), and its residual.
void kin_encode(int isa, int to, kin_feed f);

enum { kin_select_slack = 16 };

// kin_select selects the k largest magnitudes of f and writes them to index and value. It uses scales as scratch
// memory of 3·(n + kin_select_slack) words. If f has a carry, it also has a residual. n is any number ≥ k.
void kin_select(int isa, kin_feed f, size_t k, int32_t *index, float *value);

#define KIN_DECLARE_ENCODERS(isa) \
	void isa##_to_bf16(const kin_feed *f); \
	void isa##_to_fp16(const kin_feed *f); \
	void isa##_to_int8(const kin_feed *f); \
	void isa##_to_int8_stochastic(const kin_feed *f); \
	void isa##_to_sign(const kin_feed *f); \
	void isa##_to_int4(const kin_feed *f); \
	size_t isa##_collect(const kin_feed *f, uint32_t least, uint32_t *index, uint32_t *bits); \
	size_t isa##_keep(uint32_t *index, uint32_t *bits, size_t n, uint32_t least, uint32_t span);

KIN_DECLARE_ENCODERS(kin_avx2)
KIN_DECLARE_ENCODERS(kin_avx512)
KIN_DECLARE_ENCODERS(kin_neon)

#endif
