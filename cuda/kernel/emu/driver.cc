// A libcuda.so.1 that runs the emulated kernels, for the tests of package cuda; streams.cc and module.cc
// are parts of it. Work is queued, as on a GPU, and done when somebody waits for it. Code that forgets to
// wait reads what memory held before, and so does a stream that forgets to wait for another one. Memory
// is filled with 0xFF, so that a value that was never written shows. A capture allows what CUDA's
// documentation allows. After anything else, the whole capture fails, up to its end.
//
// The driver also watches what works do to each other across streams: see across.h.
//
// Settings are variables of the environment. Their names begin with KINTSUGI_EMU_:
//
//	KERNELS      "ptx": a launch interprets the loaded PTX, see ptx.h; otherwise it runs the source, see emu.h
//	UNWAITED     the number of the wait for an event that is left out, counted from 1 since this was set;
//	             0: every wait is printed, and none is left out
//	WITHOUT      a barrier of PTX that is left out, such as step_adam:0
//	SCHEDULE     the order of threads, see emu.h; under schedule 1, work is done at once, so it comes before
//	             what others do later
//	FAIL         an error code of the driver that every call which waits returns from now on, as after a
//	             fault on a GPU
//	HANG         a file: the first process that waits for the device removes it, and waits for ever
//	ALLOCATIONS  how many allocations of device memory and pinned memory succeed while this is set; each
//	             request counts
//	DEVICES      the number of devices (1)
//	MAJOR        their compute capability (9)
//	OLD          the number of a device whose compute capability is 7 (none)
//	VERSION      the version of the driver (13000)
//	EXCLUSIVE    another process has the devices
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "streams.h"

using emu::lock;
using emu::setting;

typedef std::map<uintptr_t, ptx::Array> Memory; // by start
static Memory device_memory, host_memory;

int emu::setting(const char *name, int otherwise) {
	const char *s = getenv(name);
	return s && *s ? atoi(s) : otherwise;
}

bool emu::interprets() {
	const char *s = getenv("KINTSUGI_EMU_KERNELS");
	return s && !strcmp(s, "ptx");
}

// Returns the array that contains an address, or null.
static ptx::Array *find(Memory &m, uintptr_t at) {
	auto i = m.upper_bound(at);
	if (i == m.begin()) return nullptr;
	ptx::Array &a = (--i)->second;
	return at - a.at < a.bytes ? &a : nullptr;
}

static bool within(Memory &m, uintptr_t at, size_t bytes) {
	std::lock_guard<std::mutex> hold(lock); // other threads free memory
	const ptx::Array *a = find(m, at);
	return a && at + bytes <= a->at + a->bytes;
}

ptx::Array *emu::array_at(uintptr_t at) {
	ptx::Array *a = ::find(device_memory, at);
	return a ? a : ::find(host_memory, at);
}

bool emu::on_device(const void *at, size_t bytes) { return within(device_memory, (uintptr_t)at, bytes); }

static thread_local CUcontext current;
bool emu::has_context() { return current; }

static CUresult take(Memory &m, void **at, size_t bytes) {
	if (CUresult r = emu::memory_moves()) return r;
	static std::atomic<int> taken;
	const int most = setting("KINTSUGI_EMU_ALLOCATIONS", -1);
	taken = most < 0 ? 0 : taken + 1;
	if (most >= 0 && taken > most) return CUDA_ERROR_OUT_OF_MEMORY;
	if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
	// No larger than asked for, so that a sanitizer notices accesses past the end.
	if (posix_memalign(at, 256, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
	memset(*at, 0xff, bytes);
	std::lock_guard<std::mutex> hold(lock);
	static unsigned number;
	m.emplace(std::piecewise_construct, std::forward_as_tuple((uintptr_t)*at), std::forward_as_tuple((uintptr_t)*at, bytes, &m == &host_memory, ++number));
	return CUDA_SUCCESS;
}

static CUresult give(Memory &m, void *at) {
	if (CUresult r = emu::memory_moves()) return r;
	std::lock_guard<std::mutex> hold(lock);
	emu::drain();
	const auto a = m.find((uintptr_t)at);
	if (a == m.end()) return CUDA_ERROR_INVALID_VALUE;
	const std::string user = emu::user(a->second);
	if (!user.empty() && !emu::failed) // CUDA's documentation does not say that freeing waits
		emu::failed = emu::say(CUDA_ERROR_LAUNCH_FAILED, "array " + std::to_string(a->second.number) + " is freed before anybody has waited for " + user);
	m.erase(a);
	free(at);
	return emu::failed;
}

// Copies between memory of this driver. The host's side must be pinned.
static CUresult copy(const char *name, CUstream s, void *to, const void *from, size_t bytes, bool ok, bool from_host = false) {
	if (!ok) return CUDA_ERROR_INVALID_VALUE;
	const auto run = [=] {
		memcpy(to, from, bytes);
		return (CUresult)CUDA_SUCCESS;
	};
	return emu::enqueue(s, {name, run, {{(uintptr_t)from, bytes, false}, {(uintptr_t)to, bytes, true}}, from_host});
}

#define D(p) ((void *)(uintptr_t)(p))

ENTRY cuInit(unsigned) { return setting("KINTSUGI_EMU_DEVICES", 1) ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }
ENTRY cuDriverGetVersion(int *version) {
	*version = setting("KINTSUGI_EMU_VERSION", 13000);
	return CUDA_SUCCESS;
}
ENTRY cuDeviceGetCount(int *count) {
	*count = setting("KINTSUGI_EMU_DEVICES", 1);
	return CUDA_SUCCESS;
}
// A device's handle is not its number: CUDA's documentation does not say that they are equal.
enum { FIRST_DEVICE = 7 };
static bool is_device(CUdevice device) { return device >= FIRST_DEVICE && device < FIRST_DEVICE + setting("KINTSUGI_EMU_DEVICES", 1); }
ENTRY cuDeviceGet(CUdevice *device, int ordinal) {
	*device = FIRST_DEVICE + ordinal;
	return is_device(*device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
ENTRY cuDeviceGetName(char *name, int len, CUdevice device) {
	if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, len, emu::interprets() ? "emulated by its PTX" : "emulated");
	return CUDA_SUCCESS;
}
ENTRY cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
	if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = device == FIRST_DEVICE + setting("KINTSUGI_EMU_OLD", -1) ? 7 : setting("KINTSUGI_EMU_MAJOR", 9); break;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 2; break;
	case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 1 << 20; break;
	default: *value = 0;
	}
	return CUDA_SUCCESS;
}
ENTRY cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
	if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
	*bytes = (size_t)1 << 30;
	return CUDA_SUCCESS;
}
static int contexts;
ENTRY cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
	if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
	std::lock_guard<std::mutex> hold(lock);
	if (setting("KINTSUGI_EMU_EXCLUSIVE", 0)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
	contexts++;
	*context = (CUcontext)&lock;
	return CUDA_SUCCESS;
}
// Reports memory that was not freed. A real driver frees it with the context, and says nothing.
ENTRY cuDevicePrimaryCtxRelease_v2(CUdevice device) {
	if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
	std::lock_guard<std::mutex> hold(lock);
	if (--contexts > 0 || device_memory.empty() && host_memory.empty() && !emu::libraries && !emu::modules) return CUDA_SUCCESS;
	fprintf(stderr, "emulated driver: %zu arrays of the device and %zu of pinned memory were not freed, %d cuBLAS not closed, and %d modules not unloaded\n", device_memory.size(), host_memory.size(), emu::libraries.load(), emu::modules.load());
	return CUDA_ERROR_INVALID_VALUE;
}
ENTRY cuCtxSetCurrent(CUcontext context) {
	current = context;
	return CUDA_SUCCESS;
}
ENTRY cuGetErrorName(CUresult code, const char **name) {
	switch (code) {
#define NAME(code) case code: *name = #code; break
		NAME(CUDA_ERROR_LAUNCH_FAILED);
		NAME(CUDA_ERROR_ILLEGAL_ADDRESS);
		NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		NAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		NAME(CUDA_ERROR_STREAM_CAPTURE_MERGE);
		NAME(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
		NAME(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
		NAME(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
#undef NAME
	default: *name = "CUDA_ERROR_OTHER";
	}
	return CUDA_SUCCESS;
}
ENTRY cuGetErrorString(CUresult code, const char **text) {
	*text = code && code == emu::failed ? emu::said() : "of the emulated driver";
	return CUDA_SUCCESS;
}
ENTRY cuMemAlloc_v2(CUdeviceptr *at, size_t bytes) {
	void *p = nullptr;
	CUresult r = take(device_memory, &p, bytes);
	*at = (CUdeviceptr)(uintptr_t)p;
	return r;
}
ENTRY cuMemFree_v2(CUdeviceptr at) { return give(device_memory, D(at)); }
ENTRY cuMemHostAlloc(void **at, size_t bytes, unsigned) { return take(host_memory, at, bytes); }
ENTRY cuMemFreeHost(void *at) { return give(host_memory, at); }
ENTRY cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream s) {
	return copy("a copy to the device", s, D(to), from, bytes, within(device_memory, to, bytes) && within(host_memory, (uintptr_t)from, bytes), true);
}
ENTRY cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream s) {
	return copy("a copy to the host", s, to, D(from), bytes, within(device_memory, from, bytes) && within(host_memory, (uintptr_t)to, bytes));
}
ENTRY cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
	return copy("a copy on the device", s, D(to), D(from), bytes, within(device_memory, from, bytes) && within(device_memory, to, bytes));
}
ENTRY cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream s) {
	if (!within(device_memory, at, bytes)) return CUDA_ERROR_INVALID_VALUE;
	const auto run = [=] {
		memset(D(at), value, bytes);
		return (CUresult)CUDA_SUCCESS;
	};
	return emu::enqueue(s, {"a fill", run, {{(uintptr_t)at, bytes, true}}});
}
