// Package driver calls the CUDA driver, and cuBLAS where there is one, which it loads when it is asked to.
//
// A program built with the tag gpu and cgo starts on any Linux machine: it links to no library of
// NVIDIA's, includes none of its headers, and opens libcuda.so.1 in [Open]. Other builds have the
// same types, and Open says why it cannot.
//
// A [Context] may be used by any goroutine: each call makes it current on the thread that it runs on. Calls that take a
// [Stream] queue work and return; memory of the host that they name must be of HostAlloc and stay until the stream has
// been synchronized.
package driver

import (
	"errors"
	"fmt"
	"unsafe"
)

// ErrBuild says that the program cannot use any GPU, whatever the machine has.
var ErrBuild = errors.New("this program was built without CUDA: build it on Linux with a C compiler and -tags gpu (make cuda)")

// Ptr is an address in a device's memory.
type Ptr uint64

// Handles of the driver.
type (
	Stream   uintptr
	Event    uintptr
	Program  uintptr // what a stream was given once, to be done again
	Module   uintptr
	Function uintptr
)

// Context is one device. All methods but the first four return an [*Error] when the driver refuses.
type Context interface {
	Name() string
	Multiprocessors() int
	Memory() int64                  // bytes
	Capability() (major, minor int) // such as 9, 0

	Alloc(bytes int) (Ptr, error) // at a multiple of 256
	Free(Ptr) error
	HostAlloc(bytes int) ([]byte, error) // pinned, so that copies run beside the processor
	HostFree([]byte) error

	CopyIn(to Ptr, from []byte, s Stream) error
	CopyOut(to []byte, from Ptr, s Stream) error
	Copy(to, from Ptr, bytes int, s Stream) error
	Fill(at Ptr, value byte, bytes int, s Stream) error

	NewStream() (Stream, error)
	CloseStream(Stream) error
	Synchronize(Stream) error
	Wait(s Stream, e Event) error // what s does from now on comes after e
	NewEvent() (Event, error)     // for Wait alone, which takes least of the GPU
	NewTimer() (Event, error)     // that knows when it was, for Elapsed
	CloseEvent(Event) error
	Record(Event, Stream) error
	Await(Event) error                                     // returns when all is done that came before its last Record
	Elapsed(begin, end Event) (seconds float64, err error) // of timers; waits for end

	// Capture makes what is queued on s a program, in place of doing it, until Captured. Arguments
	// and addresses stay what they were.
	Capture(s Stream) error
	Captured(s Stream) (Program, error)
	Replay(Program, Stream) error
	CloseProgram(Program) error

	Load(image []byte) (Module, error) // PTX that ends with a zero byte, or machine code
	Unload(Module) error               // its functions must not be used afterwards
	Function(m Module, name string) (Function, error)
	Resident(f Function, threads int) (int, error) // how many blocks of so many threads the device runs at once
	// Launch runs f on blocks of that many threads. args are the size bytes of its parameter, and are read before it
	// returns.
	Launch(f Function, blocks [3]int, threads int, s Stream, args unsafe.Pointer, size uintptr) error

	// BLAS opens cuBLAS: a library by its path, or "" for the first of libcublas.so.12, .13 and .11
	// that the system finds and that starts. The error says why there is none. Close it before the
	// context.
	BLAS(library string) (BLAS, error)

	Close() error
}

// BLAS is cuBLAS. It is used by one goroutine at a time. Errors are texts and no [*Error]: after a
// fault on the GPU the driver says what it was.
type BLAS interface {
	String() string // such as "cuBLAS 12.8.4 (libcublas.so.12)"

	// Configure says, once and before any product, on which stream products are, and gives them
	// memory at a multiple of 256 that is theirs until Close: so each run computes a product in the
	// same way, and a captured one allocates nothing. Where cuBLAS sees no gain in a lower
	// precision it may compute in a higher one.
	Configure(s Stream, workspace Ptr, bytes int, precision Precision) error

	// Multiply queues products.
	Multiply(p *Product) error

	Close() error
}

// Precision is what the factors of products are rounded to, on their way from memory, where they
// are float32. Sums are float32 in each.
type Precision int

// The precisions. Those below FP32 are for the matrix units.
const (
	FP32 Precision = iota
	TF32           // 11 bits, and the exponents of float32
	BF16           // 8 bits, and the exponents of float32
)

// String returns the name in capitals.
func (p Precision) String() string { return [...]string{"FP32", "TF32", "BF16"}[p] }

// Product is C = A·B, or C += A·B if Accumulate, of row-major m×k and k×n matrices of float32, for
// each of a batch. All numbers fit 32 bits, but for strides.
type Product struct {
	A, B, C                              Ptr
	M, N, K                              int
	LDA, LDB, LDC                        int // values from row to row, as they lie
	StrideA, StrideB, StrideC            int // values from matrix to matrix; 0: all have the same, but for C
	ATransposed, BTransposed, Accumulate bool
	Batch                                int // at least 1
}

// Error is a refusal of the driver.
type Error struct {
	Code int
	Name string // such as CUDA_ERROR_OUT_OF_MEMORY
	Text string
	Op   string // what was called
}

// Error says what was called and what the driver answered.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (%d): %s", e.Op, e.Name, e.Code, e.Text)
}

// Codes of the driver that are looked at: those of which cuda.h says that the process must be
// started anew, and what is among them.
const (
	codeUnavailable   = 46 // a device that another process has for itself
	codeUncorrectable = 214
	codeNVLink        = 220
	codeContained     = 226
	firstFault        = 700
	lastFault         = 719
	codeTensorMemory  = 721
	codeMPS           = 810 // the daemon or the client has died
	codeExternal      = 911
	codeUnknown       = 999
	tooManyResources  = 701 // a launch that cannot fit; the context lives
	peerEnabled       = 704
	peerDisabled      = 705
	contextInUse      = 708
	tooManyPeers      = 711
	hostRegistered    = 712
	hostUnregistered  = 713
)

// Fatal says whether the context is of no use after the error: what it held is lost, and every later call fails.
func (e *Error) Fatal() bool {
	switch e.Code {
	case codeUncorrectable, codeNVLink, codeContained, codeTensorMemory, codeMPS, codeExternal, codeUnknown:
		return true
	case tooManyResources, peerEnabled, peerDisabled, contextInUse, tooManyPeers, hostRegistered, hostUnregistered:
		return false
	}
	return e.Code >= firstFault && e.Code <= lastFault
}
