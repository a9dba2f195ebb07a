// Ordered sums of products over a chunk: squared norms, distances and the other by-products of a
// step. Value i of the chunk belongs to float64 lane i mod 16, and each lane adds its values in
// order of i. Twin of kernels/sums.go.
//
// Only 16 threads can add, because an addition in a lane waits for the one before. So the threads
// of the block first write the products of a tile to shared memory, in float64, which holds a
// product of two float32 exactly. The 16 threads then only load and add: conversions to float64 are
// slow.
#pragma once
#include "kdev.cuh"

// Returns where the product of value v of a tile lies in shared memory. A thread stores the
// products of four consecutive values, 32 bytes, in two stores of 16. Without the exclusive or,
// threads t and t + 4 of a store would hit the same banks.
DEVICE u32 place(u32 v) { return v ^ (v >> 3 & 2); }

struct alignas(16) Two {
	f64 v[2];
};

// Stores the products of four consecutive values, x·y. place is that of the first, from place().
DEVICE void put(f64 *tile, u32 place, const Four &x, const Four &y) {
#pragma unroll
	for (int h = 0; h < 4; h += 2) {
		Two t;
#pragma unroll
		for (int e = 0; e < 2; e++) t.v[e] = mul((f64)x.v[h + e], (f64)y.v[h + e]);
		*(Two *)(tile + (place ^ h)) = t;
	}
}

// Adds to lane l, in order, the products of the values l, l + 16, l + 32 and so on of a tile. The
// tile holds `values` values, or TILE if that is less.
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
