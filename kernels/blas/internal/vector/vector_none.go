//go:build !cgo || !(amd64 || arm64) || windows

package vector

// Sets returns nil.
func Sets() []int { return nil }

// Product panics.
func Product(int, bool, bool, int, int, int, float32, []float32, int, []float32, int, float32, []float32, int, *[Scratch]float32, bool) {
	panic("vector: not in this build")
}
