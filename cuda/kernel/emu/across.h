// Detects races between the works of streams. If two works touch the same byte and at least one of
// them writes it, they must be ordered. They are ordered if they are on one stream; if an event is
// recorded after the one and the stream of the other waits for it; by an edge of a program; or if
// the host waits for the one before it queues the other. That depends on what was requested and not
// on when works run, so a missing wait is found in every schedule.
//
// Works are numbered in the order in which they are queued. A lane is a sequence of works that one
// stream orders: the works of a stream itself, or, for each stream from which a program was
// captured, a lane of the program. A clock says what comes before a work: for each lane, a number
// of its works. What the host has waited for comes before everything that is queued later. It is in
// no clock; instead a work records when the host waited for it.
//
// Each byte of an array has the work that wrote it last, and the works that have read it since. The
// host has one clock for all its threads. So a thread that queues work after another thread has
// waited, without having waited itself, is not detected. What the host reads and writes is not
// seen, with one exception: when a copy from the host is done, its source must hold what it held
// when the copy was queued.
//
// Works are watched only when PTX is interpreted, since only the interpreter sees what kernels
// touch.
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

// A piece of work that is given to a stream.
struct Work {
	std::string name; // such as "kernel norms"
	std::function<CUresult()> run;
	std::vector<Range> touches; // without what a kernel touches
	bool from_host = false;     // the first range is pinned memory, which is read
};

// The state of a byte: the work that wrote it last, and those that have read it since; 0: none. A
// number with the highest bit stands for several readers.
struct Past {
	uint32_t wrote, readers;
};

// The watched work that is running now; 0: none.
extern uint32_t under_way;

// Whether an access of the running work adds nothing to p.
inline bool known(const Past &p, bool write) { return p.wrote == under_way || !write && p.readers == under_way; }

// Records an access of the running work. Returns a description of what it races with, or "".
std::string note(ptx::Array &, size_t at, size_t bytes, bool write);

unsigned new_lane(const std::string &name);
const std::string &name_of(unsigned lane);
uint32_t queued_on(unsigned lane); // number of works on a lane

// Makes a work the next one of a lane, with a clock of what comes before it. Returns a function
// that runs it.
std::function<CUresult()> issue(unsigned lane, const Clock &before, const Work &);

// Makes c include everything that comes before in other.
void join(Clock &c, const Clock &other);

// Records that the host has waited for everything in the clock.
void settle(const Clock &);

// The name of a work that may touch the array, now or later, or "".
std::string user(const ptx::Array &);

// Reports an error, on the standard error of the process and to cuGetErrorString, and returns the
// code.
CUresult say(CUresult code, const std::string &what);
const char *said();

} // namespace emu
