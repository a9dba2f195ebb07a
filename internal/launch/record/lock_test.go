package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Some file systems cannot lock files, as Lustre without the option flock. The error does not blame another process.
func TestALockThatFailsIsNotAnotherProcess(t *testing.T) {
	open := func() *os.File {
		f, err := os.OpenFile(filepath.Join(t.TempDir(), "events"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := open()
	defer f.Close()
	if err := lock(f, "runs/1"); err != nil {
		t.Errorf("a lock that nobody has: %v", err)
	}
	again, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := lock(again, "runs/1"); err == nil || !strings.Contains(err.Error(), "another process is writing") {
		t.Errorf("a lock that somebody has: %v", err)
	}
	closed := open()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := lock(closed, "runs/1"); err == nil || strings.Contains(err.Error(), "another process is writing") || !strings.Contains(err.Error(), "cannot lock files") {
		t.Errorf("a lock that cannot be had: %v", err)
	}
}
