package kernels

import "sync"

var scratches = sync.Pool{New: func() any { return new([]float32) }}

// scratch lends an array of n values with unspecified contents, until done is called.
func scratch(n int) (x []float32, done func()) {
	p := scratches.Get().(*[]float32)
	if cap(*p) < n {
		*p = make([]float32, n)
	}
	return (*p)[:n], func() { scratches.Put(p) }
}
