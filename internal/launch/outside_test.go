package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheFolderOutsideIsRemovedByWhoMadeItOrComesAfter(t *testing.T) {
	if _, err := os.Stat(memoryFolder); err != nil {
		t.Skip(err)
	}
	first, err := NewOutside(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(filepath.Dir(first.File(0)), "server-0")
	if err := os.WriteFile(file, []byte("state"), 0o600); err != nil {
		t.Fatal(err)
	}
	second, err := NewOutside(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil || filepath.Dir(second.File(0)) == filepath.Dir(first.File(0)) || !strings.HasPrefix(filepath.Dir(first.File(0)), memoryFolder) {
		t.Errorf("while its launcher lives: %v, %s and %s", err, filepath.Dir(first.File(0)), filepath.Dir(second.File(0)))
	}
	if err := first.lock.Close(); err != nil { // as the end of a process does
		t.Fatal(err)
	}
	third, err := NewOutside(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(first.File(0))); !os.IsNotExist(err) {
		t.Errorf("after its launcher has died: %v", err)
	}
	for _, o := range []*Outside{second, third} {
		if err := o.Remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Dir(o.File(0))); !os.IsNotExist(err) {
			t.Errorf("after it was removed: %v", err)
		}
	}
}
