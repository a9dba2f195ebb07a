//go:build gpu && cgo && linux

package driver

// #cgo LDFLAGS: -ldl
// #cgo noescape driver_launch
// #cgo nocallback driver_launch
// #include <stdlib.h>
// #include "driver.h"
import "C"

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// The oldest driver and the oldest device on which the kernels run: PTX of CUDA 12.4, for compute
// capability 8.0.
const (
	needVersion = 12040
	needMajor   = 8
)

type context struct {
	d      *C.driver
	device C.int // the driver's handle of the device
	name   string
	sms    int
	memory int64
	major  int
	minor  int
}

// load opens the library and initialises the driver; "" means the driver's usual name.
func load(library string) (*C.driver, error) {
	if library == "" {
		library = "libcuda.so.1"
	}
	d := (*C.driver)(C.calloc(1, C.sizeof_driver))
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	runtime.LockOSThread() // the error message belongs to the thread
	defer runtime.UnlockOSThread()
	if problem := C.driver_open(path, d); problem != nil {
		err := fmt.Errorf("no CUDA driver: %s", C.GoString(problem))
		C.free(unsafe.Pointer(d))
		return nil, err
	}
	c := &context{d: d}
	if err := c.check("cuInit", C.driver_init(d)); err != nil {
		C.free(unsafe.Pointer(d))
		return nil, fmt.Errorf("the CUDA driver does not start: %w", err)
	}
	return d, nil
}

// Usable returns the error that [Open] would return for a device, without opening it; nil: it can
// be used.
func Usable(library string, ordinal int) error {
	d, err := load(library)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(d))
	return (&context{d: d}).find(ordinal)
}

// List returns the numbers of the devices that can be used. If there are none, it returns the error
// that [Open] would return for the first.
func List(library string) (usable []int, err error) {
	d, err := load(library)
	if err != nil {
		return nil, err
	}
	defer C.free(unsafe.Pointer(d))
	c := &context{d: d}
	n, err := c.count()
	if err != nil {
		return nil, err
	}
	for i := range n {
		if c.find(i) == nil {
			usable = append(usable, i)
		}
	}
	if len(usable) == 0 {
		return nil, c.find(0)
	}
	return usable, nil
}

// Open opens a device, counted from 0, of the driver in the library; "" means libcuda.so.1. The
// error says what the machine lacks.
func Open(library string, ordinal int) (Context, error) {
	d, err := load(library)
	if err != nil {
		return nil, err
	}
	c := &context{d: d}
	if err := c.open(ordinal); err != nil {
		C.free(unsafe.Pointer(d))
		return nil, err
	}
	return c, nil
}

// count checks the version of the driver, and returns how many devices it has.
func (c *context) count() (int, error) {
	var version, count C.int
	if err := c.check("cuDriverGetVersion", C.driver_version(c.d, &version)); err != nil {
		return 0, err
	}
	if version < needVersion {
		return 0, fmt.Errorf("the driver is of CUDA %d.%d; %d.%d or newer is needed", version/1000, version%1000/10, needVersion/1000, needVersion%1000/10)
	}
	err := c.check("cuDeviceGetCount", C.driver_count(c.d, &count))
	return int(count), err
}

// find finds the device and checks that it has what the kernels need.
func (c *context) find(ordinal int) error {
	count, err := c.count()
	if err != nil {
		return err
	}
	if ordinal < 0 || ordinal >= count {
		return fmt.Errorf("no device %d: the driver has %d", ordinal, count)
	}
	if err := c.check("cuDeviceGet", C.driver_device(c.d, C.int(ordinal), &c.device)); err != nil {
		return err
	}
	var values [3]C.int
	for i, attribute := range []C.int{C.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, C.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, C.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT} {
		if err := c.check("cuDeviceGetAttribute", C.driver_attribute(c.d, c.device, attribute, &values[i])); err != nil {
			return err
		}
	}
	c.major, c.minor, c.sms = int(values[0]), int(values[1]), int(values[2])
	var name [128]C.char
	var memory C.size_t
	if err := c.check("cuDeviceGetName", C.driver_name(c.d, c.device, &name[0], C.int(len(name)))); err != nil {
		return err
	}
	if err := c.check("cuDeviceTotalMem", C.driver_memory(c.d, c.device, &memory)); err != nil {
		return err
	}
	c.name, c.memory = C.GoString(&name[0]), int64(memory)
	if c.major < needMajor {
		return fmt.Errorf("device %d, %s, has compute capability %d.%d; %d.0 or newer is needed", ordinal, c.name, c.major, c.minor, needMajor)
	}
	return nil
}

func (c *context) open(ordinal int) error {
	if err := c.find(ordinal); err != nil {
		return err
	}
	err := c.check("cuDevicePrimaryCtxRetain", C.driver_retain(c.d, c.device))
	if refusal, ok := errors.AsType[*Error](err); ok && refusal.Code == codeUnavailable {
		return fmt.Errorf("device %d, %s, is another process's: its compute mode is exclusive (nvidia-smi -q -d COMPUTE): %w", ordinal, c.name, err)
	}
	return err
}

// check turns a code of the driver into an error.
func (c *context) check(op string, code C.CUresult) error {
	if code == C.CUDA_SUCCESS {
		return nil
	}
	return &Error{Code: int(code), Name: C.GoString(C.driver_error_name(c.d, code)), Text: C.GoString(C.driver_error_text(c.d, code)), Op: op}
}

func (c *context) Name() string                   { return c.name }
func (c *context) Multiprocessors() int           { return c.sms }
func (c *context) Memory() int64                  { return c.memory }
func (c *context) Capability() (major, minor int) { return c.major, c.minor }

func (c *context) Alloc(bytes int) (Ptr, error) {
	var at C.uint64_t
	err := c.check(fmt.Sprintf("cuMemAlloc of %d bytes", bytes), C.driver_alloc(c.d, C.size_t(bytes), &at))
	return Ptr(at), err
}

func (c *context) Free(at Ptr) error {
	return c.check("cuMemFree", C.driver_free(c.d, C.uint64_t(at)))
}

func (c *context) HostAlloc(n int) ([]byte, error) {
	var at unsafe.Pointer
	if err := c.check(fmt.Sprintf("cuMemHostAlloc of %d bytes", n), C.driver_host_alloc(c.d, C.size_t(n), &at)); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(at), n), nil
}

func (c *context) HostFree(memory []byte) error {
	return c.check("cuMemFreeHost", C.driver_host_free(c.d, unsafe.Pointer(unsafe.SliceData(memory))))
}

func (c *context) CopyIn(to Ptr, from []byte, s Stream) error {
	return c.check("cuMemcpyHtoDAsync", C.driver_copy_in(c.d, C.uint64_t(to), unsafe.Pointer(unsafe.SliceData(from)), C.size_t(len(from)), C.uintptr_t(s)))
}

func (c *context) CopyOut(to []byte, from Ptr, s Stream) error {
	return c.check("cuMemcpyDtoHAsync", C.driver_copy_out(c.d, unsafe.Pointer(unsafe.SliceData(to)), C.uint64_t(from), C.size_t(len(to)), C.uintptr_t(s)))
}

func (c *context) Copy(to, from Ptr, n int, s Stream) error {
	return c.check("cuMemcpyDtoDAsync", C.driver_copy(c.d, C.uint64_t(to), C.uint64_t(from), C.size_t(n), C.uintptr_t(s)))
}

func (c *context) Fill(at Ptr, value byte, n int, s Stream) error {
	return c.check("cuMemsetD8Async", C.driver_fill(c.d, C.uint64_t(at), C.uchar(value), C.size_t(n), C.uintptr_t(s)))
}

func (c *context) NewStream() (Stream, error) {
	var s C.uintptr_t
	err := c.check("cuStreamCreate", C.driver_stream_create(c.d, &s))
	return Stream(s), err
}

func (c *context) CloseStream(s Stream) error {
	return c.check("cuStreamDestroy", C.driver_stream_destroy(c.d, C.uintptr_t(s)))
}

func (c *context) Synchronize(s Stream) error {
	return c.check("cuStreamSynchronize", C.driver_synchronize(c.d, C.uintptr_t(s)))
}

func (c *context) Wait(s Stream, e Event) error {
	return c.check("cuStreamWaitEvent", C.driver_stream_wait(c.d, C.uintptr_t(s), C.uintptr_t(e)))
}

func (c *context) NewEvent() (Event, error) { return c.newEvent(C.CU_EVENT_DISABLE_TIMING) }

func (c *context) NewTimer() (Event, error) { return c.newEvent(C.CU_EVENT_DEFAULT) }

func (c *context) newEvent(flags C.uint) (Event, error) {
	var e C.uintptr_t
	err := c.check("cuEventCreate", C.driver_event_create(c.d, flags, &e))
	return Event(e), err
}

func (c *context) CloseEvent(e Event) error {
	return c.check("cuEventDestroy", C.driver_event_destroy(c.d, C.uintptr_t(e)))
}

func (c *context) Record(e Event, s Stream) error {
	return c.check("cuEventRecord", C.driver_event_record(c.d, C.uintptr_t(e), C.uintptr_t(s)))
}

func (c *context) Await(e Event) error {
	return c.check("cuEventSynchronize", C.driver_event_synchronize(c.d, C.uintptr_t(e)))
}

func (c *context) Elapsed(begin, end Event) (float64, error) {
	var ms C.float
	err := c.check("cuEventElapsedTime", C.driver_event_elapsed(c.d, C.uintptr_t(begin), C.uintptr_t(end), &ms))
	return float64(ms) / 1000, err
}

func (c *context) Capture(s Stream) error {
	return c.check("cuStreamBeginCapture", C.driver_capture(c.d, C.uintptr_t(s)))
}

func (c *context) Captured(s Stream) (Program, error) {
	var p C.uintptr_t
	err := c.check("cuStreamEndCapture and cuGraphInstantiate", C.driver_captured(c.d, C.uintptr_t(s), &p))
	return Program(p), err
}

func (c *context) Replay(p Program, s Stream) error {
	return c.check("cuGraphLaunch", C.driver_replay(c.d, C.uintptr_t(p), C.uintptr_t(s)))
}

func (c *context) CloseProgram(p Program) error {
	return c.check("cuGraphExecDestroy", C.driver_program_destroy(c.d, C.uintptr_t(p)))
}

func (c *context) Load(image []byte) (Module, error) {
	var m C.uintptr_t
	log := make([]byte, 8<<10)
	err := c.check("cuModuleLoadData", C.driver_load(c.d, unsafe.Pointer(unsafe.SliceData(image)), &m, (*C.char)(unsafe.Pointer(&log[0])), C.size_t(len(log))))
	if text, _, _ := bytes.Cut(log, []byte{0}); err != nil && len(text) > 0 {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(text))
	}
	return Module(m), err
}

func (c *context) Unload(m Module) error {
	return c.check("cuModuleUnload", C.driver_unload(c.d, C.uintptr_t(m)))
}

func (c *context) Function(m Module, name string) (Function, error) {
	var f C.uintptr_t
	s := C.CString(name)
	defer C.free(unsafe.Pointer(s))
	err := c.check("cuModuleGetFunction of "+name, C.driver_function(c.d, C.uintptr_t(m), s, &f))
	return Function(f), err
}

func (c *context) Resident(f Function, threads int) (int, error) {
	var n C.int
	err := c.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", C.driver_occupancy(c.d, C.uintptr_t(f), C.int(threads), &n))
	return int(n) * c.sms, err
}

func (c *context) Launch(f Function, blocks [3]int, threads int, s Stream, args unsafe.Pointer, size uintptr) error {
	return c.check("cuLaunchKernel", C.driver_launch(c.d, C.uintptr_t(f), C.uint(blocks[0]), C.uint(blocks[1]), C.uint(blocks[2]), C.uint(threads), C.uintptr_t(s), args, C.size_t(size)))
}

// Close releases the device. The context must not be used afterwards.
func (c *context) Close() error {
	if c.d == nil {
		return errors.New("close a device: it is closed already")
	}
	err := c.check("cuDevicePrimaryCtxRelease", C.driver_release(c.d, c.device))
	C.free(unsafe.Pointer(c.d))
	c.d = nil
	return err
}
