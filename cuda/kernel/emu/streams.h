// What the emulated driver offers to the emulated cuBLAS, which is part of the same library.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

#include "../../internal/driver/api.h"

typedef std::function<CUresult()> Work;

namespace emu {

// Queues work on a stream, or puts it into the graph that captures the stream.
CUresult enqueue(CUstream stream, Work work);
bool capturing(CUstream stream);

// Whether so many bytes are of one array of the device.
bool on_device(const void *at, size_t bytes);

// Whether the calling thread has a context.
bool has_context();

// How many cuBLAS are open.
extern std::atomic<int> libraries;

} // namespace emu
