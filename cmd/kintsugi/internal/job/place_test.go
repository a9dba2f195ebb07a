package job

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// Whatever a checkpoint needs and a folder cannot do is found before the run begins, and the probe
// leaves nothing behind.
func TestAFolderIsTriedBeforeARunBegins(t *testing.T) {
	var ops []vfs.Op
	if err := probe(vfs.NewInjector(vfs.NewMem(), func(op vfs.Op) vfs.Fault {
		ops = append(ops, op)
		return vfs.Fault{}
	}), "store/run"); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []vfs.Kind{vfs.OpMkdirAll, vfs.OpCreate, vfs.OpWrite, vfs.OpSync, vfs.OpClose, vfs.OpLink, vfs.OpSyncDir, vfs.OpRemove} {
		if !slices.ContainsFunc(ops, func(op vfs.Op) bool { return op.Kind == kind }) {
			t.Errorf("%s is not tried: %v", kind, ops)
		}
	}
	for _, op := range ops {
		mem := vfs.NewMem()
		if err := probe(vfs.NewInjector(mem, vfs.FailAt(op.N, syscall.EIO)), "store/run"); !errors.Is(err, syscall.EIO) {
			t.Errorf("%v fails, and the probe says %v", op, err)
		}
		left, err := mem.List("store/run")
		if op.Kind != vfs.OpRemove && len(left) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v fails, and the probe leaves %v (%v)", op, left, err)
		}
	}
}
