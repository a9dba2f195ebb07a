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
enum { WORKERS = 128, THREADS = WORKERS + 32, TILE = PER_THREAD * WORKERS, PRODUCTS = 4 };

// Adds AT_ONCE operands, in order.
template <int ENCODING, int AT_ONCE> DEVICE void add_some(Eight &acc, const Operand *ops, u32 i, bool second, u32 n) {
	Raw<ENCODING> raw[AT_ONCE];
	f32 w[AT_ONCE];
#pragma unroll
	for (int o = 0; o < AT_ONCE; o++) {
		raw[o].load_from(ops[o], i, second, n);
		w[o] = ops[o].weight;
	}
#pragma unroll
	for (int o = 0; o < AT_ONCE; o++)
#pragma unroll
		for (int e = 0; e < PER_THREAD; e++) acc.v(e) = add(acc.v(e), weighted(raw[o], w[o], e));
}

// Adds so many operands, which have the same encoding, four of them at a time, and passes them.
template <int ENCODING> DEVICE void add_run(Eight &acc, const Operand *&ops, u32 count, u32 i, bool second, u32 n) {
#pragma unroll 1
	for (; count >= 4; count -= 4, ops += 4) add_some<ENCODING, 4>(acc, ops, i, second, n);
#pragma unroll 1
	for (; count > 0; count--, ops++) add_some<ENCODING, 1>(acc, ops, i, second, n);
}

DEVICE Eight sum(const Chunk &c, u32 i, bool second) {
	Eight acc = {};
	if (c.start) acc = load(c.start, i, second);
	const Operand *ops = c.operands;
	const u32 n = (u32)c.n;
#pragma unroll 1
	for (u32 left = (u32)c.count; left > 0;) {
		IN_GLOBAL(ops);
		const u32 encoding = ops->encoding & 0xff, run = ops->encoding >> 8;
		switch (encoding) {
		case FP32: add_run<FP32>(acc, ops, run, i, second, n); break;
		case BF16: add_run<BF16>(acc, ops, run, i, second, n); break;
		case FP16: add_run<FP16>(acc, ops, run, i, second, n); break;
		case INT8: add_run<INT8>(acc, ops, run, i, second, n); break;
		default: add_run<SIGN>(acc, ops, run, i, second, n); break;
		}
		left -= run;
	}
	return acc;
}

template <int RULE>
constexpr int states() { return RULE == ADAM || RULE == ADAMW ? 2 : RULE == MOMENTUM || RULE == NESTEROV || RULE == ADAGRAD ? 1 : 0; }

// What the threads that make a tile have of it.
struct Values {
	Eight w, m, v, g;
};

// Returns the new parameters of Adam; m and v become the new state. Roots and quotients have branches, around which a compiler keeps nothing in registers and
// overlaps little: so each has a pass of its own, and what is between them is done for all values at once.
template <int RULE> DEVICE Eight adam(const StepArgs &a, Values &x) {
	Eight r;
#pragma unroll
	for (int e = 0; e < PER_THREAD; e++) {
		f32 &m = x.m.v(e), &v = x.v.v(e);
		const f32 g = x.g.v(e), h = RULE == ADAMW ? g : add(g, mul(a.decay, x.w.v(e)));
		m = add(mul(a.beta1, m), mul(a.rest1, h));
		v = add(mul(a.beta2, v), mul(a.rest2, mul(h, h)));
	}
#pragma unroll
	for (int e = 0; e < PER_THREAD; e++) r.v(e) = root(x.v.v(e));
#pragma unroll
	for (int e = 0; e < PER_THREAD; e++) r.v(e) = add(mul(r.v(e), a.rho), a.epsilon);
#pragma unroll
	for (int e = 0; e < PER_THREAD; e++) r.v(e) = quotient(mul(a.alpha, x.m.v(e)), r.v(e));
#pragma unroll
	for (int e = 0; e < PER_THREAD; e++) r.v(e) = sub(RULE == ADAM ? x.w.v(e) : mul(a.weight_kept, x.w.v(e)), r.v(e));
	return r;
}

// Another rule for one value: returns the new parameter; m becomes the new state.
template <int RULE> DEVICE f32 apply(const StepArgs &a, f32 g, f32 w, f32 &m) {
	if (RULE == ADD) return add(w, g);
	if (RULE == ASSIGN) return g;
	const f32 h = add(g, mul(a.decay, w));
	if (RULE == MOMENTUM || RULE == NESTEROV) {
		m = add(mul(a.momentum, m), h);
		return sub(w, mul(a.rate, RULE == MOMENTUM ? m : add(h, mul(a.momentum, m))));
	}
	if (RULE == ADAGRAD) {
		m = add(m, mul(h, h));
		return sub(w, quotient(mul(a.rate, h), add(root(m), a.epsilon)));
	}
	return sub(w, mul(a.rate, h));
}

template <int RULE> DEVICE Eight apply(const StepArgs &a, Values &x) {
	if constexpr (RULE == ADAM || RULE == ADAMW) {
		return adam<RULE>(a, x);
	} else {
		Eight r;
#pragma unroll
		for (int e = 0; e < PER_THREAD; e++) r.v(e) = apply<RULE>(a, x.g.v(e), x.w.v(e), x.m.v(e));
		return r;
	}
}

struct alignas(16) Stage {
	f64 product[PRODUCTS][TILE];
	Chunk chunk; // here, so that no thread keeps two dozen addresses in registers
};

DEVICE bool wanted(u32 p, u32 flags) { return p == 0 || flags >> (p - 1) & 1; }

template <int RULE> DEVICE void read(const StepArgs &a, const Chunk &c, u32 i, bool second, Values &x) {
	x.w = load(c.params, i, second);
	if (states<RULE>() > 0) x.m = load(c.state0, i, second);
	if (states<RULE>() > 1) x.v = load(c.state1, i, second);
	if (c.given) {
		x.g = load(c.given, i, second);
	} else {
		x.g = sum(c, i, second);
#pragma unroll
		for (int e = 0; e < PER_THREAD; e++) x.g.v(e) = mul(x.g.v(e), a.scale);
	}
}

DEVICE Eight difference(const Eight &x, const Eight &y) {
	Eight d;
#pragma unroll
	for (int e = 0; e < PER_THREAD; e++) d.v(e) = sub(x.v(e), y.v(e));
	return d;
}

DEVICE void put_both(f64 *tile, u32 at, const Eight &x, const Eight &y) {
	put(tile, at, x.part[0], y.part[0]);
	put(tile + APART, at, x.part[1], y.part[1]);
}

template <int RULE> DEVICE void write(const StepArgs &a, const Chunk &c, u32 i, bool second, bool whole, Values &x, Stage &sh) {
	const u32 n = (u32)c.n;
	const u32 at = place(at_of_thread());
	put_both(sh.product[0], at, x.g, x.g);
	if (a.flags & WANT_DOT) put_both(sh.product[1], at, difference(x.w, load(c.previous, i, second)), x.g);
	if (c.update) store(c.update, i, n, second, whole, x.g);
	const Eight next = apply<RULE>(a, x);
	if (a.flags & WANT_DISPLACEMENT) {
		const Eight d = difference(next, x.w);
		put_both(sh.product[2], at, d, d);
	}
	if (a.flags & WANT_SAVED) {
		const Eight d = difference(next, load(c.saved, i, second));
		put_both(sh.product[3], at, d, d);
	}
	store(c.next, i, n, second, whole, next);
	if (states<RULE>() > 0) store(c.next_state0, i, n, second, whole, x.m);
	if (states<RULE>() > 1) store(c.next_state1, i, n, second, whole, x.v);
	if (c.broadcast) {
#pragma unroll
		for (int r = 0; r < 2; r++) {
			FourHalves b;
#pragma unroll
			for (int e = 0; e < 4; e++) b.v[e] = broadcast_bf16(next.part[r].v[e]);
			if (r == 0 || second) store(c.broadcast, i + r * APART, n, b);
		}
	}
}

// The last warp adds what the others make, while they read what comes next. Lane l of by-product p is thread 16·(p % 2) + l of it.
template <int RULE> DEVICE void step(const StepArgs &a, Stage &sh) {
	const bool works = THREAD < WORKERS;
	if (THREAD == 0) sh.chunk = a.chunks[BLOCK];
	sync(); // the chunk is there
	const Chunk &c = sh.chunk;
	const u32 n = (u32)c.n, half = THREAD / 16 % 2;
	f64 lane[PRODUCTS / 2] = {};
	for (u32 lo = 0; lo < n; lo += TILE) {
		const u32 i = lo + at_of_thread();
		const bool mine = works && i < n, second = i + APART < n;
		Values x;
		if (mine) read<RULE>(a, c, i, second, x);
		sync(); // the tile before has been summed
		if (mine) write<RULE>(a, c, i, second, lo + TILE <= n, x, sh);
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
KERNEL_CROWD(sum_operands, StepArgs, THREADS, 4) {
	const Chunk c = a.chunks[BLOCK]; // a copy: no store can change it
	const u32 n = (u32)c.n;
	for (u32 i = at_of_thread(); i < n; i += PER_THREAD * THREADS) {
		const bool second = i + APART < n;
		store(c.update, i, n, second, i + APART + 4 <= n, sum(c, i, second));
	}
}
