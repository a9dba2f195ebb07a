// What works of streams do to each other. Two that touch a byte, of which one at least writes it, must be ordered: by being of one stream, by an event
// that was recorded behind the one and that the other's stream waits for, by an edge of a program, or by the host, which waits for the one before it
// queues the other. Since that is a matter of what was asked for and not of when works are done, a missing wait is found whatever the order was.
//
// Works have numbers in the order in which they are queued. Those that come one after the other because one stream was given them are a lane: a stream's
// own, or, for each stream that a program was captured from, a lane of the program. What comes before a work is a clock: for each lane, how many of its
// works. What the host has waited for comes before all that is queued from then on, and is in no clock: a work knows when it was waited for.
//
// For each byte of an array there is the work that wrote it last, and those that have read it since. The host has one clock for all its threads, so who
// queues without having waited himself, while another thread has, is not found. What the host reads and writes is not seen, but for what a copy
// is made of: that must be, when it is done, what it was when the copy was queued.
//
// Works are watched where PTX is interpreted, for only then it is seen what kernels touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../../internal/driver/api.h"

namespace ptx {
struct Array;
}

namespace emu {

typedef std::map<unsigned, uint32_t> Clock; // by lane

struct Range {
	uintptr_t at;
	size_t bytes;
	bool write;
};

// What a stream is given to do.
struct Work {
	std::string name; // such as "kernel norms"
	std::function<CUresult()> run;
	std::vector<Range> touches; // but for what a kernel does
	bool from_host = false;     // the first range is pinned memory that is read
};

// What is known of a byte: the work that wrote it last, and those that have read it since; 0: none. Several readers have a number with the highest bit.
struct Past {
	uint32_t wrote, readers;
};

// The work that is done now, and watched; 0: none.
extern uint32_t under_way;

// Whether nothing is new in an access of the work that is under way.
inline bool known(const Past &p, bool write) { return p.wrote == under_way || !write && p.readers == under_way; }

// Notes an access of the work that is under way. Returns what it races with, or "".
std::string note(ptx::Array &, size_t at, size_t bytes, bool write);

unsigned new_lane(const std::string &name);
const std::string &name_of(unsigned lane);
uint32_t queued_on(unsigned lane); // how many works

// Makes a work the next one of a lane, with a clock of what comes before it, and returns what does it.
std::function<CUresult()> issue(unsigned lane, const Clock &before, const Work &);

// Makes c come after what comes before in other.
void join(Clock &c, const Clock &other);

// Notes that the host has waited for what is in the clock.
void settle(const Clock &);

// The name of a work that may touch the array now, or later, or "".
std::string user(const ptx::Array &);

// Says what went wrong, to whoever reads the errors of the process and to cuGetErrorString, and returns the code.
CUresult say(CUresult code, const std::string &what);
const char *said();

} // namespace emu
