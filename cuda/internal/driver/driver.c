//go:build gpu && cgo && linux

#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>

static __thread char message[400];

const char *driver_open(const char *library, driver *d) {
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL); // never closed: a driver has threads
	if (!handle) {
		snprintf(message, sizeof message, "%s", dlerror());
		return message;
	}
#define X(name, symbol, params) \
	*(void **)&d->name = dlsym(handle, #symbol); \
	if (!d->name) { \
		snprintf(message, sizeof message, "%s has no %s: the driver is too old", library, #symbol); \
		return message; \
	}
	DRIVER_FUNCTIONS(X)
#undef X
	return 0;
}

CUresult driver_init(driver *d) { return d->init(0); }
CUresult driver_version(driver *d, int *version) { return d->driver_version(version); }
CUresult driver_count(driver *d, int *count) { return d->device_count(count); }
CUresult driver_device(driver *d, int ordinal, int *device) { return d->device_get(device, ordinal); }
CUresult driver_attribute(driver *d, int device, int attribute, int *value) { return d->device_attribute(value, attribute, device); }
CUresult driver_name(driver *d, int device, char *name, int len) { return d->device_name(name, len, device); }
CUresult driver_memory(driver *d, int device, size_t *bytes) { return d->device_memory(bytes, device); }
CUresult driver_retain(driver *d, int device) { return d->primary_retain(&d->context, device); }
CUresult driver_release(driver *d, int device) { return d->primary_release(device); }

const char *driver_error_name(driver *d, CUresult code) {
	const char *s = 0;
	return d->error_name(code, &s) == CUDA_SUCCESS && s ? s : "unknown code";
}

const char *driver_error_text(driver *d, CUresult code) {
	const char *s = 0;
	return d->error_string(code, &s) == CUDA_SUCCESS && s ? s : "the driver has no text for it";
}

// CALL makes the context current and calls an entry point.
#define CALL(name, ...) \
	CUresult r = d->set_current(d->context); \
	return r != CUDA_SUCCESS ? r : d->name(__VA_ARGS__)

CUresult driver_alloc(driver *d, size_t bytes, uint64_t *at) { CALL(mem_alloc, (CUdeviceptr *)at, bytes); }
CUresult driver_free(driver *d, uint64_t at) { CALL(mem_free, at); }
CUresult driver_host_alloc(driver *d, size_t bytes, void **at) { CALL(host_alloc, at, bytes, 0); }
CUresult driver_host_free(driver *d, void *at) { CALL(host_free, at); }
CUresult driver_copy_in(driver *d, uint64_t to, const void *from, size_t bytes, uintptr_t stream) { CALL(copy_in, to, from, bytes, (CUstream)stream); }
CUresult driver_copy_out(driver *d, void *to, uint64_t from, size_t bytes, uintptr_t stream) { CALL(copy_out, to, from, bytes, (CUstream)stream); }
CUresult driver_copy(driver *d, uint64_t to, uint64_t from, size_t bytes, uintptr_t stream) { CALL(copy, to, from, bytes, (CUstream)stream); }
CUresult driver_fill(driver *d, uint64_t at, unsigned char value, size_t bytes, uintptr_t stream) { CALL(fill, at, value, bytes, (CUstream)stream); }
CUresult driver_stream_create(driver *d, uintptr_t *stream) { CALL(stream_create, (CUstream *)stream, CU_STREAM_NON_BLOCKING); }
CUresult driver_stream_destroy(driver *d, uintptr_t stream) { CALL(stream_destroy, (CUstream)stream); }
CUresult driver_stream_wait(driver *d, uintptr_t stream, uintptr_t event) { CALL(stream_wait, (CUstream)stream, (CUevent)event, 0); }
CUresult driver_synchronize(driver *d, uintptr_t stream) { CALL(stream_synchronize, (CUstream)stream); }
CUresult driver_event_create(driver *d, unsigned flags, uintptr_t *event) { CALL(event_create, (CUevent *)event, flags); }
CUresult driver_event_destroy(driver *d, uintptr_t event) { CALL(event_destroy, (CUevent)event); }
CUresult driver_event_record(driver *d, uintptr_t event, uintptr_t stream) { CALL(event_record, (CUevent)event, (CUstream)stream); }
CUresult driver_event_synchronize(driver *d, uintptr_t event) { CALL(event_synchronize, (CUevent)event); }

CUresult driver_event_elapsed(driver *d, uintptr_t begin, uintptr_t end, float *milliseconds) {
	CUresult r = d->set_current(d->context);
	if (r == CUDA_SUCCESS) r = d->event_synchronize((CUevent)end);
	return r != CUDA_SUCCESS ? r : d->event_elapsed(milliseconds, (CUevent)begin, (CUevent)end);
}

CUresult driver_capture(driver *d, uintptr_t stream) { CALL(capture_begin, (CUstream)stream, CU_STREAM_CAPTURE_MODE_RELAXED); }

CUresult driver_captured(driver *d, uintptr_t stream, uintptr_t *program) {
	CUgraph graph = 0;
	CUresult r = d->set_current(d->context);
	if (r == CUDA_SUCCESS) r = d->capture_end((CUstream)stream, &graph);
	if (r != CUDA_SUCCESS) return r;
	r = d->graph_instantiate((CUgraphExec *)program, graph, 0);
	const CUresult destroyed = d->graph_destroy(graph);
	return r != CUDA_SUCCESS ? r : destroyed;
}

CUresult driver_replay(driver *d, uintptr_t program, uintptr_t stream) { CALL(graph_launch, (CUgraphExec)program, (CUstream)stream); }
CUresult driver_program_destroy(driver *d, uintptr_t program) { CALL(graph_close, (CUgraphExec)program); }

CUresult driver_load(driver *d, const void *image, uintptr_t *module, char *log, size_t log_size) {
	int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)log_size};
	CALL(module_load, (CUmodule *)module, image, 2, options, values);
}

CUresult driver_unload(driver *d, uintptr_t module) { CALL(module_unload, (CUmodule)module); }
CUresult driver_function(driver *d, uintptr_t module, const char *name, uintptr_t *function) { CALL(module_function, (CUfunction *)function, (CUmodule)module, name); }

CUresult driver_occupancy(driver *d, uintptr_t function, int threads, int *blocks) { CALL(occupancy, blocks, (CUfunction)function, threads, 0); }

CUresult driver_launch(driver *d, uintptr_t function, unsigned gx, unsigned gy, unsigned gz, unsigned threads, uintptr_t stream, const void *args, size_t size) {
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)args, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
	CALL(launch, (CUfunction)function, gx, gy, gz, threads, 1, 1, 0, (CUstream)stream, 0, extra);
}
