//go:build !linux || !(amd64 || arm64)

package vfs

// Forget has no way to ask on this system.
func Forget(string) (ok bool, err error) { return false, nil }
