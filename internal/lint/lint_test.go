package lint_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/lint"
)

func TestTheTreeKeepsItsRules(t *testing.T) {
	findings, err := lint.Check(moduleRoot(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Error(f)
	}
}

// moduleRoot returns the folder of go.mod. Tests run in the folder of their package.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the folder of the test")
		}
		dir = filepath.Dir(dir)
	}
}
