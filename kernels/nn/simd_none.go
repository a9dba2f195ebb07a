//go:build !cgo || !(amd64 || arm64) || windows

package nn

// simd lists no devices: they need cgo and a processor they were written for.
func simd() []Device { return nil }
