package kernels

import "sync"

var scratches = sync.Pool{New: func() any { return new([]float32) }}

// borrow lends an array of n values with unspecified contents, until it is put back into scratches.
func borrow(n int) *[]float32 {
	p := scratches.Get().(*[]float32)
	if cap(*p) < n {
		*p = make([]float32, n)
	}
	*p = (*p)[:n]
	return p
}

// scratch is borrow for who lends under a condition: done is called in any case.
func scratch(n int) (x []float32, done func()) {
	p := borrow(n)
	return *p, func() { scratches.Put(p) }
}
