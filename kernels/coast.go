package kernels

// Coast sets dst to x + steps·v: where values that move by v in each step are after that many
// steps. Each product is rounded to float32 before it is added, so that every machine gets the same
// bits. The slices have equal lengths; dst may be x or v.
func Coast(dst, x, v []float32, steps float32) {
	x, v = x[:len(dst)], v[:len(dst)]
	for i := range dst {
		dst[i] = x[i] + float32(v[i]*steps)
	}
}
