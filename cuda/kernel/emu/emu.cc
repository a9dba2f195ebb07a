#include <cstdio>
#include <cstdlib>
#include <vector>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
#include "emu.h"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emu {

enum State { READY, AT_BARRIER, AT_MEETING, DONE };

struct Fibre {
	Thread who;
	State state;
	char *stack;
#if defined(__x86_64__)
	void *sp;
#else
	ucontext_t context;
#endif
};

struct Warp {
	uint64_t given[32], seen[32];
};

static struct {
	std::vector<Fibre> fibres;
	std::vector<Warp> warps;
	size_t current;
	Dim block, grid, size;
	const std::function<void()> *kernel;
	char *shared;
	size_t shared_size;
	char error[200];
} run;

enum { STACK = 128 << 10 };

#if defined(__x86_64__)
// Saves the registers that a call preserves, switches stacks, and restores those of the other stack.
extern "C" void emu_switch(void **save, void *to);
asm(".text\n"
    ".globl emu_switch\n"
    "emu_switch:\n"
    "	pushq %rbp\n	pushq %rbx\n	pushq %r12\n	pushq %r13\n	pushq %r14\n	pushq %r15\n"
    "	movq %rsp, (%rdi)\n"
    "	movq %rsi, %rsp\n"
    "	popq %r15\n	popq %r14\n	popq %r13\n	popq %r12\n	popq %rbx\n	popq %rbp\n"
    "	ret\n");
static void *scheduler;
static void resume(Fibre &f) { emu_switch(&scheduler, f.sp); }
static void leave(Fibre &f) { emu_switch(&f.sp, scheduler); }
#else
static ucontext_t scheduler;
static void resume(Fibre &f) { swapcontext(&scheduler, &f.context); }
static void leave(Fibre &f) { swapcontext(&f.context, &scheduler); }
#endif

static void begin() {
	(*run.kernel)();
	Fibre &f = run.fibres[run.current];
	f.state = DONE;
	leave(f);
	abort(); // a fibre that is done is never resumed
}

static void prepare(Fibre &f) {
#if defined(__x86_64__)
	void **sp = (void **)(f.stack + STACK);
	*--sp = nullptr; // as after a call, the stack is 8 below a multiple of 16
	*--sp = (void *)begin;
	for (int i = 0; i < 6; i++) *--sp = nullptr;
	f.sp = sp;
#else
	getcontext(&f.context);
	f.context.uc_stack.ss_sp = f.stack;
	f.context.uc_stack.ss_size = STACK;
	f.context.uc_link = nullptr;
	makecontext(&f.context, begin, 0);
#endif
}

static void wait(State s) {
	Fibre &f = run.fibres[run.current];
	f.state = s;
	leave(f);
}

const Thread &self() { return run.fibres[run.current].who; }
Dim block() { return run.block; }
Dim grid() { return run.grid; }
void barrier() { wait(AT_BARRIER); }

const uint64_t *meet(uint64_t bits) {
	const Thread &t = self();
	Warp &w = run.warps[t.warp];
	w.given[t.lane] = bits;
	wait(AT_MEETING);
	return w.given;
}

void meet_again() { wait(AT_MEETING); }

void *shared(size_t size) {
	if (!run.shared) { // no larger than asked for, so that a sanitizer notices accesses past the end
		run.shared = (char *)aligned_alloc(16, (size + 15) / 16 * 16);
		run.shared_size = size;
		memset(run.shared, 0xff, size);
	}
	return run.shared;
}

static void fail(const char *what) {
	if (run.error[0]) return;
	snprintf(run.error, sizeof run.error, "%s (block %u, %u, %u of %u, %u, %u)", what, run.block.x, run.block.y, run.block.z, run.grid.x, run.grid.y, run.grid.z);
}

static bool inside; // a fibre is running

// Stops a thread after a mistake from which it cannot go on.
static void give_up(const char *what) {
	if (!inside) {
		fprintf(stderr, "emulation: %s, outside of any kernel\n", what);
		abort();
	}
	fail(what);
	wait(DONE);
}

static bool can_run(unsigned warp) {
	for (size_t t = warp * 32; t < run.fibres.size() && t < warp * 32 + 32; t++)
		if (run.fibres[t].state == READY) return true;
	return false;
}

// Lets the lanes of a warp go on if all have come to their meeting. A lane that waits for one that has left, or that
// waits elsewhere, would wait for ever.
static void end_meeting(unsigned warp) {
	const size_t lo = warp * 32, hi = lo + 32;
	unsigned here = 0, gone = 0, elsewhere = 0;
	for (size_t t = lo; t < hi; t++) {
		const State s = t < run.fibres.size() ? run.fibres[t].state : DONE;
		here += s == AT_MEETING;
		gone += s == DONE;
		elsewhere += s == AT_BARRIER;
	}
	if (here == 0) return;
	if (here == 32)
		for (size_t t = lo; t < hi; t++) run.fibres[t].state = READY;
	else if (here + gone + elsewhere == 32)
		fail(gone ? "a warp's operation waits for a lane that has left the kernel" : "lanes of a warp wait at a warp's operation and at a barrier");
}

// Reports whether the block is done.
static bool end_barrier() {
	size_t at = 0, done = 0;
	for (const Fibre &f : run.fibres) {
		at += f.state == AT_BARRIER;
		done += f.state == DONE;
	}
	if (done == run.fibres.size()) return true;
	if (at == run.fibres.size())
		for (Fibre &f : run.fibres) f.state = READY;
	else
		fail(done ? "a barrier waits for threads that have left the kernel" : "threads of a block wait at different points");
	return false;
}

static void run_block(unsigned schedule, uint64_t &random) {
	const unsigned warps = (unsigned)run.warps.size();
	if (run.shared) memset(run.shared, 0xff, run.shared_size);
	for (Fibre &f : run.fibres) {
		f.state = READY;
		prepare(f);
	}
	std::vector<unsigned> ready;
	for (unsigned turn = 0; !run.error[0]; turn++) {
		ready.clear();
		for (unsigned w = 0; w < warps; w++)
			if (can_run(w)) ready.push_back(w);
		if (ready.empty()) {
			if (end_barrier()) return;
			continue;
		}
		random ^= random << 13, random ^= random >> 7, random ^= random << 17;
		const unsigned w = schedule == 0 ? ready.front() : schedule == 1 ? ready.back() : schedule == 2 ? ready[turn % ready.size()] : ready[random % ready.size()];
		for (unsigned l = 0; l < 32; l++) {
			run.current = w * 32 + (schedule % 2 ? 31 - l : l);
			if (run.current >= run.fibres.size() || run.fibres[run.current].state != READY) continue;
			inside = true;
			resume(run.fibres[run.current]);
			inside = false;
		}
		end_meeting(w);
	}
}

const char *launch(Dim grid, Dim size, const std::function<void()> &kernel, unsigned schedule) {
	const unsigned threads = size.x * size.y * size.z, blocks = grid.x * grid.y * grid.z;
	static std::vector<char *> stacks;
	while (stacks.size() < threads) stacks.push_back((char *)aligned_alloc(64, STACK));
	run.grid = grid, run.size = size, run.kernel = &kernel, run.error[0] = 0;
	run.fibres.resize(threads);
	run.warps.resize((threads + 31) / 32);
	for (unsigned t = 0; t < threads; t++) {
		run.fibres[t].who = {t, t % 32, t / 32};
		run.fibres[t].stack = stacks[t];
	}
	uint64_t random = schedule * 0x9e3779b97f4a7c15ull + 1;
	for (unsigned i = 0; i < blocks && !run.error[0]; i++) {
		const unsigned b = schedule == 1 ? blocks - 1 - i : i;
		run.block = {b % grid.x, b / grid.x % grid.y, b / (grid.x * grid.y)};
		run_block(schedule, random);
	}
	free(run.shared);
	run.shared = nullptr;
	return run.error[0] ? run.error : nullptr;
}

static const Kernel *kernels;

Kernel::Kernel(const char *name, void (*run)(const void *), size_t args, unsigned threads)
	: name(name), run(run), args(args), threads(threads), next(kernels) {
	kernels = this;
}

const Kernel *find(const char *name) {
	const Kernel *k = kernels;
	while (k && strcmp(k->name, name)) k = k->next;
	return k;
}

} // namespace emu

// Code that was compiled with -fsanitize=alignment calls this before it accesses a value whose address is no multiple
// of its size. A processor allows that, and a GPU faults. The first argument begins with the place in the source.
extern "C" void __ubsan_handle_type_mismatch_v1(const void *about, uintptr_t at) {
	const struct {
		const char *file;
		u32 line, column;
	} &place = *(decltype(&place))about;
	char what[120];
	const char *file = strrchr(place.file, '/');
	snprintf(what, sizeof what, "%s:%u: what is read or written at %#zx is not aligned", file ? file + 1 : place.file, place.line, (size_t)at);
	emu::give_up(what);
}
