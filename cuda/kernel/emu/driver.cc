// A libcuda.so.1 that runs the emulated kernels, for the tests of package cuda. Work is queued, as a GPU's is, and done
// when somebody waits for it: who forgets to wait reads what memory held before, and so does a stream that forgets to wait for another
// one. Memory is filled with 0xFF, so that what was never written shows. A capture allows what CUDA's documentation says that it does, and after anything
// else all of it fails, up to its end.
//
// KINTSUGI_EMU_KERNELS: "ptx": a launch interprets the PTX that was loaded, see ptx.h; else it runs the source, see emu.h. KINTSUGI_EMU_SCHEDULE: the schedule of emu.h; under schedule 1 work is done at once, so that it comes before what others do later. KINTSUGI_EMU_FAIL: a driver's code that everything which waits returns
// from now on, as after a fault on a GPU. KINTSUGI_EMU_DEVICES: how many devices there are; 1 if it is not set. KINTSUGI_EMU_ALLOCATIONS: how many arrays and pieces of pinned memory can be had, from when it is
// set until it is not; each that is asked for counts.
#include <algorithm>
#include <atomic>
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
struct Stream;
typedef std::map<const Stream *, uint64_t> Seen; // how many works of each stream of a capture come before, and that it joined
struct Node {
	Work work;
	const Stream *on;
	Seen before;
};
struct Graph {
	std::vector<Node> nodes; // in the order in which they were captured
	const Stream *origin = nullptr;
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool invalid = false; // something was done that a capture does not allow: all of it fails, up to its end
	std::vector<const Node *> late() const;
};
struct Stream {
	std::deque<Work> queue;
	uint64_t done = 0;                // works, of all that were ever queued
	std::shared_ptr<Graph> capturing; // what is queued goes there, and is not done
	bool forked = false;              // the capture is another stream's, which must wait for all of this one
	uint64_t captured = 0;            // works, and that it joined the capture
	Seen seen;                        // before what is captured next
	uint64_t queued() const { return done + queue.size(); }
	void capture(const std::shared_ptr<Graph> &g, bool fork) { capturing = g, forked = fork, captured = 1, seen.clear(); }
};
struct Event {
	std::shared_ptr<Stream> stream;
	uint64_t at = 0; // is over when so many works are done
	std::shared_ptr<Graph> of; // whose capture it was recorded in
	Seen seen; // before it
	bool timed = false;        // knows when it was
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

// The nodes in the order in which those of other streams than the first come as late as can be: on a GPU all of them run beside each other, but for
// what waits.
std::vector<const Node *> Graph::late() const {
	std::map<const Stream *, std::vector<const Node *>> of;
	for (const Node &n : nodes) of[n.on].push_back(&n);
	std::map<const Stream *, size_t> done;
	std::vector<const Node *> order;
	const std::function<void(const Stream *, size_t)> upto = [&](const Stream *s, size_t count) {
		while (done[s] < count) {
			const Node *n = of[s][done[s]++];
			for (auto &b : n->before) upto(b.first, b.second - 1);
			order.push_back(n);
		}
	};
	upto(origin, of[origin].size());
	for (auto &s : of) upto(s.first, s.second.size());
	return order;
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
		if (s->capturing->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		s->captured++;
		s->capturing->nodes.push_back({std::move(work), s, s->seen});
		return CUDA_SUCCESS;
	}
	s->queue.push_back(std::move(work));
	return setting("KINTSUGI_EMU_SCHEDULE", 3) == 1 ? run(*s, s->queued()) : CUDA_SUCCESS;
}

// Each thread has a context of its own, and most of the driver works in none but that.
static thread_local CUcontext current;
bool emu::has_context() { return current; }
#define IN_CONTEXT if (!current) return CUDA_ERROR_INVALID_CONTEXT

static CUresult enqueue(CUstream stream, Work work) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	return queue((Stream *)stream, std::move(work));
}

CUresult emu::enqueue(CUstream stream, Work work) { return ::enqueue(stream, std::move(work)); }

bool emu::capturing(CUstream stream) {
	std::lock_guard<std::mutex> hold(lock);
	return streams.count((Stream *)stream) && ((Stream *)stream)->capturing;
}

bool emu::on_device(const void *at, size_t bytes) { return within(device_memory, (uintptr_t)at, bytes); }

// What a capture does not allow, which ends it.
static CUresult invalidate(Graph &g, CUresult why) {
	g.invalid = true;
	return why;
}

// Memory is neither taken nor given while a stream is captured in a mode that forbids it, by whatever thread.
static CUresult memory_moves() {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	for (auto &s : streams)
		if (s.second->capturing && s.second->capturing->mode != CU_STREAM_CAPTURE_MODE_RELAXED) return invalidate(*s.second->capturing, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	return CUDA_SUCCESS;
}

static CUresult wait() {
	std::lock_guard<std::mutex> hold(lock);
	return drain();
}

static CUresult take(Memory &m, void **at, size_t bytes) {
	if (CUresult r = memory_moves()) return r;
	static std::atomic<int> taken;
	const int most = setting("KINTSUGI_EMU_ALLOCATIONS", -1);
	taken = most < 0 ? 0 : taken + 1;
	if (most >= 0 && taken > most) return CUDA_ERROR_OUT_OF_MEMORY;
	if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
	// No larger than asked for, so that a sanitizer sees what lies past the end.
	if (posix_memalign(at, 256, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
	memset(*at, 0xff, bytes);
	std::lock_guard<std::mutex> hold(lock);
	m.emplace((uintptr_t)*at, ptx::Array{(uintptr_t)*at, bytes, ptx::Shadow(bytes)});
	return CUDA_SUCCESS;
}

static CUresult give(Memory &m, void *at) {
	if (CUresult r = memory_moves()) return r;
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
	if (setting("KINTSUGI_EMU_EXCLUSIVE", 0)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
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
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	auto s = std::make_shared<Stream>();
	streams[s.get()] = s;
	*stream = (CUstream)s.get();
	return CUDA_SUCCESS;
}
ENTRY cuStreamDestroy_v2(CUstream stream) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	Stream *s = (Stream *)stream;
	if (!streams.count(s)) return CUDA_ERROR_INVALID_VALUE;
	run(*s, s->queued());
	streams.erase(s);
	return failed;
}
ENTRY cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	const Event e = *(Event *)event;
	Stream *s = (Stream *)stream;
	if (!streams.count(s)) return CUDA_ERROR_INVALID_VALUE;
	if (!e.stream) return CUDA_SUCCESS; // never recorded
	if (e.of) { // the order in which a capture is given work is one that all its streams allow
		if (e.of != e.stream->capturing) return CUDA_ERROR_INVALID_VALUE; // it is over
		if (e.of->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		if (!s->capturing) s->capture(e.of, true);
		if (s->capturing != e.of) return invalidate(*e.of, CUDA_ERROR_STREAM_CAPTURE_MERGE);
		for (auto &before : e.seen) s->seen[before.first] = std::max(s->seen[before.first], before.second);
		return CUDA_SUCCESS;
	}
	if (s->capturing) return invalidate(*s->capturing, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	return queue(s, [e] { return run(*e.stream, e.at); });
}
ENTRY cuStreamSynchronize(CUstream stream) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	Stream *s = (Stream *)stream;
	if (!streams.count(s)) return CUDA_ERROR_INVALID_VALUE;
	if (s->capturing) return invalidate(*s->capturing, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	return run(*s, s->queued());
}
ENTRY cuEventCreate(CUevent *event, unsigned flags) {
	IN_CONTEXT;
	Event *e = new Event();
	e->timed = !(flags & CU_EVENT_DISABLE_TIMING);
	*event = (CUevent)e;
	return CUDA_SUCCESS;
}
ENTRY cuEventDestroy_v2(CUevent event) {
	IN_CONTEXT;
	delete (Event *)event;
	return CUDA_SUCCESS;
}
ENTRY cuEventRecord(CUevent event, CUstream stream) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	auto at = streams.find((Stream *)stream);
	if (at == streams.end()) return CUDA_ERROR_INVALID_VALUE;
	const std::shared_ptr<Stream> s = at->second;
	if (s->capturing && s->capturing->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	*(Event *)event = {s, s->queued(), s->capturing, s->seen, ((Event *)event)->timed};
	((Event *)event)->seen[s.get()] = s->captured;
	return failed;
}
ENTRY cuEventSynchronize(CUevent event) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	const Event &e = *(Event *)event;
	if (e.of) return CUDA_ERROR_CAPTURED_EVENT;
	return e.stream ? run(*e.stream, e.at) : CUDA_SUCCESS;
}
ENTRY cuStreamBeginCapture_v2(CUstream stream, int mode) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	Stream *s = (Stream *)stream;
	if (!streams.count(s)) return CUDA_ERROR_INVALID_VALUE;
	if (s->capturing) return CUDA_ERROR_ILLEGAL_STATE;
	s->capture(std::make_shared<Graph>(), false);
	s->capturing->mode = mode, s->capturing->origin = s;
	return failed;
}
ENTRY cuStreamEndCapture(CUstream stream, CUgraph *graph) {
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	Stream *s = (Stream *)stream;
	*graph = nullptr;
	if (!streams.count(s)) return CUDA_ERROR_INVALID_VALUE;
	if (!s->capturing) return CUDA_ERROR_ILLEGAL_STATE;
	if (s->forked) return invalidate(*s->capturing, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	const auto g = s->capturing;
	Seen seen = s->seen;
	bool whole = true;
	for (auto &other : streams)
		if (other.second->capturing == g) {
			whole = whole && (other.first == s || seen[other.first] == other.second->captured);
			other.second->capture(nullptr, false);
		}
	if (g->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!whole) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	*graph = (CUgraph) new Graph(*g);
	return failed;
}
ENTRY cuGraphInstantiateWithFlags(CUgraphExec *program, CUgraph graph, unsigned long long) {
	IN_CONTEXT;
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
	IN_CONTEXT;
	std::lock_guard<std::mutex> hold(lock);
	const Graph &g = *(Graph *)program;
	std::vector<const Node *> order;
	for (const Node &n : g.nodes) order.push_back(&n);
	if (setting("KINTSUGI_EMU_SCHEDULE", 3) != 1) order = g.late();
	for (const Node *n : order)
		if (CUresult r = queue((Stream *)stream, n->work)) return r;
	return failed;
}
ENTRY cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end) {
	if (!((Event *)begin)->timed || !((Event *)end)->timed) return CUDA_ERROR_INVALID_HANDLE;
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
	IN_CONTEXT;
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
	const unsigned threads = bx * by * bz;
	// What a GPU of compute capability 8.0 or newer takes, and the least that a driver does.
	if (gx > 0x7fffffff || gy > 65535 || gz > 65535 || threads > 1024 || args.size() > 4096) return CUDA_ERROR_INVALID_VALUE;
	const char *name = f.text ? f.text->name.c_str() : f.source->name;
	const size_t takes = f.text ? f.text->params : f.source->args;
	const unsigned most = f.text ? f.text->threads : f.source->threads;
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
