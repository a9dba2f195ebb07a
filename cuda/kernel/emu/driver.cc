// A libcuda.so.1 that runs the emulated kernels, for the tests of package cuda. Work is queued, as a GPU's is, and done
// when somebody waits for it: who forgets to wait reads what memory held before, and so does a stream that forgets to wait for another
// one. Memory is filled with 0xFF, so that what was never written shows.
//
// KINTSUGI_EMU_KERNELS: "ptx": a launch interprets the PTX that was loaded, see ptx.h; else it runs the source, see emu.h. KINTSUGI_EMU_SCHEDULE: the schedule of emu.h; under schedule 1 work is done at once, so that it comes before what others do later. KINTSUGI_EMU_FAIL: a driver's code that everything which waits returns
// from now on, as after a fault on a GPU. KINTSUGI_EMU_DEVICES: how many devices there are; 1 if it is not set.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../../internal/driver/api.h"
#include "ptx.h"
#include "streams.h"

static std::mutex lock;
struct Graph {
	std::vector<Work> works;
};
struct Stream {
	std::deque<Work> queue;
	uint64_t done = 0;                // works, of all that were ever queued
	std::shared_ptr<Graph> capturing; // what is queued goes there, and is not done
	bool forked = false;              // the capture is another stream's, and
	bool joined = false;              // has waited for all of this one
	uint64_t queued() const { return done + queue.size(); }
};
struct Event {
	std::shared_ptr<Stream> stream;
	uint64_t at = 0; // is over when so many works are done
	std::shared_ptr<Graph> of; // whose capture it was recorded in
};
static std::map<Stream *, std::shared_ptr<Stream>> streams;
static char something; // for handles that nobody looks behind
typedef std::map<uintptr_t, ptx::Array> Memory; // by start
static Memory device_memory, host_memory;
static CUresult failed;

static int setting(const char *name, int otherwise) {
	const char *s = getenv(name);
	return s && *s ? atoi(s) : otherwise;
}

// Does the first works of a stream, so many of all that were ever queued. A fault stays.
static CUresult run(Stream &s, uint64_t upto) {
	if (int code = setting("KINTSUGI_EMU_FAIL", 0)) failed = code;
	while (s.done < upto && !s.queue.empty()) {
		Work w = std::move(s.queue.front());
		s.queue.pop_front();
		s.done++;
		if (!failed) failed = w();
	}
	return failed;
}

static CUresult drain() {
	for (auto &s : streams) run(*s.second, s.second->queued());
	if (int code = setting("KINTSUGI_EMU_FAIL", 0)) failed = code;
	return failed;
}

// The array that an address is in, or null.
static ptx::Array *find(Memory &m, uintptr_t at) {
	auto i = m.upper_bound(at);
	if (i == m.begin()) return nullptr;
	ptx::Array &a = (--i)->second;
	return at - a.at < a.bytes ? &a : nullptr;
}

static bool within(Memory &m, uintptr_t at, size_t bytes) {
	std::lock_guard<std::mutex> hold(lock); // memory is given back by other threads
	const ptx::Array *a = find(m, at);
	return a && at + bytes <= a->at + a->bytes;
}

static CUresult queue(Stream *s, Work work) {
	if (failed) return failed;
	if (!streams.count(s)) return CUDA_ERROR_INVALID_VALUE;
	if (s->capturing) {
		s->joined = false;
		s->capturing->works.push_back(std::move(work));
		return CUDA_SUCCESS;
	}
	s->queue.push_back(std::move(work));
	return setting("KINTSUGI_EMU_SCHEDULE", 3) == 1 ? run(*s, s->queued()) : CUDA_SUCCESS;
}

static CUresult enqueue(CUstream stream, Work work) {
	std::lock_guard<std::mutex> hold(lock);
	return queue((Stream *)stream, std::move(work));
}

CUresult emu::enqueue(CUstream stream, Work work) { return ::enqueue(stream, std::move(work)); }

bool emu::capturing(CUstream stream) {
	std::lock_guard<std::mutex> hold(lock);
	return streams.count((Stream *)stream) && ((Stream *)stream)->capturing;
}

bool emu::on_device(const void *at, size_t bytes) { return within(device_memory, (uintptr_t)at, bytes); }

static thread_local CUcontext current;
bool emu::has_context() { return current; }

static CUresult wait() {
	std::lock_guard<std::mutex> hold(lock);
	return drain();
}

static CUresult take(Memory &m, void **at, size_t bytes) {
	if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
	// No larger than asked for, so that a sanitizer sees what lies past the end.
	if (posix_memalign(at, 256, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
	memset(*at, 0xff, bytes);
	std::lock_guard<std::mutex> hold(lock);
	m.emplace((uintptr_t)*at, ptx::Array{(uintptr_t)*at, bytes, ptx::Shadow(bytes)});
	return CUDA_SUCCESS;
}

static CUresult give(Memory &m, void *at) {
	std::lock_guard<std::mutex> hold(lock);
	drain();
	if (!m.erase((uintptr_t)at)) return CUDA_ERROR_INVALID_VALUE;
	free(at);
	return CUDA_SUCCESS;
}

// A copy between memory of ours; the host's side must be pinned.
static CUresult copy(CUstream s, void *to, const void *from, size_t bytes, bool ok) {
	if (!ok) return CUDA_ERROR_INVALID_VALUE;
	return enqueue(s, [=] {
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
	if (--contexts > 0 || device_memory.empty() && host_memory.empty() && !emu::libraries) return CUDA_SUCCESS;
	fprintf(stderr, "emulated driver: %zu arrays of the device and %zu of pinned memory were not freed, and %d cuBLAS not closed\n", device_memory.size(), host_memory.size(), emu::libraries.load());
	return CUDA_ERROR_INVALID_VALUE;
}
ENTRY cuCtxSetCurrent(CUcontext context) {
	current = context;
	return CUDA_SUCCESS;
}
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
ENTRY cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream s) {
	return copy(s, D(to), from, bytes, within(device_memory, to, bytes) && within(host_memory, (uintptr_t)from, bytes));
}
ENTRY cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream s) {
	return copy(s, to, D(from), bytes, within(device_memory, from, bytes) && within(host_memory, (uintptr_t)to, bytes));
}
ENTRY cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
	return copy(s, D(to), D(from), bytes, within(device_memory, from, bytes) && within(device_memory, to, bytes));
}
ENTRY cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream s) {
	if (!within(device_memory, at, bytes)) return CUDA_ERROR_INVALID_VALUE;
	return enqueue(s, [=] {
		memset(D(at), value, bytes);
		return (CUresult)CUDA_SUCCESS;
	});
}
ENTRY cuStreamCreate(CUstream *stream, unsigned) {
	std::lock_guard<std::mutex> hold(lock);
	auto s = std::make_shared<Stream>();
	streams[s.get()] = s;
	*stream = (CUstream)s.get();
	return CUDA_SUCCESS;
}
ENTRY cuStreamDestroy_v2(CUstream stream) {
	std::lock_guard<std::mutex> hold(lock);
	Stream *s = (Stream *)stream;
	if (!streams.count(s)) return CUDA_ERROR_INVALID_VALUE;
	run(*s, s->queued());
	streams.erase(s);
	return failed;
}
ENTRY cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
	std::lock_guard<std::mutex> hold(lock);
	const Event e = *(Event *)event;
	if (!e.stream) return CUDA_SUCCESS; // never recorded
	Stream *s = (Stream *)stream;
	if (e.of) { // the order in which a capture is given work is one that all its streams allow
		if (!streams.count(s) || s->capturing && s->capturing != e.of || e.of != e.stream->capturing) return CUDA_ERROR_INVALID_VALUE;
		e.stream->joined = true;
		s->forked = s->forked || !s->capturing;
		s->joined = s->joined && s->capturing;
		s->capturing = e.of;
		return CUDA_SUCCESS;
	}
	if (streams.count(s) && s->capturing) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	return queue(s, [e] { return run(*e.stream, e.at); });
}
ENTRY cuStreamSynchronize(CUstream stream) {
	std::lock_guard<std::mutex> hold(lock);
	Stream *s = (Stream *)stream;
	if (!streams.count(s) || s->capturing) return CUDA_ERROR_INVALID_VALUE;
	return run(*s, s->queued());
}
ENTRY cuEventCreate(CUevent *event, unsigned) {
	*event = (CUevent) new Event();
	return CUDA_SUCCESS;
}
ENTRY cuEventDestroy_v2(CUevent event) {
	delete (Event *)event;
	return CUDA_SUCCESS;
}
ENTRY cuEventRecord(CUevent event, CUstream stream) {
	std::lock_guard<std::mutex> hold(lock);
	auto s = streams.find((Stream *)stream);
	if (s == streams.end()) return CUDA_ERROR_INVALID_VALUE;
	*(Event *)event = {s->second, s->second->queued(), s->second->capturing};
	return failed;
}
ENTRY cuEventSynchronize(CUevent event) {
	std::lock_guard<std::mutex> hold(lock);
	const Event &e = *(Event *)event;
	return e.stream ? run(*e.stream, e.at) : CUDA_SUCCESS;
}
ENTRY cuStreamBeginCapture_v2(CUstream stream, int) {
	std::lock_guard<std::mutex> hold(lock);
	Stream *s = (Stream *)stream;
	if (!streams.count(s) || s->capturing) return CUDA_ERROR_INVALID_VALUE;
	s->capturing = std::make_shared<Graph>();
	return failed;
}
ENTRY cuStreamEndCapture(CUstream stream, CUgraph *graph) {
	std::lock_guard<std::mutex> hold(lock);
	Stream *s = (Stream *)stream;
	if (!streams.count(s) || !s->capturing || s->forked) return CUDA_ERROR_INVALID_VALUE;
	auto g = s->capturing;
	bool whole = true;
	for (auto &other : streams)
		if (other.second->capturing == g) {
			whole = whole && (other.first == s || other.second->joined);
			other.second->capturing = nullptr;
			other.second->forked = other.second->joined = false;
		}
	*graph = (CUgraph) new Graph(*g);
	return whole ? failed : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}
ENTRY cuGraphInstantiateWithFlags(CUgraphExec *program, CUgraph graph, unsigned long long) {
	*program = (CUgraphExec) new Graph(*(Graph *)graph);
	return CUDA_SUCCESS;
}
ENTRY cuGraphDestroy(CUgraph graph) {
	delete (Graph *)graph;
	return CUDA_SUCCESS;
}
ENTRY cuGraphExecDestroy(CUgraphExec program) {
	delete (Graph *)program;
	return CUDA_SUCCESS;
}
ENTRY cuGraphLaunch(CUgraphExec program, CUstream stream) {
	std::lock_guard<std::mutex> hold(lock);
	for (const Work &w : ((Graph *)program)->works)
		if (CUresult r = queue((Stream *)stream, w)) return r;
	return failed;
}
ENTRY cuEventElapsedTime(float *milliseconds, CUevent, CUevent) {
	*milliseconds = 1; // it has no clock
	return wait();
}
// A kernel: its source, compiled for this processor, and the PTX that the program has loaded, if that is what runs.
struct Function {
	const emu::Kernel *source;
	const ptx::Kernel *text;
};
static std::deque<Function> functions;
ENTRY cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, int *options, void **values) {
	const char *run = getenv("KINTSUGI_EMU_KERNELS");
	*module = (CUmodule)&something;
	if (!run || strcmp(run, "ptx")) return CUDA_SUCCESS;
	std::string error;
	std::unique_ptr<ptx::Module> m = ptx::read((const char *)image, error);
	*module = (CUmodule)m.release();
	if (*module) return CUDA_SUCCESS;
	char *log = nullptr;
	size_t size = 0;
	for (unsigned i = 0; i < n; i++) {
		if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log = (char *)values[i];
		if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) size = (size_t)values[i];
	}
	if (log && size) snprintf(log, size, "%s", error.c_str());
	return CUDA_ERROR_INVALID_PTX;
}
ENTRY cuModuleUnload(CUmodule module) {
	if (module != (CUmodule)&something) delete (ptx::Module *)module;
	return CUDA_SUCCESS;
}
ENTRY cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
	Function f = {emu::find(name), nullptr};
	if (module != (CUmodule)&something) {
		const auto &kernels = ((ptx::Module *)module)->kernels;
		const auto k = kernels.find(name);
		if (k == kernels.end()) return CUDA_ERROR_NOT_FOUND;
		f.text = &k->second;
	} else if (!f.source) {
		return CUDA_ERROR_NOT_FOUND;
	}
	std::lock_guard<std::mutex> hold(lock);
	functions.push_back(f);
	*function = (CUfunction)&functions.back();
	return CUDA_SUCCESS;
}
ENTRY cuFuncGetAttribute(int *value, int, CUfunction) {
	*value = 0;
	return CUDA_SUCCESS;
}
ENTRY cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned, CUstream s, void **, void **extra) {
	const Function f = *(const Function *)function;
	if (!extra || extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER || extra[2] != CU_LAUNCH_PARAM_BUFFER_SIZE || !gx || !gy || !gz) return CUDA_ERROR_INVALID_VALUE;
	const std::string args((const char *)extra[1], *(size_t *)extra[3]);
	const char *name = f.text ? f.text->name.c_str() : f.source->name;
	const size_t takes = f.text ? f.text->params : f.source->args;
	const unsigned threads = bx * by * bz, most = f.text ? f.text->threads : f.source->threads;
	if (args.size() != takes || threads > most) {
		fprintf(stderr, "emulated driver: %s: %zu bytes of arguments, it takes %zu; %u threads, at most %u\n", name, args.size(), takes, threads, most);
		return CUDA_ERROR_INVALID_VALUE;
	}
	const unsigned schedule = setting("KINTSUGI_EMU_SCHEDULE", 3);
	if (f.text)
		return enqueue(s, [=] {
			const auto any = [](uintptr_t at) {
				ptx::Array *a = find(device_memory, at);
				return a ? a : find(host_memory, at);
			};
			const ptx::Fault fault = ptx::launch(*f.text, {gx, gy, gz}, threads, args.data(), any, schedule);
			if (fault.code) fprintf(stderr, "emulated driver: kernel %s\n", fault.text.c_str());
			return (CUresult)fault.code;
		});
	return enqueue(s, [=] {
		alignas(16) char copy[4096];
		memcpy(copy, args.data(), args.size());
		const char *wrong = emu::launch({gx, gy, gz}, {bx, by, bz}, [&] { f.source->run(copy); }, schedule);
		if (wrong) fprintf(stderr, "emulated driver: kernel %s: %s\n", name, wrong);
		return (CUresult)(wrong ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS);
	});
}
