//go:build !cgo || !linux

package blas

import (
	"fmt"

	kintsugi "github.com/kintsugi-ml/kintsugi"
)

// openLibrary returns the error that this binary cannot load libraries.
func openLibrary(library, int) (Implementation, error) {
	return nil, fmt.Errorf("%w: %w: this binary was built without cgo; use builtin, or build it on Linux with CGO_ENABLED=1",
		kintsugi.ErrUsage, errNotFound)
}
