// One optimizer step on many chunks: decode, sum, scale, rule, by-products and the copy that is sent, in one pass. Each
// byte is read once and written once. A block takes a chunk, because a by-product of a chunk is summed in 16 lanes in
// order of the values; a warp of its own does that for one tile while the others load the next.
//
// Payloads in SPARSE16, SPARSE32 and LOW_RANK are not decoded here: the first two are added to the sum that a chunk starts
// from, the last is decoded before.
#include "lanes.cuh"
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
enum { WORKERS = 256, THREADS = WORKERS + 32, TILE = 4 * WORKERS, PRODUCTS = 4 };

// Adds the operands from number j on that have the same encoding, four of them at a time, in order.
template <int ENCODING> DEVICE u32 add_run(Four &acc, const Operand *ops, u32 j, u64 i, u64 n) {
	const u32 end = j + (ops[j].encoding >> 8);
#pragma unroll 1
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
#pragma unroll 1
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
	const Operand *const ops = c.operands;
	const u32 count = (u32)c.count;
	for (u32 j = 0; j < count;) {
		IN_GLOBAL(ops);
		switch (ops[j].encoding & 0xff) {
		case FP32: j = add_run<FP32>(acc, ops, j, i, c.n); break;
		case BF16: j = add_run<BF16>(acc, ops, j, i, c.n); break;
		case FP16: j = add_run<FP16>(acc, ops, j, i, c.n); break;
		case INT8: j = add_run<INT8>(acc, ops, j, i, c.n); break;
		default: j = add_run<SIGN>(acc, ops, j, i, c.n); break;
		}
	}
	return acc;
}

DEVICE f32 adam_step(const StepArgs &a, f32 m, f32 v) {
	return quotient(mul(a.alpha, m), add(mul(root(v), a.rho), a.epsilon));
}

template <int RULE>
constexpr int states() { return RULE == ADAM || RULE == ADAMW ? 2 : RULE == MOMENTUM || RULE == NESTEROV || RULE == ADAGRAD ? 1 : 0; }

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

struct alignas(16) Stage {
	f64 product[PRODUCTS][TILE];
	Chunk chunk; // here, so that no thread keeps two dozen addresses in registers
};

DEVICE bool wanted(u32 p, u32 flags) { return p == 0 || flags >> (p - 1) & 1; }

// What the threads that make a tile have of it.
struct Values {
	Four w, m, v, g;
};

template <int RULE> DEVICE void read(const StepArgs &a, const Chunk &c, u64 i, Values &x) {
	x.w = load(c.params, i);
	if (states<RULE>() > 0) x.m = load(c.state0, i);
	if (states<RULE>() > 1) x.v = load(c.state1, i);
	if (c.given) {
		x.g = load(c.given, i);
	} else {
		x.g = sum(c, i);
#pragma unroll
		for (int e = 0; e < 4; e++) x.g.v[e] = mul(x.g.v[e], a.scale);
	}
}

DEVICE Four difference(const Four &x, const Four &y) {
	Four d;
#pragma unroll
	for (int e = 0; e < 4; e++) d.v[e] = sub(x.v[e], y.v[e]);
	return d;
}

template <int RULE> DEVICE void write(const StepArgs &a, const Chunk &c, u64 i, Values &x, Stage &sh) {
	const u64 n = c.n;
	const u32 v = 4 * THREAD;
	Four next;
	if (c.update) store(c.update, i, n, x.g);
	put(sh.product[0], v, x.g, x.g);
	if (a.flags & WANT_DOT) put(sh.product[1], v, difference(x.w, load(c.previous, i)), x.g);
#pragma unroll
	for (int e = 0; e < 4; e++) next.v[e] = apply<RULE>(a, x.g.v[e], x.w.v[e], x.m.v[e], x.v.v[e]);
	store(c.next, i, n, next);
	if (states<RULE>() > 0) store(c.next_state0, i, n, x.m);
	if (states<RULE>() > 1) store(c.next_state1, i, n, x.v);
	if (a.flags & WANT_DISPLACEMENT) {
		const Four d = difference(next, x.w);
		put(sh.product[2], v, d, d);
	}
	if (a.flags & WANT_SAVED) {
		const Four d = difference(next, load(c.saved, i));
		put(sh.product[3], v, d, d);
	}
	if (c.broadcast) {
		FourHalves b;
#pragma unroll
		for (int e = 0; e < 4; e++) b.v[e] = broadcast_bf16(next.v[e]);
		store(c.broadcast, i, n, b);
	}
}

// The last warp adds what the others make, while they read what comes next. Lane l of by-product p is thread 16·(p % 2) + l of it.
template <int RULE> DEVICE void step(const StepArgs &a, Stage &sh) {
	const bool works = THREAD < WORKERS;
	if (THREAD == 0) sh.chunk = a.chunks[BLOCK];
	sync(); // the chunk is there
	const Chunk &c = sh.chunk;
	const u64 n = c.n;
	const u32 half = THREAD / 16 % 2;
	f64 lane[PRODUCTS / 2] = {};
	for (u64 lo = 0; lo < n; lo += TILE) {
		const u64 i = lo + 4 * THREAD;
		const bool mine = works && i < n;
		Values x;
		if (mine) read<RULE>(a, c, i, x);
		sync(); // the tile before has been summed
		if (mine) write<RULE>(a, c, i, x, sh);
		sync(); // the tile is full
		if (works) continue;
#pragma unroll
		for (u32 s = 0; s < PRODUCTS / 2; s++)
			if (wanted(2 * s + half, a.flags)) add_lane<TILE>(lane[s], sh.product[2 * s + half], THREAD % 16, n - lo);
	}
	if (works) return;
#pragma unroll
	for (u32 s = 0; s < PRODUCTS / 2; s++) {
		const f64 all = fold(lane[s]);
		if (THREAD % 16 == 0) c.products[2 * s + half] = all;
	}
}

#define STEP(name, rule) \
	KERNEL_CROWD(name, StepArgs, THREADS, 4) { \
		SHARED(Stage, sh); \
		step<rule>(a, sh); \
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
	const Chunk c = a.chunks[BLOCK]; // a copy: no store can change it
	for (u64 i = 4 * THREAD; i < c.n; i += 4 * THREADS) store(c.update, i, c.n, sum(c, i));
}
