//go:build !(gpu && cgo && linux)

package driver

// Open always fails in this build.
func Open(library string, ordinal int) (Context, error) { return nil, ErrBuild }

// Count always fails in this build.
func Count(library string) (int, error) { return 0, ErrBuild }

// FindBLAS always fails in this build.
func FindBLAS(library string) (string, error) { return "", ErrBuild }
