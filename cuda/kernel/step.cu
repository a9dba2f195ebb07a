// One optimizer step on many chunks, in one pass: it decodes the operands, sums and scales them,
// applies the rule, computes the by-products and writes the copy that workers read. Each byte is
// read once and written once. Twin of kernels/host.go (the rules), kernels/sum.go and
// kernels/sums.go; kernels/doc.go has the formulas.
//
// A block takes one chunk, since each by-product of a chunk is one sum in a fixed order
// (lanes.cuh). It goes through the chunk in tiles of 1024 values. Warps 0 to 3 compute a tile, with
// eight values for each thread, and write the products of its by-products to shared memory. Warp 4
// adds these products up, while the others load the next tile.
//
// The host prepares operands that are not decoded here. sparse.cu adds those in Sparse16 and
// Sparse32 to the sum from which a chunk starts. decode.cu decodes those in LowRank, which then
// arrive as FP32.
#include "lanes.cuh"
#include "operand.cuh"

// One chunk of n values, and its arrays of n values each. An array may be written in place: next
// may be params or previous, and next_state0 may be state0. A thread then reads a value before it
// overwrites it, and no other thread reads it.
struct Chunk {
	u64 n; // values, fewer than 2³¹
	// given: the scaled sum, if it is known; 0: it is computed from the operands.
	const f32 *params, *given;
	const f32 *start; // the sum of the operands before those below; 0: +0
	// previous: the parameters one version ago, read only with WANT_DOT. saved: parameters that
	// were saved, read only with WANT_SAVED.
	const f32 *previous, *saved;
	const f32 *state0, *state1; // the state of the rule; 0 where it has none
	f32 *next, *next_state0, *next_state1;
	f32 *update;    // receives the scaled sum; 0: not wanted
	u16 *broadcast; // receives next in BF16; 0: not wanted
	f64 *products;  // receives the 4 by-products, in the order of kernels.Products
	const Operand *operands;
	u64 count; // of operands
};

struct StepArgs {
	const Chunk *chunks; // one for each block
	// The coefficients of the formulas, in the order of kernels.Step.Coefficients.
	f32 scale, rate, momentum, decay, beta1, rest1, beta2, rest2, alpha, rho, epsilon, weight_kept;
	u32 flags, unused;
};

// The by-products that are wanted besides ‖g‖²: ⟨g, params − previous⟩, ‖next − params‖² and
// ‖next − saved‖². Those that are not wanted are written as 0.
enum Flags { WANT_DOT = 1, WANT_DISPLACEMENT = 2, WANT_SAVED = 4 };
enum Rule { SGD = 1, MOMENTUM = 2, NESTEROV = 3, ADAM = 4, ADAMW = 5, ADD = 6, ASSIGN = 7, ADAGRAD = 8, LAZY_ADAM = 9 };
enum { WORKERS = 128, THREADS = WORKERS + 32, TILE = PER_THREAD * WORKERS, PRODUCTS = 4 };

// Adds AT_ONCE operands with the same encoding to acc, in order. All their loads are issued before
// the first is used, so that enough bytes are in flight.
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

// Adds a run of `count` operands with the same encoding, four at a time, and moves ops behind them.
template <int ENCODING> DEVICE void add_run(Eight &acc, const Operand *&ops, u32 count, u32 i, bool second, u32 n) {
#pragma unroll 1
	for (; count >= 4; count -= 4, ops += 4) add_some<ENCODING, 4>(acc, ops, i, second, n);
#pragma unroll 1
	for (; count > 0; count--, ops++) add_some<ENCODING, 1>(acc, ops, i, second, n);
}

// Returns the sum of the operands at a thread's eight values, in the order of the operands. The
// switch does not diverge, since all threads have the same operands, and is taken once for a run.
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

// The number of arrays of state that a rule has.
template <int RULE>
constexpr int states() { return RULE == ADAM || RULE == ADAMW || RULE == LAZY_ADAM ? 2 : RULE == MOMENTUM || RULE == NESTEROV || RULE == ADAGRAD ? 1 : 0; }

// A thread's eight values of a tile: parameters (w), state (m and v), and scaled sum (g).
struct Values {
	Eight w, m, v, g;
};

// Returns the parameters after a step of Adam, AdamW or LazyAdam. x.m and x.v become the new state. Roots and
// quotients have branches for special values, around which the compiler keeps little in registers
// and overlaps little. So each has a loop of its own over the eight values.
template <int RULE> DEVICE Eight adam(const StepArgs &a, Values &x) {
	Eight r;
#pragma unroll
	for (int e = 0; e < PER_THREAD; e++) {
		f32 &m = x.m.v(e), &v = x.v.v(e);
		const f32 g = x.g.v(e), h = RULE == ADAMW ? g : add(g, mul(a.decay, x.w.v(e)));
		if (RULE == LAZY_ADAM && g == 0) continue;
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
	for (int e = 0; e < PER_THREAD; e++) {
		const f32 w = x.w.v(e);
		r.v(e) = RULE == LAZY_ADAM && x.g.v(e) == 0 ? w : sub(RULE == ADAMW ? mul(a.weight_kept, w) : w, r.v(e));
	}
	return r;
}

// Applies another rule to one value: returns the parameter after the step. m becomes the new state.
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

// Applies the rule to the eight values of a thread. It returns the parameters after the step, and
// x.m and x.v become the new state.
template <int RULE> DEVICE Eight apply(const StepArgs &a, Values &x) {
	if constexpr (RULE == ADAM || RULE == ADAMW || RULE == LAZY_ADAM) {
		return adam<RULE>(a, x);
	} else {
		Eight r;
#pragma unroll
		for (int e = 0; e < PER_THREAD; e++) r.v(e) = apply<RULE>(a, x.g.v(e), x.w.v(e), x.m.v(e));
		return r;
	}
}

// Shared memory, 32 KiB: for each by-product, the products of the tile, where place() puts them.
struct alignas(16) Stage {
	f64 product[PRODUCTS][TILE];
	Chunk chunk; // its addresses would take two dozen registers of each thread
};

// Says whether by-product p is wanted. The first one, ‖g‖², always is.
DEVICE bool wanted(u32 p, u32 flags) { return p == 0 || flags >> (p - 1) & 1; }

// Loads what the step needs of a thread's values, and sums the operands.
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

// Stores the products of eight values for a by-product. `at` is the place of the first.
DEVICE void put_both(f64 *tile, u32 at, const Eight &x, const Eight &y) {
	put(tile, at, x.part[0], y.part[0]);
	put(tile + APART, at, x.part[1], y.part[1]);
}

// Computes a thread's part of the step, stores the results, and writes the products of the
// by-products to shared memory. It loads previous before it stores next, which may be the same
// array. Values past the end of the chunk leave products without meaning, which add_lane ignores.
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

// The body of a step. Warp 4 adds the products that the other warps write. It has two half warps of
// 16 threads: thread 16·h + l of it adds lane l of the by-products h and h + 2.
//
// Barriers separate the two roles, since there is one tile in shared memory:
//
//  - "the chunk is there": without it, threads would read addresses that thread 0 has not copied.
//  - "the tile before has been summed": without it, warps 0 to 3 would overwrite products that
//    warp 4 still has to add. They load the next tile before this barrier, not after it.
//  - "the tile is full": without it, warp 4 would add products that are not written yet.
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

// A kernel for each rule. Four blocks of it fit on a multiprocessor.
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
STEP(step_lazyadam, LAZY_ADAM)

// Writes the sum of the operands, without scale or rule, to update, which may be the same array as
// start. It makes the sum to which a sparse operand is added, and decodes the payloads of an
// encoder. Only n, start, operands, count and update of a chunk are used. All 160 threads of a
// block have eight values at a time; there is no barrier.
KERNEL_CROWD(sum_operands, StepArgs, THREADS, 4) {
	const Chunk c = a.chunks[BLOCK]; // a copy in registers, which no store can alias
	const u32 n = (u32)c.n;
	for (u32 i = at_of_thread(); i < n; i += PER_THREAD * THREADS) {
		const bool second = i + APART < n;
		store(c.update, i, n, second, i + APART + 4 <= n, sum(c, i, second));
	}
}
