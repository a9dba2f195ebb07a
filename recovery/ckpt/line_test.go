package ckpt

import (
	"context"
	"slices"
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

// After a partial restore the run goes on on another line. For each chunk the value of the newest
// line counts, and values of lines that were given up do not.
func TestARunningCheckpointReachesOverLines(t *testing.T) {
	fsys, layout := vfs.NewMem(), smallLayout(t)
	n := kintsugi.ChunkID(len(layout.Chunks))
	models := make(map[kintsugi.Line]*Flat)
	for line, chunks := range [][]kintsugi.ChunkID{1: {0, 1, 2}, 2: {0, 1}, 3: {1, 3}, 4: {0}} {
		if line == 0 {
			continue
		}
		line := kintsugi.Line(line)
		models[line] = model(t, layout, kintsugi.RuleSGD, uint64(line))
		w, err := OpenWriter(fsys, testDir, WriterConfig{Layout: layout, Rule: kintsugi.RuleSGD, Range: kintsugi.ChunkRange{Hi: n}, Line: line, Fence: kintsugi.Fence(line)})
		if err != nil {
			t.Fatal(err)
		}
		step := 100 - 10*kintsugi.Step(line) // a line may go back in steps, and the newer line counts nevertheless
		if _, err := w.Save(t.Context(), Snapshot{Step: step, Chunks: chunks, Load: models[line].Load}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		lines Lines
		from  []kintsugi.Line // line of chunks 0 to 3; 0: missing
	}{
		{Lines{First: 1, Last: 3}, []kintsugi.Line{2, 3, 1, 3}},
		{Lines{First: 2, Last: 3}, []kintsugi.Line{2, 3, 0, 3}},
		{Lines{First: 3, Last: 4}, []kintsugi.Line{4, 3, 0, 3}},
		{Lines{First: 1, Last: 1}, []kintsugi.Line{1, 1, 1, 0}},
		{Lines{First: 5, Last: 4}, []kintsugi.Line{0, 0, 0, 0}},
	} {
		got, err := NewFlat(layout, kintsugi.ChunkRange{Hi: 4}, kintsugi.RuleSGD)
		if err != nil {
			t.Fatal(err)
		}
		report, err := RestoreRunning(context.Background(), fsys, testDir, c.lines, layout, got.Range, got.Place)
		if err != nil || len(report.Skipped) > 0 {
			t.Fatalf("%+v, %v", report, err)
		}
		for i, line := range c.from {
			id := kintsugi.ChunkID(i)
			switch missing := slices.Contains(report.Missing, id); {
			case line == 0:
				if !missing {
					t.Errorf("lines %v: chunk %d is there", c.lines, id)
				}
			case missing || !sameBits(got.Chunk(id).Params, models[line].Chunk(id).Params):
				t.Errorf("lines %v: chunk %d is not that of line %d; missing: %v", c.lines, id, line, missing)
			}
		}
	}
}
