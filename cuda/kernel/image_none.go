//go:build !gpu

package kernel

import "errors"

// Image always fails in this build.
func Image(family string) ([]byte, error) {
	return nil, errors.New("no kernels of " + family + ": the program was built without -tags gpu")
}
