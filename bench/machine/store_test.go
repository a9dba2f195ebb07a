package machine

import (
	"io"
	"maps"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

func TestStoreMeasuresWhatItRemoves(t *testing.T) {
	memory := new(object.Mem)
	in := object.NewFS(t.Context(), memory, object.DefaultRetries())
	rows, err := Store(t.Context(), in, "runs/7", CheckpointConfig{Sizes: []int{1 << 20}, Rounds: 2, Progress: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range rows {
		if !(r.Seconds > 0) || r.Name != "create" && r.Bytes != 1<<20 {
			t.Errorf("%s, %s: %d bytes in %v s", r.Name, r.Variant, r.Bytes, r.Seconds)
		}
		seen[r.Name] = true
	}
	for _, name := range []string{"create", "write", "save", "read", "restore"} {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
	}
	if left := slices.Collect(maps.Keys(memory.Objects())); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
}
