package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// Where files can have no second name, they are moved, and of several that are to have one name the
// first has it.
func TestWithoutHardLinksFilesAreMoved(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("this system has no rename that replaces nothing, or it is not known here")
	}
	for _, refusal := range []error{syscall.EPERM, syscall.EOPNOTSUPP, syscall.ENOSYS} {
		dir := t.TempDir()
		place := func(content string) error {
			from := filepath.Join(dir, "temporary")
			if err := os.WriteFile(from, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			return link(from, filepath.Join(dir, "name"), func(a, b string) error { return &os.LinkError{Op: "link", Old: a, New: b, Err: refusal} }, moveNew)
		}
		if err := place("first"); err != nil {
			t.Errorf("%v: %v", refusal, err)
		}
		if err := place("second"); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%v: a second file took a name that exists: %v", refusal, err)
		}
		if content, err := os.ReadFile(filepath.Join(dir, "name")); string(content) != "first" || err != nil {
			t.Errorf("%v: the file is %q (%v)", refusal, content, err)
		}
	}
}

// Other errors are those of the link, and nothing is moved then.
func TestOnlyMissingHardLinksMoveFiles(t *testing.T) {
	for _, c := range []struct {
		hard, move error
		moves      bool
		want       string
	}{
		{hard: nil},
		{hard: fs.ErrExist, want: fs.ErrExist.Error()},
		{hard: syscall.ENOSPC, want: syscall.ENOSPC.Error()},
		{hard: syscall.EPERM, moves: true},
		{hard: syscall.EPERM, move: syscall.EIO, moves: true, want: syscall.EIO.Error()},
		{hard: syscall.EPERM, move: syscall.EINVAL, moves: true, want: "or an object store"},
		{hard: syscall.ENOTSUP, move: errors.ErrUnsupported, moves: true, want: "or an object store"},
	} {
		moves := false
		err := link("a", "b", func(_, _ string) error { return c.hard }, func(_, _ string) error {
			moves = true
			return c.move
		})
		if moves != c.moves || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("a link that fails with %v, and a move with %v: %v (moved: %v)", c.hard, c.move, err, moves)
		}
	}
}
