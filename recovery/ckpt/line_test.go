package ckpt

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

func TestTheLastLineCountsWhatWasNeverPublished(t *testing.T) {
	fsys := vfs.NewMem()
	last := func(want kintsugi.Line) {
		t.Helper()
		if got, err := LastLine(fsys, testDir); err != nil || got != want {
			t.Errorf("the last line is %d, %v; want %d", got, err, want)
		}
	}
	last(0)
	layout := smallLayout(t)
	mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 2, 3, 1).mustSave(t, 50, model(t, layout, kintsugi.RuleSGD, 1))
	last(3)
	// A shard of line 4 is saved, and then the run is killed.
	w, err := OpenWriter(fsys, testDir, WriterConfig{Layout: layout, Rule: kintsugi.RuleSGD, Range: kintsugi.ChunkRange{Hi: 1}, Line: 4, Fence: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Save(t.Context(), Snapshot{Step: 60, Load: model(t, layout, kintsugi.RuleSGD, 2).Load}); err != nil {
		t.Fatal(err)
	}
	last(4)
}
