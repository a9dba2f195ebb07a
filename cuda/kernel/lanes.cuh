// By-products: sums of products over a chunk, in float64, in 16 lanes in the order of the values. All threads of a block make the products of a tile, which
// float64 holds exactly, so that the few threads that add them up have nothing else to do: converting to float64 is slow.
#pragma once
#include "kdev.cuh"

// Where the product of value v of a tile stands. Threads that write have four values each; the exclusive or keeps them in different banks.
DEVICE u32 place(u32 v) { return v ^ (v >> 3 & 2); }

struct alignas(16) Two {
	f64 v[2];
};

// Writes what four values add, x·y, of which the first has this place.
DEVICE void put(f64 *tile, u32 place, const Four &x, const Four &y) {
#pragma unroll
	for (int h = 0; h < 4; h += 2) {
		Two t;
#pragma unroll
		for (int e = 0; e < 2; e++) t.v[e] = mul((f64)x.v[h + e], (f64)y.v[h + e]);
		*(Two *)(tile + (place ^ h)) = t;
	}
}

// Adds to lane l what it has of the first values of a tile, in order.
template <u32 TILE> DEVICE void add_lane(f64 &lane, const f64 *tile, u32 l, u64 values) {
	const f64 *const even = tile + place(l), *const odd = tile + place(l + 16);
	if (values >= TILE) {
#pragma unroll 8
		for (u32 i = 0; i < TILE; i += 32) {
			lane = add(lane, even[i]);
			lane = add(lane, odd[i]);
		}
		return;
	}
	for (u32 i = l; i < values; i += 16) lane = add(lane, tile[place(i)]);
}
