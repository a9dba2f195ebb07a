//go:build !linux || !(amd64 || arm64)

package vfs

// Forget does nothing: this system has no such request.
func Forget(string) (ok bool, err error) { return false, nil }
