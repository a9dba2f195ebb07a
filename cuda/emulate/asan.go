//go:build asan

package emulate

// Sanitized says that the emulation is built with AddressSanitizer.
const Sanitized = true
