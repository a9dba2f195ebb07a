// What the parts of the emulated driver, and the emulated cuBLAS, which is in the same library, have in common: streams, arrays and the thread's context.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>

#include "../../internal/driver/api.h"
#include "across.h"
#include "ptx.h"

#define ENTRY_OF(result) extern "C" __attribute__((visibility("default"))) result
#define ENTRY ENTRY_OF(CUresult)
// Most of the driver works in no thread that has no context.
#define IN_CONTEXT if (!emu::has_context()) return CUDA_ERROR_INVALID_CONTEXT

namespace emu {

// A variable of the environment that is a number.
int setting(const char *name, int otherwise);

// Of all that follows but settings.
extern std::mutex lock;

// The fault that everything returns from now on.
extern CUresult failed;

// Queues work on a stream, or puts it into the graph that captures the stream.
CUresult enqueue(CUstream stream, const Work &work);
bool capturing(CUstream stream);

// Does what is queued on all streams, which nobody has waited for then. Who calls it holds the lock.
CUresult drain();

// Whether memory may be taken and given: not while a stream is captured in a mode that forbids it, by whatever thread.
CUresult memory_moves();

// The array that an address is in, of the device or pinned, or null. Who calls it holds the lock.
ptx::Array *array_at(uintptr_t at);

// Whether so many bytes are of one array of the device.
bool on_device(const void *at, size_t bytes);

// Whether the calling thread has a context.
bool has_context();

// How many cuBLAS are open, and how many modules are loaded.
extern std::atomic<int> libraries, modules;

} // namespace emu
