package object

import (
	"context"
	"errors"
)

// ErrAway means that the store does not answer for now: another try may help.
var ErrAway = errors.New("the object store does not answer as it should")

// PartBytes is the length of the parts of a large object, but the last: 16 MiB. An upload holds a
// few of them in memory.
const PartBytes = 16 << 20

// Store is what FS needs of an object store. Names are slash-separated paths without a slash in
// front. Implementations are safe for concurrent use, and make one try: FS repeats. Errors are
// fs.ErrExist, fs.ErrNotExist and fs.ErrPermission where they apply, ErrAway where another try may
// help, and anything else where it does not.
type Store interface {
	// Create makes an object exist with that content, or returns fs.ErrExist if the name is taken. content must not
	// change meanwhile.
	Create(ctx context.Context, name string, content []byte) error

	// Upload begins an object that is too large for one request.
	Upload(ctx context.Context, name string) (Upload, error)

	// Read fills p from a byte offset of an object that is at least that long.
	Read(ctx context.Context, name string, p []byte, offset int64) error

	// Stat returns the length of an object.
	Stat(ctx context.Context, name string) (int64, error)

	// List returns the next components of all names that begin with prefix, which ends in a slash or is empty:
	// what a directory would list. It is not sorted.
	List(ctx context.Context, prefix string) ([]string, error)

	// Copy makes an object exist under a second name, or replaces what had it.
	Copy(ctx context.Context, from, to string) error

	// Remove removes an object; it is no error if there is none.
	Remove(ctx context.Context, name string) error
}

// Upload is an object in parts. Nobody sees it before Complete.
type Upload interface {
	// Part uploads a part, from 1. All but the last have PartBytes. Parts may be uploaded at the same time, and again.
	Part(ctx context.Context, number int, content []byte) error

	// Complete makes the object exist, or returns fs.ErrExist if the name is taken.
	Complete(ctx context.Context) error

	// Abort throws the parts away.
	Abort(ctx context.Context) error
}
