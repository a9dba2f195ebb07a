// Runs PTX, the text that a driver compiles: what the program hands to a GPU, in place of the sources that it was made of. Lanes of a warp
// go together while they are at the same instruction, those that are furthest behind first, and wait for each other where they must.
//
// Each access to memory is looked at: it must be of an array, at a multiple of its size, and no access of another thread to the same
// byte may be unordered with it, unless both read or both are atomic. Barriers order the threads of a block, bar.warp.sync those of a warp,
// and nothing the blocks of a launch; what orders launches, across.h knows. Since that is a matter of the accesses and not of the schedule, a race is found in every one.
//
// It knows the instructions that the kernels are made of; another one is an error that names it when the text is loaded.
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

// Does an instruction for some lanes of a warp.
typedef void (*Operation)(Warp &, const Instruction &, u32 lanes);

enum Kind {
	PLAIN,
	BRANCH,
	LEAVE,
	BARRIER, // of the block
	MEETING, // of the lanes of a warp
};

struct Instruction {
	Operation run = nullptr;
	Kind kind = PLAIN;
	std::vector<int> out, in; // registers: predicates, or cells, in the order of the text
	int guard = -1;           // the predicate that it depends on
	bool unless = false;
	int target = 0;           // of a branch
	i64 offset = 0;           // of an address
	int line = 0;
	std::string text;
};

// A register is a cell of 64 bits for each lane, of which an instruction looks at the lower ones; constants are registers too. A predicate is
// a word with a bit for each lane.
struct Kernel {
	std::string name;
	size_t params = 0, shared = 0, local = 0; // bytes
	unsigned threads = 0;                     // the most in a block
	int cells = 0, predicates = 0;
	std::map<int, u64> constants; // by cell
	std::vector<int> ones;        // predicates that are true always
	std::map<std::string, int> specials; // %tid.x and others
	std::vector<Instruction> code;
};

struct Module {
	std::map<std::string, Kernel> kernels;
};

// Reads PTX. What it does not know is in error.
std::unique_ptr<Module> read(const char *text, std::string &error);

// The operation of an instruction's name, or null.
Operation operation(const std::string &name);

// An array of the device, or one that is pinned.
struct Array {
	uintptr_t at;
	size_t bytes;
	bool pinned;
	unsigned number; // of all that there ever were
	Shadow<Byte> shadow;    // of the threads of a launch
	Shadow<emu::Past> past; // of the works of streams
	std::vector<u32> users = {}; // works, but for some that the host has waited for

	Array(uintptr_t at, size_t bytes, bool pinned, unsigned number) : at(at), bytes(bytes), pinned(pinned), number(number), shadow(bytes), past(bytes) {}
};

// What went wrong, and a driver's code for it.
struct Fault {
	int code = 0;
	std::string text;
};

// Finds the array that an address is in, or null.
typedef std::function<Array *(uintptr_t)> Find;

Fault launch(const Kernel &, emu::Dim grid, unsigned threads, const void *args, const Find &, unsigned schedule);

enum State { READY, AT_BARRIER, AT_MEETING, LEFT };

struct Run;

struct Warp {
	Run *run;
	unsigned first; // of its threads in the block
	u32 epoch;      // how often its lanes have been in step
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

// Where an access goes to: size bytes, which are a multiple of what they must be aligned to. Null after a fault.
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
