// Sums in an order that shapes alone decide.
#pragma once
#include "kdev.cuh"

DEVICE f32 sum_of_warp(f32 v) {
#pragma unroll
	for (int w = 16; w > 0; w /= 2) v = add(v, shuffle_xor(v, w));
	return v;
}

// Calls each(i) for from, from + step and so on up to the end, for 16 values of i and then for 4 with nothing in between that decides: what they read
// is on its way at once.
template <int AT_ONCE = 16, class Each> DEVICE void stride(u64 from, u64 end, u64 step, Each each) {
	u64 i = from;
	for (; i + (AT_ONCE - 1) * step < end; i += AT_ONCE * step)
#pragma unroll
		for (int k = 0; k < AT_ONCE; k++) each(i + k * step);
	if constexpr (AT_ONCE > 1) stride<AT_ONCE / 4>(i, end, step, each);
}
