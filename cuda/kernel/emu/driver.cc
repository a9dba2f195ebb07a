// A libcuda.so.1 that runs the emulated kernels, for the tests of package cuda. Work is queued, as a GPU's is, and done
// when somebody waits for it: who forgets to wait reads what memory held before. Memory is filled with 0xFF, so that what
// was never written shows.
//
// KINTSUGI_EMU_SCHEDULE: the schedule of emu.h. KINTSUGI_EMU_FAIL: a driver's code that everything which waits returns
// from now on, as after a fault on a GPU. KINTSUGI_EMU_DEVICES: how many devices there are; 1 if it is not set.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <string>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
#include "../../internal/driver/api.h"
#include "emu.h"

static std::mutex lock;
static std::deque<std::function<CUresult()>> queue;
static std::map<uintptr_t, size_t> device_memory, host_memory; // start and size
static CUresult failed;

static int setting(const char *name, int otherwise) {
	const char *s = getenv(name);
	return s && *s ? atoi(s) : otherwise;
}

// Does what is queued. A fault stays.
static CUresult drain() {
	if (int code = setting("KINTSUGI_EMU_FAIL", 0)) failed = code;
	while (!failed && !queue.empty()) {
		failed = queue.front()();
		queue.pop_front();
	}
	if (failed) queue.clear();
	return failed;
}

static bool within(const std::map<uintptr_t, size_t> &m, uintptr_t at, size_t bytes) {
	auto i = m.upper_bound(at);
	if (i == m.begin()) return false;
	--i;
	return at + bytes <= i->first + i->second;
}

static CUresult enqueue(std::function<CUresult()> work) {
	std::lock_guard<std::mutex> hold(lock);
	if (failed) return failed;
	queue.push_back(std::move(work));
	return CUDA_SUCCESS;
}

static CUresult wait() {
	std::lock_guard<std::mutex> hold(lock);
	return drain();
}

static CUresult take(std::map<uintptr_t, size_t> &m, void **at, size_t bytes) {
	if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
	// No larger than asked for, so that a sanitizer sees what lies past the end.
	if (posix_memalign(at, 256, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
	memset(*at, 0xff, bytes);
	std::lock_guard<std::mutex> hold(lock);
	m[(uintptr_t)*at] = bytes;
	return CUDA_SUCCESS;
}

static CUresult give(std::map<uintptr_t, size_t> &m, void *at) {
	std::lock_guard<std::mutex> hold(lock);
	drain();
	if (!m.erase((uintptr_t)at)) return CUDA_ERROR_INVALID_VALUE;
	free(at);
	return CUDA_SUCCESS;
}

// A copy between memory of ours; the host's side must be pinned.
static CUresult copy(void *to, const void *from, size_t bytes, bool ok) {
	if (!ok) return CUDA_ERROR_INVALID_VALUE;
	return enqueue([=] {
		memcpy(to, from, bytes);
		return (CUresult)CUDA_SUCCESS;
	});
}

#define ENTRY extern "C" __attribute__((visibility("default"))) CUresult
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
ENTRY cuDeviceGet(CUdevice *device, int ordinal) {
	*device = ordinal;
	return ordinal < setting("KINTSUGI_EMU_DEVICES", 1) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
ENTRY cuDeviceGetName(char *name, int len, CUdevice) {
	snprintf(name, len, "emulated");
	return CUDA_SUCCESS;
}
ENTRY cuDeviceGetAttribute(int *value, int attribute, CUdevice) {
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = setting("KINTSUGI_EMU_MAJOR", 9); break;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 2; break;
	case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 1 << 20; break;
	default: *value = 0;
	}
	return CUDA_SUCCESS;
}
ENTRY cuDeviceTotalMem_v2(size_t *bytes, CUdevice) {
	*bytes = (size_t)1 << 30;
	return CUDA_SUCCESS;
}
static int contexts;
ENTRY cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice) {
	std::lock_guard<std::mutex> hold(lock);
	contexts++;
	*context = (CUcontext)&lock;
	return CUDA_SUCCESS;
}
// Who leaves memory behind is told: a real driver takes it back with the context, and says nothing.
ENTRY cuDevicePrimaryCtxRelease_v2(CUdevice) {
	std::lock_guard<std::mutex> hold(lock);
	if (--contexts > 0 || device_memory.empty() && host_memory.empty()) return CUDA_SUCCESS;
	fprintf(stderr, "emulated driver: %zu arrays of the device and %zu of pinned memory were not freed\n", device_memory.size(), host_memory.size());
	return CUDA_ERROR_INVALID_VALUE;
}
ENTRY cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
ENTRY cuCtxSynchronize() { return wait(); }
ENTRY cuGetErrorName(CUresult code, const char **name) {
	*name = code == CUDA_ERROR_LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : code == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OTHER";
	return CUDA_SUCCESS;
}
ENTRY cuGetErrorString(CUresult, const char **text) {
	*text = "of the emulated driver";
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
ENTRY cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream) {
	return copy(D(to), from, bytes, within(device_memory, to, bytes) && within(host_memory, (uintptr_t)from, bytes));
}
ENTRY cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream) {
	return copy(to, D(from), bytes, within(device_memory, from, bytes) && within(host_memory, (uintptr_t)to, bytes));
}
ENTRY cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
	return copy(D(to), D(from), bytes, within(device_memory, from, bytes) && within(device_memory, to, bytes));
}
ENTRY cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream) {
	if (!within(device_memory, at, bytes)) return CUDA_ERROR_INVALID_VALUE;
	return enqueue([=] {
		memset(D(at), value, bytes);
		return (CUresult)CUDA_SUCCESS;
	});
}
ENTRY cuStreamCreate(CUstream *stream, unsigned) {
	*stream = (CUstream)&queue;
	return CUDA_SUCCESS;
}
ENTRY cuStreamDestroy_v2(CUstream) { return wait(); }
ENTRY cuStreamWaitEvent(CUstream, CUevent, unsigned) { return CUDA_SUCCESS; } // there is one queue
ENTRY cuStreamSynchronize(CUstream) { return wait(); }
ENTRY cuEventCreate(CUevent *event, unsigned) {
	*event = (CUevent)&queue;
	return CUDA_SUCCESS;
}
ENTRY cuEventDestroy_v2(CUevent) { return CUDA_SUCCESS; }
ENTRY cuEventRecord(CUevent, CUstream) { return CUDA_SUCCESS; }
ENTRY cuEventSynchronize(CUevent) { return wait(); }
ENTRY cuEventElapsedTime(float *milliseconds, CUevent, CUevent) {
	*milliseconds = 1; // it has no clock
	return wait();
}
ENTRY cuModuleLoadDataEx(CUmodule *module, const void *, unsigned, int *, void **) {
	*module = (CUmodule)&queue;
	return CUDA_SUCCESS;
}
ENTRY cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
ENTRY cuModuleGetFunction(CUfunction *function, CUmodule, const char *name) {
	*function = (CUfunction)emu::find(name);
	return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
ENTRY cuFuncGetAttribute(int *value, int, CUfunction) {
	*value = 0;
	return CUDA_SUCCESS;
}
ENTRY cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned, CUstream, void **, void **extra) {
	const emu::Kernel *k = (const emu::Kernel *)function;
	if (!extra || extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER || extra[2] != CU_LAUNCH_PARAM_BUFFER_SIZE || !gx || !gy || !gz) return CUDA_ERROR_INVALID_VALUE;
	const size_t size = *(size_t *)extra[3];
	if (size != k->args || bx * by * bz > k->threads) {
		fprintf(stderr, "emulated driver: %s: %zu bytes of arguments, it takes %zu; %u threads, at most %u\n", k->name, size, k->args, bx * by * bz, k->threads);
		return CUDA_ERROR_INVALID_VALUE;
	}
	std::string args((const char *)extra[1], size);
	return enqueue([=] {
		alignas(16) char copy[4096];
		memcpy(copy, args.data(), args.size());
		const char *wrong = emu::launch({gx, gy, gz}, {bx, by, bz}, [&] { k->run(copy); }, setting("KINTSUGI_EMU_SCHEDULE", 3));
		if (wrong) fprintf(stderr, "emulated driver: kernel %s: %s\n", k->name, wrong);
		return (CUresult)(wrong ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS);
	});
}
