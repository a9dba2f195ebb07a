//go:build cgo && (amd64 || arm64) && !windows

#include <string.h>

#include "simd_encode.h"

#if defined(__x86_64__)
#define DISPATCH(isa, call) ((isa) == kin_avx512 ? kin_avx512_##call : kin_avx2_##call)
#else
#define DISPATCH(isa, call) ((void)(isa), kin_neon_##call)
#endif

void kin_encode(int isa, int to, kin_feed f) {
	switch (to) {
	case kin_to_bf16:
		DISPATCH(isa, to_bf16(&f));
		break;
	case kin_to_fp16:
		DISPATCH(isa, to_fp16(&f));
		break;
	case kin_to_int8:
		DISPATCH(isa, to_int8(&f));
		break;
	case kin_to_int8_stochastic:
		DISPATCH(isa, to_int8_stochastic(&f));
		break;
	case kin_to_sign:
		DISPATCH(isa, to_sign(&f));
		break;
	case kin_to_int4:
		DISPATCH(isa, to_int4(&f));
		break;
	}
}

// Selection. A sample gives a magnitude that a few more than k values reach. One pass over all values
// collects these values, and the k-th largest magnitude of all is the k-th largest among them. If the
// sample misled and fewer than k values were collected, all values are collected. So the selection
// depends only on the values.

enum { sample_size = 1024, sampled_from = 8 * sample_size, buckets = 1024, tables = 4 };

// kth returns three numbers for the n words of m, which are all at least base, with 0 < k <= n: the k-th
// largest word, how many words are equal to it, and how many of these are among the k largest. It finds
// the bucket that contains the word, keeps only the words of that bucket, and repeats.
static uint32_t kth(int isa, uint32_t *m, size_t n, size_t k, uint32_t base, size_t *equal, size_t *ties) {
	uint32_t most = base;
	for (size_t i = 0; i < n; i++)
		most = m[i] > most ? m[i] : most;
	uint32_t range = most - base;
	while (range > 0) {
		int shift = 0;
		while (range >> shift >= buckets)
			shift++;
		uint32_t count[tables][buckets]; // one counter would make successive equal words wait for one another
		memset(count, 0, sizeof count);
		size_t i = 0;
		for (; i + tables <= n; i += tables)
			for (int t = 0; t < tables; t++)
				count[t][(m[i + t] - base) >> shift]++;
		for (; i < n; i++)
			count[0][(m[i] - base) >> shift]++;
		for (int b = 0; b < buckets; b++)
			count[0][b] += count[1][b] + count[2][b] + count[3][b];
		uint32_t b = range >> shift;
		for (; count[0][b] < k; b--)
			k -= count[0][b];
		base += b << shift;
		range = ((uint32_t)1 << shift) - 1;
		n = DISPATCH(isa, keep(m, m, n, base, range));
	}
	*equal = n;
	*ties = k;
	return base;
}

static uint32_t bits_at(const kin_feed *f, size_t i) {
	float y = f->carry ? f->x[i] + f->carry[i] : f->x[i];
	uint32_t b;
	memcpy(&b, &y, sizeof b);
	return b;
}

// enough returns a magnitude that probably at least k values reach, but not many more.
static uint32_t enough(int isa, const kin_feed *f, size_t k, uint32_t *work) {
	if (f->n < sampled_from)
		return 0;
	size_t expected = sample_size * k / f->n, deviation = 0;
	while (deviation * deviation < expected)
		deviation++;
	size_t rank = expected + 3 * deviation + 4;
	if (rank > sample_size)
		return 0;
	size_t stride = f->n / sample_size;
	for (size_t i = 0; i < sample_size; i++) { // not every stride-th value: all of these may be from one column
		size_t within = ((uint64_t)((uint32_t)i * 0x9e3779b9u) * stride) >> 32;
		work[i] = bits_at(f, i * stride + within) & 0x7fffffff;
	}
	size_t equal, ties;
	return kth(isa, work, sample_size, rank, 0, &equal, &ties);
}

// collect does what the one in simd_encode_body.h does, for any n.
static size_t collect(int isa, const kin_feed *f, uint32_t least, uint32_t *index, uint32_t *bits) {
	kin_feed whole = *f;
	whole.n = f->n / kin_lanes * kin_lanes;
	size_t found = DISPATCH(isa, collect(&whole, least, index, bits));
	for (size_t i = whole.n; i < f->n; i++) {
		uint32_t b = bits_at(f, i);
		if (f->residual)
			memcpy(f->residual + i, &b, sizeof b);
		index[found] = (uint32_t)i;
		bits[found] = b;
		found += (b & 0x7fffffff) >= least;
	}
	return found;
}

// keep_first_ties keeps k words: those whose magnitude is above least, and the first ties words whose magnitude is least.
static void keep_first_ties(uint32_t *index, uint32_t *bits, size_t k, uint32_t least, size_t ties) {
	size_t kept = 0;
	for (size_t i = 0; kept < k; i++) {
		uint32_t m = bits[i] & 0x7fffffff;
		size_t tie = m == least && ties > 0;
		index[kept] = index[i];
		bits[kept] = bits[i];
		kept += (m > least) | tie;
		ties -= tie;
	}
}

void kin_select(int isa, kin_feed f, size_t k, int32_t *index, float *value) {
	size_t room = f.n + kin_select_slack;
	uint32_t *at = (uint32_t *)(void *)f.scales, *bits = at + room, *work = bits + room;
	uint32_t least = enough(isa, &f, k, work);
	size_t found = collect(isa, &f, least, at, bits);
	if (found < k) {
		kin_feed again = f;
		if (f.residual) { // the residual has the sums now
			again.x = f.residual;
			again.carry = again.residual = NULL;
		}
		least = 0;
		found = collect(isa, &again, least, at, bits);
	}
	for (size_t i = 0; i < found; i++)
		work[i] = bits[i] & 0x7fffffff;
	size_t equal, ties;
	least = kth(isa, work, found, k, least, &equal, &ties);
	if (equal == ties)
		DISPATCH(isa, keep(at, bits, found, least, 0x7fffffff - least));
	else
		keep_first_ties(at, bits, k, least, ties);
	memcpy(index, at, k * sizeof *index);
	memcpy(value, bits, k * sizeof *value);
	if (f.residual)
		for (size_t j = 0; j < k; j++)
			f.residual[index[j]] = 0;
}
