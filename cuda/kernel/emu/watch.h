// Records who accessed each byte last, and tells whether another access is ordered with that one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sys/mman.h>

namespace ptx {

enum Access { READ, WRITE, ATOMIC };

// The time of an access. Intervals are numbered through all launches. A block begins a new interval
// at its start and at each barrier, and blocks run one after another. So the number of an interval
// tells to which launch and block an earlier access belongs.
struct Moment {
	uint32_t launch, block, interval; // the launch's first interval, the block's first one, and this one
};

// The last accesses to a byte. A thread is stored as its number in the block, with flags that say
// whether others did the same in the interval, and with the epoch of its warp.
struct Byte {
	uint32_t written, writer, read, reader;
	bool operator==(const Byte &o) const { return written == o.written && writer == o.writer && read == o.read && reader == o.reader; }
};

enum : uint32_t {
	THREAD_BITS = 1023,
	SEVERAL_LANES = 1 << 10, // in the thread's warp
	SEVERAL_WARPS = 1 << 11,
	WAS_ATOMIC = 1 << 12,
	OTHER_BLOCKS = 1 << 13, // have read it too, in this launch
	EPOCH = 14,             // the lowest bit
};

// Whether an access of this thread at moment m is unordered with an earlier one.
inline bool unordered(uint32_t when, uint32_t who, const Moment &m, uint32_t thread, uint32_t epoch) {
	if (when < m.launch) return false;   // in an earlier launch
	if (when < m.block) return true;     // in another block
	if (when < m.interval) return false; // before a barrier
	if (who & SEVERAL_WARPS || (who & THREAD_BITS) / 32 != thread / 32) return true;
	if (!(who & SEVERAL_LANES) && (who & THREAD_BITS) == thread) return false;
	return who >> EPOCH >= epoch; // otherwise a bar.warp.sync lies in between
}

// Describes the other side of a race.
inline const char *other(bool write, bool same_block) {
	return write ? same_block ? "a write of another thread" : "a write of another block" : same_block ? "a read of another thread" : "a read of another block";
}

// Records an access. Returns a description of what it races with, or null.
inline const char *touch(Byte &b, Access a, const Moment &m, uint32_t thread, uint32_t epoch) {
	const uint32_t me = thread | epoch << EPOCH;
	if (unordered(b.written, b.writer, m, thread, epoch) && !(a == ATOMIC && b.writer & WAS_ATOMIC)) return other(true, b.written >= m.block);
	if (a == READ) {
		if (b.read != m.interval) {
			const bool others = b.read >= m.launch && (b.read < m.block || b.reader & OTHER_BLOCKS);
			b.read = m.interval;
			b.reader = me | (others ? OTHER_BLOCKS : 0);
		} else if ((b.reader & THREAD_BITS) / 32 != thread / 32) {
			b.reader |= SEVERAL_WARPS;
		} else if ((b.reader & THREAD_BITS) != thread || b.reader & SEVERAL_LANES) {
			const bool ordered = b.reader >> EPOCH < epoch;
			b.reader = me | (b.reader & (SEVERAL_WARPS | OTHER_BLOCKS)) | (ordered ? 0 : SEVERAL_LANES);
		} else {
			b.reader = me | (b.reader & (SEVERAL_WARPS | OTHER_BLOCKS));
		}
		return nullptr;
	}
	if (b.read >= m.launch && (b.reader & OTHER_BLOCKS || unordered(b.read, b.reader, m, thread, epoch))) return other(false, b.read >= m.block && !(b.reader & OTHER_BLOCKS));
	b.written = m.interval;
	b.writer = me | (a == ATOMIC ? WAS_ATOMIC : 0);
	return nullptr;
}

// Holds a T for each byte of an array. The system provides memory only for those that are used.
template <class T> class Shadow {
public:
	explicit Shadow(size_t bytes) : size(bytes * sizeof(T)) {
		void *p = small() ? calloc(1, size) : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		at = p == MAP_FAILED || !p ? nullptr : (T *)p;
	}
	Shadow(Shadow &&o) : at(o.at), size(o.size) { o.at = nullptr; }
	~Shadow() {
		if (small())
			free(at);
		else if (at)
			munmap(at, size);
	}
	T *at; // null if the system refuses the memory: then nothing is watched

private:
	bool small() const { return size < 1 << 16; } // there are many small ones, each of which would cost a system call
	size_t size;
};

} // namespace ptx
