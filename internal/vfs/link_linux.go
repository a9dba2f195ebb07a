package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// moveNew renames a file. If the new name exists it returns an fs.ErrExist; rename would replace the
// file.
func moveNew(oldName, newName string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, oldName, unix.AT_FDCWD, newName, unix.RENAME_NOREPLACE); err != nil {
		return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: err}
	}
	return nil
}
