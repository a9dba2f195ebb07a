//go:build !(gpu && cgo && linux)

package driver

// Open always fails in this build.
func Open(library string, ordinal int) (Context, error) { return nil, ErrBuild }

// Usable always fails in this build.
func Usable(library string, ordinal int) error { return ErrBuild }

// List always fails in this build.
func List(library string) ([]int, error) { return nil, ErrBuild }

// FindBLAS always fails in this build.
func FindBLAS(library string) (string, error) { return "", ErrBuild }
