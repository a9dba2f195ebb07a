package job

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/kintsugi-ml/kintsugi/python"
)

func TestTheModuleOfProgramsIsWrittenOnce(t *testing.T) {
	base := filepath.Join(t.TempDir(), "cache", "kintsugi")
	folder, err := writeModule(base)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "kintsugi.py")
	first, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writeModule(base); err != nil {
		t.Fatal(err)
	}
	if again, err := os.Stat(path); err != nil || !os.SameFile(first, again) {
		t.Errorf("it was written again: %v", err)
	}
	if err := os.WriteFile(path, []byte("import half"), 0o600); err != nil { // as a full disk may leave it
		t.Fatal(err)
	}
	if _, err := writeModule(base); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != python.Module {
		t.Errorf("a damaged module stays: %v", err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
		t.Errorf("the folder has %v, %v", left, err)
	}
}

// Whoever may write to the folder could have programs run what they like.
func TestTheModuleIsInNoFolderThatOthersMayWriteTo(t *testing.T) {
	shared := t.TempDir()
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), elsewhere); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, base := range []string{shared, elsewhere, file} {
		if folder, err := writeModule(base); err == nil {
			t.Errorf("it is in %s", folder)
		} else if base != file && !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", base, err)
		}
	}
}
