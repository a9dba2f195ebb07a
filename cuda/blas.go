package cuda

import (
	"errors"
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
)

// ErrNoBLAS means that cuBLAS cannot be used. The error that wraps it gives the reason.
var ErrNoBLAS = errors.New("cuBLAS cannot be used")

// BLAS is cuBLAS on a queue. It computes matrix products in the order of the queue's work, also in
// programs. The same product at the same addresses has the same bits in every run with the same
// cuBLAS on the same kind of GPU. On another kind, or with another cuBLAS, the bits may differ.
type BLAS struct {
	q *Queue
	b driver.BLAS
}

// Product describes what [BLAS.Multiply] computes.
type Product = driver.Product

// Precision is the format to which the factors of products are rounded. Sums are float32.
type Precision = driver.Precision

// The precisions: float32, and two formats for the matrix units, with 11 and with 8 significant
// bits.
const (
	FP32 = driver.FP32
	TF32 = driver.TF32
	BF16 = driver.BF16
)

// blasWorkspace is the workspace, in bytes, that cuBLAS recommends for GPUs of compute capability
// 9.0 and newer. Older ones need less. With less workspace a product may be slower.
const blasWorkspace = 32 << 20

// FindBLAS returns the name of the cuBLAS library of this machine without initialising it. library
// is as for [Queue.OpenBLAS]. Errors wrap ErrNoBLAS.
func FindBLAS(library string) (string, error) {
	name, err := driver.FindBLAS(library)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoBLAS, err)
	}
	return name, nil
}

// OpenBLAS opens cuBLAS for the queue, which closes it in its Close. library is the path of the
// library. "" means the first of libcublas.so.12, .13 and .11 that the system finds and that
// initialises. With TF32 and BF16, cuBLAS may round the factors, which are float32 in memory, but
// need not. Errors wrap ErrNoBLAS and say what is missing; the queue remains usable.
//
// The queue has a cuBLAS handle of its own, with its own workspace and without atomics. So streams
// that run at the same time change neither what it computes nor how.
func (q *Queue) OpenBLAS(library string, precision Precision) (*BLAS, error) {
	if q.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoBLAS, q.err)
	}
	b, err := q.d.c.BLAS(library)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoBLAS, err)
	}
	workspace, err := q.d.c.Alloc(blasWorkspace)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: no memory to work in: %w", ErrNoBLAS, err), b.Close())
	}
	q.arrays = append(q.arrays, workspace)
	if err := b.Configure(q.s, workspace, blasWorkspace, precision); err != nil {
		err = errors.Join(fmt.Errorf("%w: %w", ErrNoBLAS, err), b.Close())
		q.Free(workspace)
		return nil, err
	}
	q.blas = append(q.blas, &BLAS{q: q, b: b})
	return q.blas[len(q.blas)-1], nil
}

// String returns the library and its version, such as "cuBLAS 12.8.4 (libcublas.so.12)".
func (b *BLAS) String() string { return b.b.String() }

// Fits reports whether cuBLAS can take the dimensions of p: its integers have 32 bits.
func (b *BLAS) Fits(p *Product) bool {
	return max(p.M, p.N, p.K, p.LDA, p.LDB, p.LDC, p.Batch) <= math.MaxInt32
}

// Multiply queues the products of a batch.
func (b *BLAS) Multiply(p *Product) {
	if b.q.err == nil {
		b.q.fail(b.b.Multiply(p))
	}
}
