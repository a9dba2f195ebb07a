package kernels

import "sync"

var scratches = sync.Pool{New: func() any { return new([]float32) }}

// borrow returns an array of n values with unspecified contents. The caller puts it back into
// scratches.
func borrow(n int) *[]float32 {
	p := scratches.Get().(*[]float32)
	if cap(*p) < n {
		*p = make([]float32, n)
	}
	*p = (*p)[:n]
	return p
}

// scratch is borrow with a function that puts the array back. It suits callers that borrow only
// under a condition and defer done in any case.
func scratch(n int) (x []float32, done func()) {
	p := borrow(n)
	return *p, func() { scratches.Put(p) }
}
