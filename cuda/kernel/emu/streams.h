// What the parts of the emulated driver share with each other, and with the emulated cuBLAS in the
// same library: streams, arrays and the thread's context.
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
// Most calls of the driver fail on a thread without a context.
#define IN_CONTEXT if (!emu::has_context()) return CUDA_ERROR_INVALID_CONTEXT

namespace emu {

// The number in a variable of the environment.
int setting(const char *name, int otherwise);

// Whether launches interpret PTX, and each access is watched.
bool interprets();

// Guards everything below, but not settings.
extern std::mutex lock;

// The fault that every call returns from now on.
extern CUresult failed;

// Queues work on a stream, or puts it into the graph that captures the stream.
CUresult enqueue(CUstream stream, const Work &work);
bool capturing(CUstream stream);

// Runs everything that is queued on all streams. This is not a wait of the host. The caller holds
// the lock.
CUresult drain();

// Whether memory may be allocated and freed: not while a stream is captured, by any thread, in a
// mode that forbids it.
CUresult memory_moves();

// The array that an address lies in, on the device or pinned, or null. The caller holds the lock.
ptx::Array *array_at(uintptr_t at);

// Whether the bytes from an address on belong to one array of the device.
bool on_device(const void *at, size_t bytes);

// Whether the calling thread has a context.
bool has_context();

// The number of open cuBLAS handles and of loaded modules.
extern std::atomic<int> libraries, modules;

} // namespace emu
