// The driver's entry points from one library. Each has a function that first makes a context
// current: Go cannot call through pointers, and moves goroutines from thread to thread.
#pragma once
#include "api.h"

typedef struct {
#define X(name, symbol, params) CUresult(*name) params;
	DRIVER_FUNCTIONS(X)
#undef X
	CUcontext context;
} driver;

// Fills the table. Returns 0, or an error message in memory of the calling thread.
const char *driver_open(const char *library, driver *d);

CUresult driver_init(driver *d);
CUresult driver_version(driver *d, int *version);
CUresult driver_count(driver *d, int *count);
CUresult driver_device(driver *d, int ordinal, int *device);
CUresult driver_attribute(driver *d, int device, int attribute, int *value);
CUresult driver_name(driver *d, int device, char *name, int len);
CUresult driver_memory(driver *d, int device, size_t *bytes);
CUresult driver_retain(driver *d, int device);
CUresult driver_release(driver *d, int device);
const char *driver_error_name(driver *d, CUresult code);
const char *driver_error_text(driver *d, CUresult code);

CUresult driver_alloc(driver *d, size_t bytes, uint64_t *at);
CUresult driver_free(driver *d, uint64_t at);
CUresult driver_host_alloc(driver *d, size_t bytes, void **at);
CUresult driver_host_free(driver *d, void *at);
CUresult driver_copy_in(driver *d, uint64_t to, const void *from, size_t bytes, uintptr_t stream);
CUresult driver_copy_out(driver *d, void *to, uint64_t from, size_t bytes, uintptr_t stream);
CUresult driver_copy(driver *d, uint64_t to, uint64_t from, size_t bytes, uintptr_t stream);
CUresult driver_fill(driver *d, uint64_t at, unsigned char value, size_t bytes, uintptr_t stream);
CUresult driver_stream_create(driver *d, uintptr_t *stream);
CUresult driver_stream_destroy(driver *d, uintptr_t stream);
CUresult driver_stream_wait(driver *d, uintptr_t stream, uintptr_t event);
CUresult driver_synchronize(driver *d, uintptr_t stream);
CUresult driver_event_create(driver *d, unsigned flags, uintptr_t *event);
CUresult driver_event_destroy(driver *d, uintptr_t event);
CUresult driver_event_record(driver *d, uintptr_t event, uintptr_t stream);
CUresult driver_event_synchronize(driver *d, uintptr_t event);
CUresult driver_event_elapsed(driver *d, uintptr_t begin, uintptr_t end, float *milliseconds);
CUresult driver_capture(driver *d, uintptr_t stream);
CUresult driver_captured(driver *d, uintptr_t stream, uintptr_t *program);
CUresult driver_replay(driver *d, uintptr_t program, uintptr_t stream);
CUresult driver_program_destroy(driver *d, uintptr_t program);
CUresult driver_load(driver *d, const void *image, uintptr_t *module, char *log, size_t log_size);
CUresult driver_unload(driver *d, uintptr_t module);
CUresult driver_function(driver *d, uintptr_t module, const char *name, uintptr_t *function);
CUresult driver_occupancy(driver *d, uintptr_t function, int threads, int *blocks);
CUresult driver_launch(driver *d, uintptr_t function, unsigned gx, unsigned gy, unsigned gz, unsigned threads, uintptr_t stream, const void *args, size_t size);
