// The threads of a launch.
#include <climits>
#include <cstdio>

#include "../../internal/driver/api.h"
#include "ptx.h"

namespace ptx {

struct Run {
	const Kernel &kernel;
	const char *args;
	const Find &find;
	emu::Dim grid, block;
	unsigned threads;
	std::vector<Warp> warps;
	std::vector<char> shared;
	std::vector<Byte> watched; // the bytes of shared
	Moment now;
	Fault fault;
	Array *last = nullptr; // the array that was found last

	void begin(emu::Dim at);
	void advance(Warp &);
	bool meet(Warp &, const Instruction &, int pc);
	bool end_barrier();
	void run_block(unsigned schedule, u64 &random);
};

// The newest interval, over all launches.
static u32 intervals;

// Registers of the previous launch, for reuse.
static std::vector<std::vector<u64>> spare;

static const char *const names[] = {"global", "shared", "the parameter's", "local"};

void fail(Warp &w, const Instruction &i, int lane, int code, const std::string &what) {
	Run &r = *w.run;
	if (r.fault.code) return;
	char where[200];
	snprintf(where, sizeof where, "; line %d, thread %u of block %u, %u, %u of %u, %u, %u: ", i.line, w.first + lane, r.block.x, r.block.y, r.block.z, r.grid.x, r.grid.y, r.grid.z);
	r.fault = {code, what + where + i.text};
}

char *reach(Warp &w, const Instruction &i, int lane, Space space, u64 address, size_t size, Access access) {
	Run &r = *w.run;
	if (r.fault.code) return nullptr;
	char *base = nullptr;
	Byte *watched = nullptr;
	size_t limit = 0;
	u64 at = address;
	switch (space) {
	case PARAM: base = (char *)r.args, limit = r.kernel.params; break;
	case LOCAL: base = w.local.data() + lane * r.kernel.local, limit = r.kernel.local; break;
	case SHARED: base = r.shared.data(), limit = r.kernel.shared, watched = r.watched.data(); break;
	case GLOBAL:
		if (!r.last || address < r.last->at || address - r.last->at >= r.last->bytes) r.last = r.find(address);
		if (r.last) base = (char *)r.last->at, limit = r.last->bytes, watched = r.last->shadow.at, at = address - r.last->at;
	}
	if (!base || at > limit || limit - at < size) {
		fail(w, i, lane, CUDA_ERROR_ILLEGAL_ADDRESS, "an access to no " + std::string(names[space]) + " memory");
		return nullptr;
	}
	if (address % size) {
		fail(w, i, lane, CUDA_ERROR_MISALIGNED_ADDRESS, "an access to " + std::to_string(size) + " bytes at an address that is no multiple of it");
		return nullptr;
	}
	if (!watched) return base + at;
	if (space == GLOBAL && emu::under_way && r.last->past.at) {
		const emu::Past *past = r.last->past.at + at;
		size_t b = 0;
		while (b < size && emu::known(past[b], access != READ)) b++;
		const std::string race = b < size ? emu::note(*r.last, at, size, access != READ) : "";
		if (!race.empty()) {
			fail(w, i, lane, CUDA_ERROR_LAUNCH_FAILED, race);
			return nullptr;
		}
	}
	Moment now = r.now;
	if (space == SHARED) now.launch = now.block; // each block has its own shared memory
	Byte before = {}, after = {}; // of the last byte: most often, all bytes of an access have been accessed together before
	for (size_t b = 0; b < size; b++) {
		Byte &byte = watched[at + b];
		if (b && byte == before) {
			byte = after;
			continue;
		}
		if (space == SHARED && access != WRITE && byte.written < r.now.block) {
			fail(w, i, lane, CUDA_ERROR_LAUNCH_FAILED, "a read of shared memory that the block has not written");
			return nullptr;
		}
		before = byte;
		if (const char *other = touch(byte, access, now, w.first + lane, w.epoch)) {
			fail(w, i, lane, CUDA_ERROR_LAUNCH_FAILED, "a race in " + std::string(names[space]) + " memory with " + other);
			return nullptr;
		}
		after = byte;
	}
	return base + at;
}

// Prepares the threads of a block.
void Run::begin(emu::Dim at) {
	block = at;
	now.block = now.interval = ++intervals;
	std::fill(shared.begin(), shared.end(), (char)0xff);
	const std::map<std::string, u32> fixed = {{"%tid.y", 0}, {"%tid.z", 0}, {"%ntid.x", threads}, {"%ntid.y", 1}, {"%ntid.z", 1}, {"%ctaid.x", at.x}, {"%ctaid.y", at.y}, {"%ctaid.z", at.z}, {"%nctaid.x", grid.x}, {"%nctaid.y", grid.y}, {"%nctaid.z", grid.z}};
	for (Warp &w : warps) {
		w.epoch = 0;
		for (int l = 0; l < 32; l++) {
			w.pc[l] = 0;
			w.state[l] = w.first + l < threads ? READY : LEFT;
		}
		for (const auto &s : kernel.specials) {
			const std::string &n = s.first;
			for (int l = 0; l < 32; l++)
				w.put(s.second, l, n == "%tid.x" ? w.first + l : n == "%laneid" ? l : fixed.at(n));
		}
	}
}

// Lanes that come to an operation of the warp wait there. Does the operation if all lanes have come, and reports whether
// it was done.
bool Run::meet(Warp &w, const Instruction &i, int pc) {
	for (int l = 0; l < 32; l++)
		if (w.state[l] != AT_MEETING || w.pc[l] != pc) return false;
	i.run(w, i, ~0u);
	for (int l = 0; l < 32; l++) w.state[l] = READY, w.pc[l] = pc + 1;
	return true;
}

// Runs a warp until all its lanes wait or have left.
void Run::advance(Warp &w) {
	while (!fault.code) {
		int pc = INT_MAX, next = INT_MAX; // where the lanes furthest behind are, and where the next ones are
		u32 lanes = 0;
		for (int l = 0; l < 32; l++) {
			if (w.state[l] != READY) continue;
			if (w.pc[l] < pc) next = pc, pc = w.pc[l], lanes = 0;
			if (w.pc[l] == pc)
				lanes |= 1u << l;
			else if (w.pc[l] < next)
				next = w.pc[l];
		}
		if (!lanes) return;
		bool together = true;
		while (together && pc < next && !fault.code) {
			const Instruction &i = kernel.code[pc];
			const u32 on = i.guard < 0 ? lanes : lanes & (i.unless ? ~w.predicates[i.guard] : w.predicates[i.guard]);
			if (on == 0) {
				pc++;
			} else if (i.kind == PLAIN) {
				i.run(w, i, on);
				pc++;
			} else if (i.kind == BRANCH && on == lanes) {
				pc = i.target;
			} else { // the lanes diverge, wait or leave
				together = false;
				each(lanes, [&](int l) { w.pc[l] = pc + 1; });
				each(on, [&](int l) {
					if (i.kind == BRANCH) w.pc[l] = i.target;
					if (i.kind == LEAVE) w.state[l] = LEFT;
					if (i.kind == BARRIER) w.state[l] = AT_BARRIER;
					if (i.kind == MEETING) w.state[l] = AT_MEETING, w.pc[l] = pc;
				});
				if (i.kind == MEETING) meet(w, i, pc);
			}
		}
		if (together) each(lanes, [&](int l) { w.pc[l] = pc; });
	}
}

// Ends a barrier, when no thread of the block can go on. Reports whether the block is done.
bool Run::end_barrier() {
	size_t waiting = 0, left = 0;
	for (Warp &w : warps)
		for (int l = 0; l < 32 && w.first + l < threads; l++) {
			waiting += w.state[l] == AT_BARRIER;
			left += w.state[l] == LEFT;
			if (w.state[l] == AT_MEETING) {
				fail(w, kernel.code[w.pc[l]], l, CUDA_ERROR_LAUNCH_FAILED, "an operation of a warp waits for lanes that are elsewhere");
				return true;
			}
		}
	if (left == threads) return true;
	if (waiting < threads) {
		for (Warp &w : warps)
			for (int l = 0; l < 32; l++)
				if (w.state[l] == AT_BARRIER) fail(w, kernel.code[w.pc[l] - 1], l, CUDA_ERROR_LAUNCH_FAILED, "a barrier waits for threads that have left the kernel");
		return true;
	}
	now.interval = ++intervals;
	for (Warp &w : warps)
		for (int l = 0; l < 32 && w.first + l < threads; l++) w.state[l] = READY;
	return false;
}

void Run::run_block(unsigned schedule, u64 &random) {
	for (;;) {
		// Warps run one after the other, each as far as it can: first to last, last to first, or from a random one on.
		random ^= random << 13, random ^= random >> 7, random ^= random << 17;
		const size_t n = warps.size(), from = schedule < 2 ? 0 : random % n;
		for (size_t i = 0; i < n; i++) advance(warps[schedule == 1 ? n - 1 - i : (from + i) % n]);
		if (fault.code || end_barrier()) return;
	}
}

Fault launch(const Kernel &k, emu::Dim grid, unsigned threads, const void *args, const Find &find, unsigned schedule) {
	Run r{k, (const char *)args, find, grid, {}, threads};
	r.now.launch = intervals + 1;
	r.shared.resize(k.shared);
	r.watched.resize(k.shared);
	r.warps.resize((threads + 31) / 32);
	for (size_t n = 0; n < r.warps.size(); n++) {
		Warp &w = r.warps[n];
		w.run = &r, w.first = (unsigned)n * 32;
		w.cells = n < spare.size() ? std::move(spare[n]) : std::vector<u64>();
		w.cells.resize((size_t)k.cells * 32, ~0ull); // keeps old values, on which no kernel may rely
		w.predicates.assign(k.predicates, 0);
		w.local.assign(32 * k.local, (char)0xff);
		for (const auto &c : k.constants)
			for (int l = 0; l < 32; l++) w.cells[c.first * 32 + l] = c.second;
		for (int p : k.ones) w.predicates[p] = ~0u;
	}
	spare.clear();
	u64 random = schedule * 0x9e3779b97f4a7c15ull + 1;
	const unsigned blocks = grid.x * grid.y * grid.z;
	for (unsigned i = 0; i < blocks && !r.fault.code; i++) {
		const unsigned b = schedule == 1 ? blocks - 1 - i : i;
		r.begin({b % grid.x, b / grid.x % grid.y, b / (grid.x * grid.y)});
		r.run_block(schedule, random);
	}
	for (Warp &w : r.warps) spare.push_back(std::move(w.cells));
	if (r.fault.code) r.fault.text = k.name + ": " + r.fault.text;
	return r.fault;
}

} // namespace ptx
