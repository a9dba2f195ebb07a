//go:build !(gpu && cgo && linux)

package driver

import "errors"

var errBuild = errors.New("this program was built without CUDA: build it on Linux with a C compiler and -tags gpu (make cuda)")

// Open always fails in this build.
func Open(library string, ordinal int) (Context, error) { return nil, errBuild }

// Count always fails in this build.
func Count(library string) (int, error) { return 0, errBuild }

// FindBLAS always fails in this build.
func FindBLAS(library string) (string, error) { return "", errBuild }
