// Kernels of the emulated driver.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "streams.h"

static char something; // stands for a module of sources; only its address is used

// A kernel: its source, compiled for this processor, and the loaded PTX if that is to run.
struct Function {
	const emu::Kernel *source;
	const ptx::Kernel *text;
};
static std::deque<Function> functions;
std::atomic<int> emu::modules;

// Returns what a text of PTX says. A text is read once: tests load the same kernels many times.
static ptx::Module *read_once(const char *text, std::string &error) {
	static std::mutex alone;
	static std::map<std::string, std::unique_ptr<ptx::Module>> known; // the same text without some barrier is another one
	std::lock_guard<std::mutex> hold(alone);
	const char *without = getenv("KINTSUGI_EMU_WITHOUT");
	auto &m = known[std::string(without ? without : "") + "\n" + text];
	if (!m) m = ptx::read(text, error);
	return m.get();
}
ENTRY cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, int *options, void **values) {
	IN_CONTEXT;
	*module = (CUmodule)&something;
	emu::modules++;
	if (!emu::interprets()) return CUDA_SUCCESS;
	std::string error;
	*module = (CUmodule)read_once((const char *)image, error);
	if (*module) return CUDA_SUCCESS;
	emu::modules--;
	char *log = nullptr;
	size_t size = 0;
	for (unsigned i = 0; i < n; i++) {
		if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log = (char *)values[i];
		if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) size = (size_t)values[i];
	}
	if (log && size) snprintf(log, size, "%s", error.c_str());
	return CUDA_ERROR_INVALID_PTX;
}
ENTRY cuModuleUnload(CUmodule) {
	emu::modules--;
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
	std::lock_guard<std::mutex> hold(emu::lock);
	functions.push_back(f);
	*function = (CUfunction)&functions.back();
	return CUDA_SUCCESS;
}
ENTRY cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction, int, size_t) {
	IN_CONTEXT;
	*blocks = 5;
	return CUDA_SUCCESS;
}
ENTRY cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned, CUstream s, void **, void **extra) {
	const Function f = *(const Function *)function;
	if (!extra || extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER || extra[2] != CU_LAUNCH_PARAM_BUFFER_SIZE || !gx || !gy || !gz) return CUDA_ERROR_INVALID_VALUE;
	const std::string args((const char *)extra[1], *(size_t *)extra[3]);
	const unsigned threads = bx * by * bz;
	// What every GPU of compute capability 8.0 or newer accepts, and every driver.
	if (gx > 0x7fffffff || gy > 65535 || gz > 65535 || threads > 1024 || args.size() > 4096) return CUDA_ERROR_INVALID_VALUE;
	const char *name = f.text ? f.text->name.c_str() : f.source->name;
	const size_t takes = f.text ? f.text->params : f.source->args;
	const unsigned most = f.text ? f.text->threads : f.source->threads;
	if (args.size() != takes || threads > most) {
		fprintf(stderr, "emulated driver: %s: %zu bytes of arguments, it takes %zu; %u threads, at most %u\n", name, args.size(), takes, threads, most);
		return CUDA_ERROR_INVALID_VALUE;
	}
	const unsigned schedule = emu::setting("KINTSUGI_EMU_SCHEDULE", 3);
	if (f.text)
		return emu::enqueue(s, {"kernel " + f.text->name, [=] {
			const ptx::Fault fault = ptx::launch(*f.text, {gx, gy, gz}, threads, args.data(), emu::array_at, schedule);
			return fault.code ? emu::say((CUresult)fault.code, "kernel " + fault.text) : CUDA_SUCCESS;
		}});
	return emu::enqueue(s, {name, [=] {
		alignas(16) char copy[4096];
		memcpy(copy, args.data(), args.size());
		const char *wrong = emu::launch({gx, gy, gz}, {bx, by, bz}, [&] { f.source->run(copy); }, schedule);
		return wrong ? emu::say(CUDA_ERROR_LAUNCH_FAILED, std::string("kernel ") + name + ": " + wrong) : CUDA_SUCCESS;
	}});
}
