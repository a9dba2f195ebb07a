//go:build !linux

package vfs

import "errors"

// moveNew would rename a file to a name that does not exist yet.
func moveNew(_, _ string) error { return errors.ErrUnsupported }
