//go:build gpu && cgo && linux

package driver

// #cgo noescape cublas_multiply
// #cgo nocallback cublas_multiply
// #include <stdlib.h>
// #include "cublas.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// blasLibraries are the usual names of cuBLAS, in the order in which they are tried. The version
// with which the kernels are compiled comes first.
var blasLibraries = []string{"libcublas.so.12", "libcublas.so.13", "libcublas.so.11"}

// loadBLAS opens the first library that exists and for which fits returns nil. library is a path;
// "" means the usual names.
func loadBLAS(library string, fits func(*C.cublas) error) (*C.cublas, string, error) {
	names := blasLibraries
	if library != "" {
		names = []string{library}
	}
	missing := fmt.Errorf("no cuBLAS: the system finds none of %s; it is part of CUDA, or of the Python wheels nvidia-cublas and nvidia-cublas-cu12, whose folder belongs on LD_LIBRARY_PATH", strings.Join(names, ", "))
	for _, name := range names {
		l, err := openBLAS(name)
		if err == nil {
			err = fits(l)
		}
		if err == nil {
			return l, name, nil
		}
		C.free(unsafe.Pointer(l))
		// An existing library that cannot be used is the more helpful message than one that does
		// not exist.
		if text := err.Error(); !strings.HasPrefix(text, name+": cannot open") || !strings.Contains(text, "No such file") {
			missing = fmt.Errorf("no cuBLAS: %w", err)
		}
	}
	return nil, "", missing
}

// openBLAS loads a library and finds its functions. The caller frees the table, also after an
// error.
func openBLAS(library string) (*C.cublas, error) {
	l := (*C.cublas)(C.calloc(1, C.sizeof_cublas))
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	runtime.LockOSThread() // the error message belongs to the thread
	defer runtime.UnlockOSThread()
	if problem := C.cublas_open(path, l); problem != nil {
		return l, errors.New(C.GoString(problem))
	}
	return l, nil
}

// FindBLAS returns the name of the cuBLAS that [Context].BLAS would try first, without initialising
// it. The error says that there is none.
func FindBLAS(library string) (string, error) {
	l, name, err := loadBLAS(library, func(*C.cublas) error { return nil })
	C.free(unsafe.Pointer(l))
	return name, err
}

// products is cuBLAS on a stream. It implements BLAS.
type products struct {
	l    *C.cublas
	name string
}

func (c *context) BLAS(library string) (BLAS, error) {
	var version C.int
	l, name, err := loadBLAS(library, func(l *C.cublas) error { return blasError("cublasCreate", C.cublas_create(l, c.d, &version)) })
	if err != nil {
		return nil, err
	}
	const major, minor = 10000, 100
	return &products{l: l, name: fmt.Sprintf("cuBLAS %d.%d.%d (%s)", version/major, version%major/minor, version%minor, name)}, nil
}

func (p *products) String() string { return p.name }

func (p *products) Configure(s Stream, workspace Ptr, bytes int, precision Precision) error {
	compute := C.int(C.CUBLAS_COMPUTE_32F)
	switch precision {
	case TF32:
		compute = C.CUBLAS_COMPUTE_32F_FAST_TF32
	case BF16:
		compute = C.CUBLAS_COMPUTE_32F_FAST_16BF
	}
	return blasError("configure cuBLAS", C.cublas_configure(p.l, C.uintptr_t(s), C.uint64_t(workspace), C.size_t(bytes), compute))
}

func (p *products) Multiply(g *Product) error {
	given := C.cublas_product{
		a: C.uint64_t(g.A), b: C.uint64_t(g.B), c: C.uint64_t(g.C),
		m: C.int(g.M), n: C.int(g.N), k: C.int(g.K), lda: C.int(g.LDA), ldb: C.int(g.LDB), ldc: C.int(g.LDC),
		stride_a: C.longlong(g.StrideA), stride_b: C.longlong(g.StrideB), stride_c: C.longlong(g.StrideC),
		a_transposed: flag(g.ATransposed), b_transposed: flag(g.BTransposed), accumulate: flag(g.Accumulate), batch: C.int(g.Batch),
	}
	status := C.cublas_multiply(p.l, &given)
	if status == C.CUBLAS_STATUS_SUCCESS {
		return nil
	}
	return blasError(fmt.Sprintf("cublasGemmEx of %d×%d×%d, %d times", g.M, g.N, g.K, g.Batch), status)
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func (p *products) Close() error {
	if p.l == nil {
		return errors.New("close cuBLAS: it is closed already")
	}
	err := blasError("cublasDestroy", C.cublas_destroy(p.l))
	C.free(unsafe.Pointer(p.l))
	p.l = nil
	return err
}

// blasNames are the names of cuBLAS's status codes.
var blasNames = map[C.cublasStatus_t]string{
	1: "NOT_INITIALIZED", 3: "ALLOC_FAILED", 7: "INVALID_VALUE", 8: "ARCH_MISMATCH", 11: "MAPPING_ERROR", 13: "EXECUTION_FAILED",
	14: "INTERNAL_ERROR", 15: "NOT_SUPPORTED", 16: "LICENSE_ERROR",
}

// blasError turns a status into an error. It is not an [*Error]: only the driver tells whether the
// GPU is lost.
func blasError(op string, status C.cublasStatus_t) error {
	if status == C.CUBLAS_STATUS_SUCCESS {
		return nil
	}
	name, ok := blasNames[status]
	if !ok {
		name = "unknown"
	}
	return fmt.Errorf("%s: CUBLAS_STATUS_%s (%d)", op, name, status)
}
