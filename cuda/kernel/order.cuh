// Sums of float32 whose order depends on shapes alone. So they have the same bits in every run.
#pragma once
#include "kdev.cuh"

// Returns the sum over the lanes of a warp, to every lane. All lanes must call it.
DEVICE f32 sum_of_warp(f32 v) {
#pragma unroll
	for (int w = 16; w > 0; w /= 2) v = add(v, shuffle_xor(v, w));
	return v;
}

// Calls each(i) for i = from, from + step, and so on while i < end, in this order. The calls are
// unrolled in groups of 16, then of 4, then one at a time. Nothing in a group branches, so the
// compiler can issue the loads of a whole group before it uses the first.
template <int AT_ONCE = 16, class Each> DEVICE void stride(u64 from, u64 end, u64 step, Each each) {
	u64 i = from;
	for (; i + (AT_ONCE - 1) * step < end; i += AT_ONCE * step)
#pragma unroll
		for (int k = 0; k < AT_ONCE; k++) each(i + k * step);
	if constexpr (AT_ONCE > 1) stride<AT_ONCE / 4>(i, end, step, each);
}
