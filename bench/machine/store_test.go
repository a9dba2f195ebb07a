package machine

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

func TestStoreMeasuresWhatItRemoves(t *testing.T) {
	memory := new(object.Mem)
	in := object.NewFS(t.Context(), memory, object.DefaultRetries())
	begun, interrupt := context.WithCancel(t.Context())
	counted := &counting{FS: in, at: 3, then: interrupt}
	if _, err := Store(begun, counted, "runs/7", CheckpointConfig{Sizes: []int{1 << 20}, Rounds: 2, Progress: io.Discard}); !errors.Is(err, context.Canceled) {
		t.Errorf("it was interrupted and says %v", err)
	}
	if left := slices.Collect(maps.Keys(memory.Objects())); len(left) > 0 {
		t.Errorf("interrupted, it leaves %v", left)
	}
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

// counting is a store that calls then when its at-th file is published.
type counting struct {
	*object.FS
	at   int
	then func()
}

func (c *counting) Publish(name string, content []byte) error {
	if c.at--; c.at == 0 {
		c.then()
	}
	return c.FS.Publish(name, content)
}
