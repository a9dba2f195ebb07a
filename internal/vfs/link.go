package vfs

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Link implements FS. On a file system without hard links, such as SMB or exFAT, it moves the file.
func (OS) Link(oldName, newName string) error { return link(oldName, newName, os.Link, moveNew) }

// link gives a file another name by hard, or by move where the file system has no hard links.
func link(oldName, newName string, hard, move func(oldName, newName string) error) error {
	err := hard(oldName, newName)
	if !errors.Is(err, syscall.EPERM) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	moved := move(oldName, newName)
	if errors.Is(moved, syscall.EINVAL) || errors.Is(moved, errors.ErrUnsupported) {
		return fmt.Errorf("%w: this file system has neither hard links nor renames that replace nothing, and a checkpoint appears at once by one of both: use a folder on another file system, or an object store", err)
	}
	return moved
}
