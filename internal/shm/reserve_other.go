//go:build !linux

package shm

import (
	"errors"
	"os"
)

// memory returns an error: this system has no such files.
func memory(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// reserve does nothing: not every system can take bytes of a file from the device.
func reserve(*os.File, int64, int64) error { return nil }
