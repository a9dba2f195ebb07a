//go:build !linux

package shm

import "errors"

func create(int, Access) (b []byte, pid, fd int, closeName func(), err error) {
	return nil, 0, 0, nil, errors.ErrUnsupported
}

func open(int, int, int, Access) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmap([]byte) {}
