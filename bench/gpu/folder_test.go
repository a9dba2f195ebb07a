//go:build gpu && cgo && linux

package gpu_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
)

// The folder needs nothing but a driver: neither this repository nor a home directory. With the
// emulated driver, the table has all rows except those that other programs measure.
func TestTheFolderRunsWhereThereIsOnlyADriver(t *testing.T) {
	if testing.Short() || emulate.OnGPU() {
		t.Skip("it builds the program and the tests, and runs them on the emulation: a minute and a half; run it without -short and -real")
	}
	library := emulate.Library(t)
	here, there := t.TempDir(), t.TempDir()
	for _, c := range []*exec.Cmd{exec.Command("./build", filepath.Join(here, "gpu")), exec.Command("tar", "-xzf", filepath.Join(here, "gpu.tar.gz"), "-C", there)} {
		if status, text := output(t, []string{"bash", "python3", "tar"}, c); status != 0 {
			t.Fatal(text)
		}
	}
	driver := t.TempDir()
	for _, name := range []string{"libcuda.so.1", "libcublas.so.13"} {
		if err := os.Symlink(library, filepath.Join(driver, name)); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command(filepath.Join(there, "gpu", "run"), "out", "tests", "bench", "train", "table")
	c.Dir = t.TempDir()
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "TMPDIR=" + t.TempDir(), "LD_LIBRARY_PATH=" + driver, "QUICK=1"}
	status, text := output(t, nil, c)
	table, err := os.ReadFile(filepath.Join(c.Dir, "out", "table.md"))
	if status != 0 || err != nil {
		t.Fatalf("status %d, %v, and it printed\n%s", status, err, text)
	}
	for _, row := range cells(string(table)) {
		theirs := strings.Contains(row[0]+row[3], "PyTorch") || strings.Contains(row[3], "torch.topk") || strings.Contains(row[3], "CUB") || strings.HasPrefix(row[1], " Program/") || strings.HasSuffix(row[1], "check")
		if strings.Contains(row[5], "missing") && !theirs {
			t.Errorf("missing: %q", row)
		}
	}
}
