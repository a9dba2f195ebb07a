// Package driver calls the CUDA driver, and cuBLAS if there is one. It loads both at run time.
// Begin with [Open] and [Context].
//
// A program built with the tag gpu and cgo starts on any Linux machine: it links to no NVIDIA
// library, includes none of NVIDIA's headers, and opens libcuda.so.1 in [Open]. Other builds have
// the same types; their Open returns [ErrBuild].
//
// Any goroutine may use a [Context]: each call makes the context current on the thread that runs
// it. Calls that take a [Stream] queue work and return. Host memory that they are given must come
// from HostAlloc, and must stay until the stream has been synchronized.
package driver

import (
	"errors"
	"fmt"
	"unsafe"
)

// ErrBuild means that this program cannot use a GPU on any machine.
var ErrBuild = errors.New("this program was built without CUDA: build it on Linux with a C compiler and -tags gpu (make cuda)")

// Ptr is an address in a device's memory.
type Ptr uint64

// The handles of the driver.
type (
	Stream   uintptr
	Event    uintptr
	Program  uintptr // recorded work, which is launched as a whole
	Module   uintptr
	Function uintptr
)

// Context is one device. All methods except the first four return an [*Error] if the driver
// refuses.
type Context interface {
	Name() string
	Multiprocessors() int
	Memory() int64                  // bytes
	Capability() (major, minor int) // such as 9, 0

	Alloc(bytes int) (Ptr, error) // at a multiple of 256
	Free(Ptr) error
	HostAlloc(bytes int) ([]byte, error) // pinned, so that copies run while the processor works
	HostFree([]byte) error

	CopyIn(to Ptr, from []byte, s Stream) error
	CopyOut(to []byte, from Ptr, s Stream) error
	Copy(to, from Ptr, bytes int, s Stream) error
	Fill(at Ptr, value byte, bytes int, s Stream) error

	NewStream() (Stream, error)
	CloseStream(Stream) error
	Synchronize(Stream) error
	Wait(s Stream, e Event) error // work that is queued on s from now on comes after e
	NewEvent() (Event, error)     // for Wait alone: the cheapest for the GPU
	NewTimer() (Event, error)     // an event that records its time, for Elapsed
	CloseEvent(Event) error
	Record(Event, Stream) error
	Await(Event) error                                     // waits for all work before the event's last Record
	Elapsed(begin, end Event) (seconds float64, err error) // of two timers; waits for end

	// Capture begins to record work: until Captured, work queued on s is recorded and not done. A
	// replay uses the same arguments and addresses.
	Capture(s Stream) error
	Captured(s Stream) (Program, error)
	Replay(Program, Stream) error
	CloseProgram(Program) error

	Load(image []byte) (Module, error) // PTX that ends with a zero byte, or machine code
	Unload(Module) error               // its functions must not be used afterwards
	Function(m Module, name string) (Function, error)
	Resident(f Function, threads int) (int, error) // number of blocks of so many threads that the device runs at once
	// Launch runs f on blocks of the given number of threads. args points to its parameter of size
	// bytes, which is read before Launch returns.
	Launch(f Function, blocks [3]int, threads int, s Stream, args unsafe.Pointer, size uintptr) error

	// BLAS opens cuBLAS. library is its path; "" means the first of libcublas.so.12, .13 and .11
	// that the system finds and that initialises. The error says why there is none. Close the BLAS
	// before the context.
	BLAS(library string) (BLAS, error)

	Close() error
}

// BLAS is cuBLAS. One goroutine uses it at a time. Its errors are texts and not [*Error]: after a
// fault on the GPU, the driver tells what the fault was.
type BLAS interface {
	String() string // such as "cuBLAS 12.8.4 (libcublas.so.12)"

	// Configure must be called once, before any product. It sets the stream of the products and
	// gives them a workspace, at a multiple of 256, until Close. With a fixed workspace each run
	// computes a product in the same way, and a captured product allocates nothing. cuBLAS may
	// compute in a higher precision than the given one if it sees no gain.
	Configure(s Stream, workspace Ptr, bytes int, precision Precision) error

	// Multiply queues the products of a batch.
	Multiply(p *Product) error

	Close() error
}

// Precision is the format to which the factors of products are rounded when they are read; in
// memory they are float32. Sums are float32 in every precision.
type Precision int

// The precisions. TF32 and BF16 are for the matrix units.
const (
	FP32 Precision = iota
	TF32           // 11 significant bits, and the exponents of float32
	BF16           // 8 significant bits, and the exponents of float32
)

// String returns the name in capitals.
func (p Precision) String() string { return [...]string{"FP32", "TF32", "BF16"}[p] }

// Product is C = A·B, or C += A·B with Accumulate, for each matrix of a batch. The matrices are
// row-major float32, m×k and k×n. All numbers except strides fit in 32 bits.
type Product struct {
	A, B, C                              Ptr
	M, N, K                              int
	LDA, LDB, LDC                        int // values from one stored row to the next
	StrideA, StrideB, StrideC            int // values from one matrix to the next; 0: the batch shares one matrix (not for C)
	ATransposed, BTransposed, Accumulate bool
	Batch                                int // at least 1
}

// Error is the driver's refusal of a call.
type Error struct {
	Code int
	Name string // such as CUDA_ERROR_OUT_OF_MEMORY
	Text string
	Op   string // the call
}

// Error names the call and gives the driver's answer.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (%d): %s", e.Op, e.Name, e.Code, e.Text)
}

// The driver's codes that matter here: those after which, according to cuda.h, the process must be
// restarted, and the others in their range.
const (
	codeUnavailable   = 46 // another process has exclusive use of the device
	codeUncorrectable = 214
	codeNVLink        = 220
	codeContained     = 226
	firstFault        = 700
	lastFault         = 719
	codeTensorMemory  = 721
	codeMPS           = 810 // the daemon or the client has died
	codeExternal      = 911
	codeUnknown       = 999
	tooManyResources  = 701 // a launch that cannot fit; the context stays usable
	peerEnabled       = 704
	peerDisabled      = 705
	contextInUse      = 708
	tooManyPeers      = 711
	hostRegistered    = 712
	hostUnregistered  = 713
)

// Fatal reports whether the context cannot be used after the error: its memory is lost, and every
// later call fails.
func (e *Error) Fatal() bool {
	switch e.Code {
	case codeUncorrectable, codeNVLink, codeContained, codeTensorMemory, codeMPS, codeExternal, codeUnknown:
		return true
	case tooManyResources, peerEnabled, peerDisabled, contextInUse, tooManyPeers, hostRegistered, hostUnregistered:
		return false
	}
	return e.Code >= firstFault && e.Code <= lastFault
}
