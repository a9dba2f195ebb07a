// Runs the kernels on a processor, with a fibre for each thread of a block, one block after
// another. Barriers, shuffles and ballots are meetings: a fibre that comes to one waits until all
// others that must be there have come. A meeting that can never be complete is an error that names
// the kernel. The shared memory of a block is poisoned before each block.
//
// A schedule is the order in which warps run. 0 runs the first warp that can run, as far as it
// goes; 1 runs the last one; 2 takes turns; others draw at random. A missing barrier shows in some
// of them.
//
// This cannot show races between blocks, which ptx.h can, and it says nothing about time.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#include "round.h"

namespace emu {

struct Dim {
	unsigned x, y, z;
};

struct Thread {
	unsigned thread, lane, warp;
};

const Thread &self();
Dim block();
Dim grid();
void *shared(size_t size);
void barrier();
// Exchanges bits with the lanes of the warp. Returns an array of the bits that all 32 lanes gave.
const uint64_t *meet(uint64_t bits);
void meet_again();

// Runs the kernel. Returns 0, or a description of its error.
const char *launch(Dim grid, Dim block, const std::function<void()> &kernel, unsigned schedule);

struct Kernel {
	const char *name;
	void (*run)(const void *args);
	size_t args;
	unsigned threads;
	const Kernel *next;
	Kernel(const char *name, void (*run)(const void *), size_t args, unsigned threads);
};
const Kernel *find(const char *name);

template <class T> uint64_t pack(T v) {
	static_assert(sizeof v <= 8, "a shuffle moves eight bytes at most");
	uint64_t b = 0;
	memcpy(&b, &v, sizeof v);
	return b;
}

template <class T> T unpack(uint64_t b) {
	T v;
	memcpy(&v, &b, sizeof v);
	return v;
}

template <class T> T take(T v, int lane) {
	const uint64_t *all = meet(pack(v));
	T r = lane >= 0 && lane < 32 ? unpack<T>(all[lane]) : v;
	meet_again();
	return r;
}

} // namespace emu

#define KERNEL(name, args, threads) \
	static void name(const args &a); \
	static emu::Kernel kernel_##name(#name, [](const void *p) { name(*(const args *)p); }, sizeof(args), threads); \
	static void name(const args &a)
#define KERNEL_CROWD(name, args, threads, blocks) KERNEL(name, args, threads)
#define KERNEL_OF(name, args, threads, body) \
	KERNEL(name, args, threads) { body(a); }
#define DEVICE static inline
#define DEVICE_MEMBER inline
#define SHARED(type, name) type &name = *(type *)emu::shared(sizeof(type))

#define IN_GLOBAL(p) ((void)(p))

#define THREAD (emu::self().thread)
#define BLOCK ((u64)emu::block().x)
#define BLOCK_Y ((u64)emu::block().y)
#define BLOCK_Z ((u64)emu::block().z)
#define BLOCKS ((u64)emu::grid().x)

DEVICE void sync() { emu::barrier(); }
DEVICE void sync_warp() {
	emu::meet(0);
	emu::meet_again();
}
template <class T> DEVICE T shuffle(T v, int lane) { return emu::take(v, lane & 31); }
template <class T> DEVICE T shuffle_down(T v, int by) { return emu::take(v, (int)emu::self().lane + by); }
template <class T> DEVICE T shuffle_up(T v, int by) { return emu::take(v, (int)emu::self().lane - by); }
template <class T> DEVICE T shuffle_xor(T v, int by) { return emu::take(v, (int)emu::self().lane ^ by); }
DEVICE u32 ballot(bool p) {
	const uint64_t *all = emu::meet(p);
	u32 r = 0;
	for (int l = 0; l < 32; l++) r |= (u32)all[l] << l;
	emu::meet_again();
	return r;
}
DEVICE u32 atomic_add(u32 *p, u32 v) {
	u32 old = *p;
	*p = old + v;
	return old;
}
DEVICE u64 atomic_min(u64 *p, u64 v) {
	u64 old = *p;
	*p = old < v ? old : v;
	return old;
}

DEVICE f32 mul(f32 a, f32 b) { return a * b; }
DEVICE f32 add(f32 a, f32 b) { return a + b; }
DEVICE f32 sub(f32 a, f32 b) { return a - b; }
DEVICE f32 quotient(f32 a, f32 b) { return a / b; }
DEVICE f32 root(f32 a) { return sqrtf(a); }
DEVICE f32 fused(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
DEVICE f64 mul(f64 a, f64 b) { return a * b; }
DEVICE f64 add(f64 a, f64 b) { return a + b; }
DEVICE f64 sub(f64 a, f64 b) { return a - b; }
DEVICE f64 quotient(f64 a, f64 b) { return a / b; }
DEVICE f64 root(f64 a) { return sqrt(a); }
DEVICE f32 narrow(f64 a) { return (f32)a; }
DEVICE u32 bits_of(f32 v) { return (u32)emu::pack(v); }
DEVICE f32 from_bits(u32 b) { return emu::unpack<f32>(b); }
DEVICE f32 floor_of(f32 v) { return floorf(v); }
DEVICE f32 exp_of(f32 v) { return expf(v); }
DEVICE f64 exp_of(f64 v) { return exp(v); }
DEVICE f64 log_of(f64 v) { return log(v); }
DEVICE int count_bits(u32 v) { return __builtin_popcount(v); }
DEVICE int signed_byte(u32 v, u32 i) { return (signed char)(v >> 8 * i); }

// The matrix units. Products of rounded factors are exact in float32. The order in which a unit
// adds them up, and how it rounds in between, is not specified. Here it is the order of k, with
// each sum rounded to nearest; tests allow for other orders.
DEVICE u32 round_tf32(f32 v) { return emu::nearest_tf32(bits_of(v)); }
DEVICE u32 pair_bf16(f32 low, f32 high) { return emu::nearest_bf16(bits_of(low)) | emu::nearest_bf16(bits_of(high)) << 16; }

// The words of all lanes, from a and b.
struct Fragments {
	u32 a[4][32], b[2][32];
	Fragments(const u32 (&mine_a)[4], const u32 (&mine_b)[2]) {
		gather(a[0], a[1], mine_a[0], mine_a[1]);
		gather(a[2], a[3], mine_a[2], mine_a[3]);
		gather(b[0], b[1], mine_b[0], mine_b[1]);
	}
	static void gather(u32 (&x)[32], u32 (&y)[32], u32 mine_x, u32 mine_y) {
		const uint64_t *all = emu::meet((uint64_t)mine_y << 32 | mine_x);
		for (int l = 0; l < 32; l++) x[l] = (u32)all[l], y[l] = (u32)(all[l] >> 32);
		emu::meet_again();
	}
};

// Adds the products of the lane's two rows and two columns, of eight words each, to its four sums,
// in order of k.
template <class Value> DEVICE void multiply_fragments(f32 (&c)[4], const Fragments &f, int values, Value value) {
	const int g = (int)emu::self().lane / 4, t = (int)emu::self().lane % 4;
	for (int e = 0; e < 4; e++)
		for (int k = 0; k < 8; k++)
			for (int v = 0; v < values; v++)
				c[e] += value(f.a[e / 2 + k / 4 * 2][4 * g + k % 4], v) * value(f.b[k / 4][4 * (2 * t + e % 2) + k % 4], v);
}

DEVICE void multiply_tf32(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
	multiply_fragments(c, Fragments(a, b), 1, [](u32 word, int) { return from_bits(word); });
}
DEVICE void multiply_bf16(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
	multiply_fragments(c, Fragments(a, b), 2, [](u32 word, int v) { return from_bits(v ? word & 0xffff0000 : word << 16); });
}
