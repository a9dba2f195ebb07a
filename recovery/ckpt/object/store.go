package object

import (
	"context"
	"errors"
)

// ErrAway means that the store does not answer at present: another try may help.
var ErrAway = errors.New("the object store does not answer as it should")

// PartBytes is the length of all parts of a large object but the last: 16 MiB. An upload holds a
// few of them in memory.
const PartBytes = 16 << 20

// Store is what FS needs of an object store. Names are slash-separated paths without a leading
// slash. Implementations are safe for concurrent use and try each request once; FS repeats them.
// Errors are fs.ErrExist, fs.ErrNotExist and fs.ErrPermission where they apply, ErrAway if another
// try may help, and any other error if it does not.
type Store interface {
	// Create makes an object exist with that content, or returns fs.ErrExist if the name is taken.
	// content must not change during the call.
	Create(ctx context.Context, name string, content []byte) error

	// Upload begins an object that is too large for one request.
	Upload(ctx context.Context, name string) (Upload, error)

	// Read fills p from a byte offset of an object that is at least that long.
	Read(ctx context.Context, name string, p []byte, offset int64) error

	// Begin reads what an object begins with into p, as much as there is of both, and returns the
	// length of the object.
	Begin(ctx context.Context, name string, p []byte) (size int64, err error)

	// Stat returns the length of an object.
	Stat(ctx context.Context, name string) (int64, error)

	// List returns the next components of all names that begin with prefix, as a directory would
	// list them. prefix ends in a slash or is empty. The list is not sorted.
	List(ctx context.Context, prefix string) ([]string, error)

	// Copy makes an object exist under a second name. It replaces any object of that name.
	Copy(ctx context.Context, from, to string) error

	// Remove removes an object. It is no error if there is none.
	Remove(ctx context.Context, name string) error
}

// Upload is an object in parts. It is invisible before Complete.
type Upload interface {
	// Part uploads a part; numbers begin with 1. All parts but the last have PartBytes. Parts may
	// be uploaded concurrently, and repeatedly.
	Part(ctx context.Context, number int, content []byte) error

	// Complete makes the object exist, or returns fs.ErrExist if the name is taken.
	Complete(ctx context.Context) error

	// Abort discards the parts.
	Abort(ctx context.Context) error
}
