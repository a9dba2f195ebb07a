// Runs PTX, the text that a driver compiles. The program hands this text to a GPU, so it is tested
// in place of the sources from which it was compiled. The lanes of a warp run together while they
// are at the same instruction. Lanes that are furthest behind run first, and lanes wait for each
// other where they must.
//
// Each access to memory is checked. It must lie in an array, at a multiple of its size. It must be
// ordered with every access of another thread to the same byte, unless both read or both are
// atomic. Barriers order the threads of a block, bar.warp.sync orders those of a warp, and nothing
// orders the blocks of a launch; across.h knows what orders launches. This depends on the accesses
// and not on the schedule, so every schedule finds a race.
//
// The interpreter knows the instructions that the kernels contain. Any other instruction is an
// error that names it when the text is loaded.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;

#include "across.h"
#include "emu.h"
#include "watch.h"

#define QUICK inline __attribute__((always_inline))

namespace ptx {

struct Warp;
struct Instruction;

// Executes an instruction for some lanes of a warp.
typedef void (*Operation)(Warp &, const Instruction &, u32 lanes);

enum Kind {
	PLAIN,
	BRANCH,
	LEAVE,
	BARRIER, // of a block
	MEETING, // of the lanes of a warp
};

struct Instruction {
	Operation run = nullptr;
	Kind kind = PLAIN;
	std::vector<int> out, in; // registers: predicates or cells, in the order of the text
	int guard = -1;           // the predicate that it depends on
	bool unless = false;
	int target = 0;           // of a branch
	i64 offset = 0;           // of an address
	int line = 0;
	std::string text;
};

// A register is a cell of 64 bits for each lane; an instruction uses the lower ones. Constants are
// registers too. A predicate is a word with one bit for each lane.
struct Kernel {
	std::string name;
	size_t params = 0, shared = 0, local = 0; // bytes
	unsigned threads = 0;                     // limit for a block
	int cells = 0, predicates = 0;
	std::map<int, u64> constants; // by cell
	std::vector<int> ones;        // predicates that are always true
	std::map<std::string, int> specials; // %tid.x and others
	std::vector<Instruction> code;
};

struct Module {
	std::map<std::string, Kernel> kernels;
};

// Reads PTX. error gets the name of anything that it does not know.
std::unique_ptr<Module> read(const char *text, std::string &error);

// The operation for the name of an instruction, or null.
Operation operation(const std::string &name);

// An array of the device, or a pinned one.
struct Array {
	uintptr_t at;
	size_t bytes;
	bool pinned;
	unsigned number; // unique among all arrays that ever existed
	Shadow<Byte> shadow;    // by the threads of a launch
	Shadow<emu::Past> past; // by the works of streams
	std::vector<u32> users = {}; // works that use it, except some for which the host has waited

	Array(uintptr_t at, size_t bytes, bool pinned, unsigned number) : at(at), bytes(bytes), pinned(pinned), number(number), shadow(bytes), past(bytes) {}
};

// A description of an error, and the driver's code for it.
struct Fault {
	int code = 0;
	std::string text;
};

// Finds the array that an address lies in, or null.
typedef std::function<Array *(uintptr_t)> Find;

Fault launch(const Kernel &, emu::Dim grid, unsigned threads, const void *args, const Find &, unsigned schedule);

enum State { READY, AT_BARRIER, AT_MEETING, LEFT };

struct Run;

struct Warp {
	Run *run;
	unsigned first; // number in the block of its first thread
	u32 epoch;      // counts how often its lanes have been in step
	std::vector<u64> cells;
	std::vector<u32> predicates;
	std::vector<char> local;
	int pc[32];
	State state[32];

	template <class T> QUICK T get(int cell, int lane) const {
		T v;
		memcpy(&v, &cells[cell * 32 + lane], sizeof v);
		return v;
	}
	template <class T> QUICK void put(int cell, int lane, T v) {
		u64 b = 0;
		memcpy(&b, &v, sizeof v);
		cells[cell * 32 + lane] = b;
	}
};

enum Space { GLOBAL, SHARED, PARAM, LOCAL };

// The address of an access: size bytes, aligned as they must be. Null after a fault.
char *reach(Warp &, const Instruction &, int lane, Space, u64 address, size_t size, Access);

void fail(Warp &, const Instruction &, int lane, int code, const std::string &what);

template <class F> QUICK void each(u32 lanes, F f) {
	if (lanes == ~0u) {
		for (int l = 0; l < 32; l++) f(l);
		return;
	}
	for (; lanes; lanes &= lanes - 1) f(__builtin_ctz(lanes));
}

} // namespace ptx
