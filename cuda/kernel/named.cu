// Encodes exactly the values of a chunk that are not +0, in Sparse32, for gradients that touch few
// rows. Twin of kernels/compress/sparse.go.
//
// A block takes one chunk, since a prefix sum over the whole chunk says where each value goes. The
// length of a payload is known only at the end: it has at least two bytes, and may be longer than
// the chunk. So the block itself copies the payload to pinned memory of the host, and only bytes
// that the payload has go over the link.
#include "chosen.cuh"

struct Named {
	Chosen chunk; // width is 4, and k is not used
	u8 *to;       // where the payload goes in pinned memory of the host; 0: it is not copied
};

struct AllNamed {
	const Named *chunks; // one for each block
};

enum { THREADS = 256, WARPS = THREADS / 32 };

// Shared memory for the scans, which alternate between the two arrays.
struct Sums {
	u32 of_warp[2][WARPS];
};

// Writes to a.index the indices of the values that are not +0, and returns their number. −0 counts.
// It also writes decoded, which is y itself, and residual, which is +0 everywhere. In each round, a
// thread takes four consecutive values, and a prefix sum over the block says where their indices
// go.
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

// Copies a payload to the host, 16 bytes for each thread at a time. It also copies up to 15 bytes
// behind the payload, which mean nothing.
DEVICE void send(const Chosen &a, u8 *to) {
	const u64 bytes = *a.bytes;
	for (u64 i = 16 * (u64)THREAD; i < bytes; i += 16 * THREADS) *(Four *)(to + i) = *(const Four *)(a.payload + i);
}

// Encodes a chunk for each block. Without the first barrier, threads would read indices and values
// that other threads have not written yet. Without the second, they would send bytes that are not
// written yet, and as many as an old length says.
KERNEL(named_encode, AllNamed, THREADS) {
	SHARED(Sums, sh);
	const Named c = a.chunks[BLOCK]; // a copy in registers, which no store can alias
	const u32 count = find(c.chunk, sh);
	sync(); // the index and what is sent are whole
	write_payload(c.chunk, count, sh.of_warp);
	sync(); // the payload is whole
	if (c.to) send(c.chunk, c.to);
}
