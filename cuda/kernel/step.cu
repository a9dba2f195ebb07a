// One optimizer step on many chunks: decode, sum, scale, rule, by-products and the copy that is sent, in one pass. Each
// byte is read once and written once. A block takes a chunk, because a by-product of a chunk is summed in 16 lanes in
// order of the values; two warps do that for one tile while the other blocks of the multiprocessor load theirs.
//
// Payloads in SPARSE16, SPARSE32 and LOW_RANK are not decoded here: the first two are added to the sum that a chunk starts
// from, the last is decoded before.
#include "operand.cuh"

struct Chunk {
	u64 n;
	const f32 *params, *given; // given: the scaled sum; then there are no operands
	const f32 *start;          // the sum of operands that came before those below, or 0
	const f32 *previous, *saved;
	const f32 *state0, *state1;
	f32 *next, *next_state0, *next_state1;
	f32 *update;
	u16 *broadcast;
	f64 *products; // 4
	const Operand *operands;
	u64 count;
};

struct StepArgs {
	const Chunk *chunks;
	f32 scale, rate, momentum, decay, beta1, rest1, beta2, rest2, alpha, rho, epsilon, weight_kept;
	u32 flags, unused;
};

enum Flags { WANT_DOT = 1, WANT_DISPLACEMENT = 2, WANT_SAVED = 4 };
enum Rule { SGD = 1, MOMENTUM = 2, NESTEROV = 3, ADAM = 4, ADAMW = 5, ADD = 6, ASSIGN = 7, ADAGRAD = 8, NONE = 9 };
enum { THREADS = 256, TILE = 4 * THREADS, PRODUCTS = 4 };

// Adds the operands from number j on that have the same encoding, four of them at a time, in order.
template <int ENCODING> DEVICE u64 add_run(Four &acc, const Operand *ops, u64 j, u64 i, u64 n) {
	const u64 end = j + (ops[j].encoding >> 8);
	for (; j + 4 <= end; j += 4) {
		Raw<ENCODING> raw[4];
		f32 w[4];
#pragma unroll
		for (int o = 0; o < 4; o++) {
			raw[o].load_from(ops[j + o], i, n);
			w[o] = ops[j + o].weight;
		}
#pragma unroll
		for (int o = 0; o < 4; o++)
#pragma unroll
			for (int e = 0; e < 4; e++) acc.v[e] = add(acc.v[e], mul(w[o], raw[o].value(e)));
	}
	for (; j < end; j++) {
		Raw<ENCODING> raw;
		raw.load_from(ops[j], i, n);
		const f32 w = ops[j].weight;
#pragma unroll
		for (int e = 0; e < 4; e++) acc.v[e] = add(acc.v[e], mul(w, raw.value(e)));
	}
	return end;
}

DEVICE Four sum(const Chunk &c, u64 i) {
	Four acc = {};
	if (c.start) acc = load(c.start, i);
	for (u64 j = 0; j < c.count;) {
		switch (c.operands[j].encoding & 0xff) {
		case FP32: j = add_run<FP32>(acc, c.operands, j, i, c.n); break;
		case BF16: j = add_run<BF16>(acc, c.operands, j, i, c.n); break;
		case FP16: j = add_run<FP16>(acc, c.operands, j, i, c.n); break;
		case INT8: j = add_run<INT8>(acc, c.operands, j, i, c.n); break;
		default: j = add_run<SIGN>(acc, c.operands, j, i, c.n); break;
		}
	}
	return acc;
}

DEVICE f32 adam_step(const StepArgs &a, f32 m, f32 v) {
	return quotient(mul(a.alpha, m), add(mul(root(v), a.rho), a.epsilon));
}

// The rule for one value: w becomes the new parameter, m and v the new state.
template <int RULE> DEVICE f32 apply(const StepArgs &a, f32 g, f32 w, f32 &m, f32 &v) {
	if (RULE == ADD) return add(w, g);
	if (RULE == ASSIGN) return g;
	const f32 h = RULE == ADAMW ? g : add(g, mul(a.decay, w));
	if (RULE == MOMENTUM || RULE == NESTEROV) {
		m = add(mul(a.momentum, m), h);
		return sub(w, mul(a.rate, RULE == MOMENTUM ? m : add(h, mul(a.momentum, m))));
	}
	if (RULE == ADAM || RULE == ADAMW) {
		m = add(mul(a.beta1, m), mul(a.rest1, h));
		v = add(mul(a.beta2, v), mul(a.rest2, mul(h, h)));
		return sub(RULE == ADAM ? w : mul(a.weight_kept, w), adam_step(a, m, v));
	}
	if (RULE == ADAGRAD) {
		m = add(m, mul(h, h));
		return sub(w, quotient(mul(a.rate, h), add(root(m), a.epsilon)));
	}
	return sub(w, mul(a.rate, h));
}

// What the lanes of a tile read: the factors of each by-product. There are two, so that a tile may be filled while the
// one before is summed.
struct alignas(16) Tiles {
	f32 factor[2][PRODUCTS][TILE];
};

// Lane l of by-product p is thread 16·p + l. It adds the values of a tile that are its own, in order.
DEVICE void add_lanes(f64 &lane, const f32 (&factor)[PRODUCTS][TILE], u64 values, u32 flags) {
	const u32 p = THREAD / 16, l = THREAD % 16;
	if (p == 1 && !(flags & WANT_DOT) || p == 2 && !(flags & WANT_DISPLACEMENT) || p == 3 && !(flags & WANT_SAVED)) return;
	const f32 *x = factor[p], *y = p == 1 ? factor[0] : x;
#pragma unroll 8
	for (u64 i = l; i < values; i += 16) lane = add_product(lane, x[i], y[i]);
}

DEVICE void put(f32 (&tile)[TILE], const Four &v) { *(Four *)(tile + 4 * THREAD) = v; }

template <int RULE> DEVICE void step_values(const StepArgs &a, const Chunk &c, u64 i, f32 (&factor)[PRODUCTS][TILE]) {
	enum { STATES = RULE == ADAM || RULE == ADAMW ? 2 : RULE == MOMENTUM || RULE == NESTEROV || RULE == ADAGRAD ? 1 : 0 };
	const u64 n = c.n;
	const Four w = load(c.params, i);
	Four m = {}, v = {}, g, next, d;
	if (STATES > 0) m = load(c.state0, i);
	if (STATES > 1) v = load(c.state1, i);
	if (c.given) {
		g = load(c.given, i);
	} else {
		g = sum(c, i);
#pragma unroll
		for (int e = 0; e < 4; e++) g.v[e] = mul(g.v[e], a.scale);
	}
	if (c.update) store(c.update, i, n, g);
	put(factor[0], g);
	if (a.flags & WANT_DOT) {
		const Four p = load(c.previous, i);
#pragma unroll
		for (int e = 0; e < 4; e++) d.v[e] = sub(w.v[e], p.v[e]);
		put(factor[1], d);
	}
#pragma unroll
	for (int e = 0; e < 4; e++) next.v[e] = apply<RULE>(a, g.v[e], w.v[e], m.v[e], v.v[e]);
	store(c.next, i, n, next);
	if (STATES > 0) store(c.next_state0, i, n, m);
	if (STATES > 1) store(c.next_state1, i, n, v);
	if (a.flags & WANT_DISPLACEMENT) {
#pragma unroll
		for (int e = 0; e < 4; e++) d.v[e] = sub(next.v[e], w.v[e]);
		put(factor[2], d);
	}
	if (a.flags & WANT_SAVED) {
		const Four s = load(c.saved, i);
#pragma unroll
		for (int e = 0; e < 4; e++) d.v[e] = sub(next.v[e], s.v[e]);
		put(factor[3], d);
	}
	if (c.broadcast) {
		FourHalves b;
#pragma unroll
		for (int e = 0; e < 4; e++) b.v[e] = broadcast_bf16(next.v[e]);
		store(c.broadcast, i, n, b);
	}
}

template <int RULE> DEVICE void step(const StepArgs &a, Tiles &tiles) {
	const Chunk c = a.chunks[BLOCK]; // a copy: no store can change it
	f64 lane = 0;
	int turn = 0;
	for (u64 lo = 0; lo < c.n; lo += TILE, turn ^= 1) {
		const u64 i = lo + 4 * THREAD;
		if (i < c.n) step_values<RULE>(a, c, i, tiles.factor[turn]);
		sync(); // the tile is full, and the one before it has been summed
		const u64 rest = c.n - lo;
		if (THREAD < 16 * PRODUCTS) add_lanes(lane, tiles.factor[turn], rest < TILE ? rest : TILE, a.flags);
	}
	if (THREAD >= 16 * PRODUCTS) return;
	lane = fold(lane);
	if (THREAD % 16 == 0) c.products[THREAD / 16] = lane;
}

#define STEP(name, rule) \
	KERNEL_CROWD(name, StepArgs, THREADS, 3) { \
		SHARED(Tiles, tiles); \
		step<rule>(a, tiles); \
	}

STEP(step_sgd, SGD)
STEP(step_momentum, MOMENTUM)
STEP(step_nesterov, NESTEROV)
STEP(step_adam, ADAM)
STEP(step_adamw, ADAMW)
STEP(step_add, ADD)
STEP(step_assign, ASSIGN)
STEP(step_adagrad, ADAGRAD)

// The sum of operands as it stands, in update: what a sparse operand is added to.
KERNEL_CROWD(sum_operands, StepArgs, THREADS, 3) {
	const Chunk &c = a.chunks[BLOCK];
	for (u64 i = 4 * THREAD; i < c.n; i += TILE) store(c.update, i, c.n, sum(c, i));
}
