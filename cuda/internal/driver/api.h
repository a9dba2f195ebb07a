// The part of the CUDA driver that is used: its types, the codes that matter here and the entry
// points, as in the driver's binary interface since version 11. A program that includes this needs
// neither CUDA's headers nor its libraries to build, and no driver to start.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_INVALID_PTX = 218,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_ILLEGAL_STATE = 401,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_ILLEGAL_ADDRESS = 700,
	CUDA_ERROR_MISALIGNED_ADDRESS = 716,
	CUDA_ERROR_LAUNCH_FAILED = 719,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
	CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
	CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
	CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
	CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
	CUDA_ERROR_CAPTURED_EVENT = 907,
};

enum {
	CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
	CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
	CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
	CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
};

enum {
	CU_JIT_ERROR_LOG_BUFFER = 5,
	CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
	CU_STREAM_NON_BLOCKING = 1,
	CU_STREAM_CAPTURE_MODE_RELAXED = 2,
	CU_EVENT_DEFAULT = 0,
	CU_EVENT_DISABLE_TIMING = 2,
};

#define CU_LAUNCH_PARAM_END ((void *)0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)2)

// X(short name, name in the library, parameters)
#define DRIVER_FUNCTIONS(X) \
	X(init, cuInit, (unsigned flags)) \
	X(driver_version, cuDriverGetVersion, (int *version)) \
	X(device_count, cuDeviceGetCount, (int *count)) \
	X(device_get, cuDeviceGet, (CUdevice * device, int ordinal)) \
	X(device_name, cuDeviceGetName, (char *name, int len, CUdevice device)) \
	X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, CUdevice device)) \
	X(device_memory, cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device)) \
	X(primary_retain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device)) \
	X(primary_release, cuDevicePrimaryCtxRelease_v2, (CUdevice device)) \
	X(set_current, cuCtxSetCurrent, (CUcontext context)) \
	X(error_name, cuGetErrorName, (CUresult code, const char **name)) \
	X(error_string, cuGetErrorString, (CUresult code, const char **text)) \
	X(mem_alloc, cuMemAlloc_v2, (CUdeviceptr * at, size_t bytes)) \
	X(mem_free, cuMemFree_v2, (CUdeviceptr at)) \
	X(host_alloc, cuMemHostAlloc, (void **at, size_t bytes, unsigned flags)) \
	X(host_free, cuMemFreeHost, (void *at)) \
	X(copy_in, cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream)) \
	X(copy_out, cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream)) \
	X(copy, cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
	X(fill, cuMemsetD8Async, (CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream)) \
	X(stream_create, cuStreamCreate, (CUstream * stream, unsigned flags)) \
	X(stream_destroy, cuStreamDestroy_v2, (CUstream stream)) \
	X(stream_wait, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags)) \
	X(stream_synchronize, cuStreamSynchronize, (CUstream stream)) \
	X(capture_begin, cuStreamBeginCapture_v2, (CUstream stream, int mode)) \
	X(capture_end, cuStreamEndCapture, (CUstream stream, CUgraph *graph)) \
	X(graph_instantiate, cuGraphInstantiateWithFlags, (CUgraphExec * program, CUgraph graph, unsigned long long flags)) \
	X(graph_destroy, cuGraphDestroy, (CUgraph graph)) \
	X(graph_launch, cuGraphLaunch, (CUgraphExec program, CUstream stream)) \
	X(graph_close, cuGraphExecDestroy, (CUgraphExec program)) \
	X(event_create, cuEventCreate, (CUevent * event, unsigned flags)) \
	X(event_destroy, cuEventDestroy_v2, (CUevent event)) \
	X(event_record, cuEventRecord, (CUevent event, CUstream stream)) \
	X(event_synchronize, cuEventSynchronize, (CUevent event)) \
	X(event_elapsed, cuEventElapsedTime, (float *milliseconds, CUevent begin, CUevent end)) \
	X(module_load, cuModuleLoadDataEx, (CUmodule * module, const void *image, unsigned n, int *options, void **values)) \
	X(module_unload, cuModuleUnload, (CUmodule module)) \
	X(module_function, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name)) \
	X(occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, CUfunction function, int threads, size_t shared)) \
	X(launch, cuLaunchKernel, (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params, void **extra))
