package ckpt

import (
	"errors"
	"path"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// Erase leaves nothing of a place but its folders, and does not touch what lies beside them. If one
// file cannot be removed, the others are.
func TestEraseRemovesAllFilesOfAPlace(t *testing.T) {
	layout := smallLayout(t)
	for _, stubborn := range []bool{false, true} {
		mem := vfs.NewMem()
		x := mustTake(t, mem, layout, "run")
		x.mustFinish(t, 5, model(t, layout, kintsugi.RuleAdam, 1))
		beside := []string{path.Join(testDir, "notes"), "elsewhere"}
		for _, name := range append([]string{inDir(path.Join(tmpDir, "unfinished"))}, beside...) {
			if _, err := mem.Create(name); err != nil {
				t.Fatal(err)
			}
		}
		broken, left := errors.New("broken"), slices.Clone(beside)
		fsys := vfs.NewInjector(mem, func(op vfs.Op) vfs.Fault {
			if stubborn && op.Kind == vfs.OpRemove && path.Dir(op.Name) == inDir(runDir) {
				left = append(left, op.Name)
				return vfs.Fault{Err: broken}
			}
			return vfs.Fault{}
		})
		err := Erase(fsys, testDir)
		slices.Sort(left)
		got := mem.Walk(".")
		if stubborn != errors.Is(err, broken) || !slices.Equal(got, left) || stubborn != (len(left) > len(beside)) {
			t.Errorf("erasing says %v, and leaves %v, want %v", err, got, left)
		}
	}
	if err := Erase(vfs.NewMem(), "nowhere"); err != nil {
		t.Errorf("erasing where nothing is: %v", err)
	}
}
