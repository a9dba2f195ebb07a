package ckpt

import (
	"errors"
	"math"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

func TestWriterIsToldWhatDoesNotFit(t *testing.T) {
	layout := smallLayout(t)
	chunks := kintsugi.ChunkID(len(layout.Chunks))
	for name, c := range map[string]WriterConfig{
		"no layout":            {Rule: kintsugi.RuleSGD, Range: kintsugi.ChunkRange{}},
		"no such rule":         {Layout: layout, Rule: 99, Range: kintsugi.ChunkRange{Hi: chunks}},
		"a range that ends":    {Layout: layout, Rule: kintsugi.RuleSGD, Range: kintsugi.ChunkRange{Lo: 2, Hi: 1}},
		"more than the layout": {Layout: layout, Rule: kintsugi.RuleSGD, Range: kintsugi.ChunkRange{Hi: chunks + 1}},
		"no such encoding": {
			Layout: layout, Rule: kintsugi.RuleSGD, Range: kintsugi.ChunkRange{Hi: chunks},
			Increments: &Increments{Encoding: kernels.FP16},
		},
		"coasts that no file can name": {
			Layout: layout, Rule: kintsugi.RuleSGD, Range: kintsugi.ChunkRange{Hi: chunks},
			Increments: &Increments{Encoding: kernels.Int8, Coasts: math.MaxUint32 + 1},
		},
	} {
		mem := vfs.NewMem()
		if _, err := OpenWriter(mem, testDir, c); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%s: error %v", name, err)
		}
		if files := mem.Walk(testDir); len(files) > 0 {
			t.Errorf("%s: there are files: %q", name, files)
		}
	}

	mem := vfs.NewMem()
	f := model(t, layout, kintsugi.RuleMomentum, 1)
	w := mustTrainer(t, mem, layout, kintsugi.RuleMomentum, 2, 1, 1).writers[1]
	lo, hi := w.cfg.Range.Lo, w.cfg.Range.Hi
	if _, err := w.Save(t.Context(), Snapshot{Step: 10, Load: f.Load}); err != nil {
		t.Fatal(err)
	}
	files := mem.Walk(testDir)
	longer := func(id kintsugi.ChunkID) (Arrays, uint64) {
		a, n := f.Load(id)
		a.Params = append(slices.Clone(a.Params), 0)
		return a, n
	}
	shorter := func(id kintsugi.ChunkID) (Arrays, uint64) {
		a, n := f.Load(id)
		a.State[0] = a.State[0][1:]
		return a, n
	}
	for name, s := range map[string]Snapshot{
		"a step before the last":         {Step: 9, Load: f.Load},
		"a chunk of the shard before":    {Step: 11, Chunks: []kintsugi.ChunkID{lo - 1}, Load: f.Load},
		"a chunk of the shard after":     {Step: 11, Chunks: []kintsugi.ChunkID{hi}, Load: f.Load},
		"a chunk twice":                  {Step: 11, Chunks: []kintsugi.ChunkID{lo, lo}, Load: f.Load},
		"chunks out of order":            {Step: 11, Chunks: []kintsugi.ChunkID{lo + 1, lo}, Load: f.Load},
		"more values than the chunk has": {Step: 11, Load: longer},
		"less state than the chunk has":  {Step: 11, Load: shorter},
	} {
		if _, err := w.Save(t.Context(), s); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%s: error %v", name, err)
		}
		if now := mem.Walk(testDir); !slices.Equal(now, files) {
			t.Errorf("%s: there are files %q", name, now)
		}
	}
	if r, err := w.Save(t.Context(), Snapshot{Step: 10, Chunks: []kintsugi.ChunkID{lo}, Load: f.Load}); err != nil || !r.Complete {
		t.Errorf("the same step again: %+v, %v", r, err)
	}
}

// A writer continues what was saved of its shard, of its model, on its line, and of nothing else: a
// part that it saves is then a whole.
func TestWriterContinuesItsOwnShardOnly(t *testing.T) {
	layout := smallLayout(t)
	other := mustLayout(t, kintsugi.Tensor{Name: "other", Shape: []int{6, 10}}, layout.Tensors[1], layout.Tensors[2])
	shards := layout.Split(2)
	mine := WriterConfig{Layout: layout, Rule: kintsugi.RuleMomentum, Shard: 1, Range: shards[1], Line: 2, Fence: 2}
	mem := vfs.NewMem()
	mustTrainer(t, mem, layout, kintsugi.RuleMomentum, 2, 2, 2).mustSave(t, 10, model(t, layout, kintsugi.RuleMomentum, 1))
	full := mem.Walk(testDir)
	for name, c := range map[string]struct {
		change func(*WriterConfig)
		whole  bool
	}{
		"the same shard":        {func(*WriterConfig) {}, true},
		"a later fence":         {func(c *WriterConfig) { c.Fence = 3 }, true},
		"another line":          {func(c *WriterConfig) { c.Line = 3 }, false},
		"an earlier line":       {func(c *WriterConfig) { c.Line, c.Fence = 1, 1 }, false},
		"another shard":         {func(c *WriterConfig) { c.Shard, c.Fence = 2, 1 }, false},
		"another rule":          {func(c *WriterConfig) { c.Rule = kintsugi.RuleAdam }, false},
		"another model":         {func(c *WriterConfig) { c.Layout = other }, false},
		"a range begins later":  {func(c *WriterConfig) { c.Range.Lo++ }, false},
		"a range begins before": {func(c *WriterConfig) { c.Range.Lo-- }, false},
		"a range ends before":   {func(c *WriterConfig) { c.Range.Hi-- }, false},
	} {
		config := mine
		c.change(&config)
		disk := mem.Crash(nil)
		if files := disk.Walk(testDir); !slices.Equal(files, full) {
			t.Fatalf("%s: it begins with %q", name, files)
		}
		w, err := OpenWriter(disk, testDir, config)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		chunk := config.Range.Lo + 1
		r, err := w.Save(t.Context(), Snapshot{Step: 11, Chunks: []kintsugi.ChunkID{chunk}, Load: model(t, config.Layout, config.Rule, 2).Load})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		m, _, err := ReadShard(disk, testDir, r.File)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range m.Chunks {
			if e.Chunk == chunk && e.Step != 11 || e.Chunk != chunk && (!c.whole || e.Step != 10) {
				t.Errorf("%s: entry %d is %+v", name, i, e)
			}
		}
		if want := int(config.Range.Hi - config.Range.Lo); c.whole && len(m.Chunks) != want || !c.whole && len(m.Chunks) != 1 {
			t.Errorf("%s: %d of %d chunks are saved", name, len(m.Chunks), want)
		}
		if r := mustVerify(t, disk); len(r.Damage) > 0 {
			t.Errorf("%s: %v", name, r.Damage)
		}
	}
}

// If a segment is gone that the newest shard manifest names, a writer continues the one before.
func TestWriterDoesNotContinueWhatIsGone(t *testing.T) {
	layout := smallLayout(t)
	mem := vfs.NewMem()
	tr := mustTrainer(t, mem, layout, kintsugi.RuleSGD, 1, 1, 1)
	f := model(t, layout, kintsugi.RuleSGD, 1)
	tr.mustSave(t, 10, f)
	part, err := tr.writers[0].Save(t.Context(), Snapshot{Step: 11, Chunks: []kintsugi.ChunkID{1}, Load: f.Load})
	if err != nil {
		t.Fatal(err)
	}
	if err := mem.Remove(inDir(path.Join(segmentDir, path.Base(part.File)))); err != nil {
		t.Fatal(err)
	}
	w := mustTrainer(t, mem, layout, kintsugi.RuleSGD, 1, 1, 1).writers[0]
	r, err := w.Save(t.Context(), Snapshot{Step: 12, Chunks: []kintsugi.ChunkID{2}, Load: f.Load})
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := ReadShard(mem, testDir, r.File)
	if err == nil {
		err = m.checkSegments(mem, testDir)
	}
	if err != nil || len(m.Chunks) != len(layout.Chunks) || m.Chunks[1].Step != 10 || m.Chunks[2].Step != 12 {
		t.Errorf("what is saved now: %+v, %v", m, err)
	}
}

// A name is never used again, even if its file is gone: the newest save of a step has the greatest
// name.
func TestNamesOfOneStepAscend(t *testing.T) {
	layout := smallLayout(t)
	mem := vfs.NewMem()
	w := mustTrainer(t, mem, layout, kintsugi.RuleSGD, 1, 1, 1).writers[0]
	last := ""
	for i := range 4 {
		f := model(t, layout, kintsugi.RuleSGD, uint64(i))
		r, err := w.Save(t.Context(), Snapshot{Step: 10, Load: f.Load})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Compare(r.File, last) <= 0 {
			t.Errorf("%s was saved after %s", r.File, last)
		}
		last = r.File
		for _, file := range mem.Walk(testDir) {
			if i == 2 || i == 1 && path.Base(file) != path.Base(last) {
				if err := mem.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
