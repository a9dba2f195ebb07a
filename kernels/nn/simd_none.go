//go:build !cgo || !(amd64 || arm64) || windows

package nn

// simd returns no devices: they need cgo and a supported processor.
func simd() []Device { return nil }
