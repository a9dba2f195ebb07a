// Chunks to exactly what is not +0 in them, for gradients that touch few rows: the twin of kernels/compress/sparse.go. How long a payload is differs from
// gradient to gradient, from two bytes to more than the chunk has, so the block that has written one also sends it, in words of 16 bytes: what no
// payload needs does not go over the link.
#include "chosen.cuh"

struct Named {
	Chosen chunk;
	u8 *to; // pinned memory of the host; 0: the payload stays where it is
};

struct AllNamed {
	const Named *chunks;
};

enum { THREADS = 256, WARPS = THREADS / 32 };

struct Sums {
	u32 of_warp[2][WARPS];
};

// Writes the index of all that is not +0, of which it returns the number. −0 is sent too.
DEVICE u32 find(const Chosen &a, Sums &sh) {
	u32 count = 0, turn = 0;
	for (u64 lo = 0; lo < a.n; lo += 4 * THREADS) {
		const u64 i = lo + 4 * THREAD;
		Four y = Four();
		if (i < a.n) {
			y = load(a.x, i);
			if (a.carry) {
				const Four c = load(a.carry, i);
#pragma unroll
				for (int e = 0; e < 4; e++) y.v[e] = add(y.v[e], c.v[e]);
			}
			cut(y, i, a.n);
			store(a.decoded, i, a.n, y);
			if (a.residual) store(a.residual, i, a.n, Four());
		}
		u32 mine = 0, all;
#pragma unroll
		for (int e = 0; e < 4; e++) mine += bits_of(y.v[e]) != 0;
		u32 at = count + before(mine, sh.of_warp[turn], all);
		turn ^= 1;
#pragma unroll
		for (int e = 0; e < 4; e++)
			if (bits_of(y.v[e]) != 0) a.index[at++] = (u32)(i + e);
		count += all;
	}
	return count;
}

// Copies a payload, with up to 15 bytes behind it that mean nothing.
DEVICE void send(const Chosen &a, u8 *to) {
	const u64 bytes = *a.bytes;
	for (u64 i = 16 * (u64)THREAD; i < bytes; i += 16 * THREADS) *(Four *)(to + i) = *(const Four *)(a.payload + i);
}

// Encodes a chunk for each block.
KERNEL(named_encode, AllNamed, THREADS) {
	SHARED(Sums, sh);
	const Named c = a.chunks[BLOCK]; // a copy: no store can change it
	const u32 count = find(c.chunk, sh);
	sync(); // the index and what is sent are whole
	write_payload(c.chunk, count, sh.of_warp);
	sync(); // the payload is whole
	if (c.to) send(c.chunk, c.to);
}
