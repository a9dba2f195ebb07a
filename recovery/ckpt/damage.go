package ckpt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"

	"github.com/kintsugi-ml/kintsugi"
)

// ErrNoCheckpoint means that a directory holds no whole checkpoint. Start from the initialisation.
var ErrNoCheckpoint = errors.New("no checkpoint")

// ErrPublished means that a manifest of that name exists with other content: another writer was
// first. Its checkpoint counts, and this one was not published.
var ErrPublished = errors.New("already published with other content")

// Damage says which bytes of a checkpoint are wrong. It is a kintsugi.ErrCorrupt. Another
// checkpoint, or another value of the chunk, may be whole.
type Damage struct {
	File   string // relative to the checkpoint's directory
	Offset int64  // byte in the file at which the wrong part begins; -1: the whole file
	Chunk  int64  // kintsugi.ChunkID; -1: not in a chunk
	Tensor string // the chunk's tensor; empty: unknown, or not in a chunk
	Err    error  // what is wrong
}

// Error says what is wrong and where.
func (d *Damage) Error() string {
	s := d.File
	if d.Offset >= 0 {
		s += fmt.Sprintf(", offset %d", d.Offset)
	}
	if d.Chunk >= 0 {
		s += fmt.Sprintf(", chunk %d", d.Chunk)
	}
	if d.Tensor != "" {
		s += " of " + d.Tensor
	}
	return s + ": " + d.Err.Error()
}

// Unwrap makes the damage both a kintsugi.ErrCorrupt and its cause, such as fs.ErrNotExist.
func (d *Damage) Unwrap() []error { return []error{kintsugi.ErrCorrupt, d.Err} }

// damaged returns the error for wrong bytes of a file.
func damaged(file string, offset int64, format string, args ...any) error {
	return &Damage{File: file, Offset: offset, Chunk: -1, Err: fmt.Errorf(format, args...)}
}

// unreadable converts the error of reading a published file to damage if the bytes are gone for
// good: the file is missing, a directory, shorter than it was, or on a part of the disk that cannot
// be read. Any other error (no permission, no such host) may pass, and then falling back to an
// older checkpoint would lose work.
func unreadable(file string, offset int64, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return damaged(file, -1, "%w", fs.ErrNotExist)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return damaged(file, offset, "the file ends early: %w", io.ErrUnexpectedEOF)
	case errors.Is(err, syscall.EIO):
		return damaged(file, offset, "%w", syscall.EIO)
	case errors.Is(err, syscall.EISDIR):
		return damaged(file, -1, "%w", syscall.EISDIR)
	}
	return err
}

// newer refuses bytes of a format version that this program does not know.
func newer(file string, version, known int) error {
	return fmt.Errorf("%s: format version %d, this program reads version %d: use a newer kintsugi: %w",
		file, version, known, kintsugi.ErrOtherModel)
}
