package ckpt

import (
	"bytes"
	"errors"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// crowded fills a directory with what a compaction tells apart: checkpoints of several periods, one
// of them damaged, a save of both shards that is not published yet, saves of parts by three writers,
// and what saves that crashed or are in progress have written.
func crowded(t testing.TB) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem()
	layout := smallLayout(t)
	var tr *trainer
	damage := func(file string) {
		if err := mem.Edit(inDir(file), func(b []byte) []byte { return b[1:] }); err != nil {
			t.Fatal(err)
		}
	}
	save := func(shard int, step kintsugi.Step, chunks ...kintsugi.ChunkID) string {
		r, err := tr.writers[shard].Save(t.Context(), Snapshot{Step: step, Chunks: chunks, Load: model(t, layout, kintsugi.RuleSGD, 1).Load})
		if err != nil {
			t.Fatal(err)
		}
		return r.File
	}
	lo := [2]kintsugi.ChunkID{0, layout.Split(2)[1].Lo}
	for _, fence := range []kintsugi.Fence{1, 2} {
		tr = mustTrainer(t, mem, layout, kintsugi.RuleSGD, 2, 2, fence)
		first := kintsugi.Step(fence)*40 - 30 // 10 to 40, and 50 to 80
		for step := first; step < first+40; step += 10 {
			m := tr.mustSave(t, step, model(t, layout, kintsugi.RuleSGD, uint64(step)))
			if step == 20 {
				damage(m.Shards[1].File)
			}
			save(0, step+1, lo[0])
		}
	}
	save(0, 82) // all chunks
	save(1, 82)
	tr = mustTrainer(t, mem, layout, kintsugi.RuleSGD, 2, 2, 3)
	for step := kintsugi.Step(83); step <= 86; step++ {
		save(0, step, lo[0])
	}
	damage(save(1, 84, lo[1]))
	damage(save(1, 86, lo[1]))
	for _, n := range []fileName{{Step: 30, Fence: 1}, {Step: 83, Fence: 2}, {Step: 84, Fence: 3}, {Step: 99, Fence: 3}} {
		n.Line = 2
		shard := fileName{Line: 2, Step: n.Step, Fence: n.Fence, Attempt: 7}
		for _, name := range []string{
			path.Join(tmpDir, runDir+"-"+n.run()+".1"),
			path.Join(tmpDir, shardDir+"-"+shard.shard()+".0"),
			path.Join(segmentDir, shard.shard()),
		} {
			leave(t, mem, name)
		}
	}
	for _, name := range []string{"line-" + claimName(1) + ".0", "line-" + claimName(2) + ".0", "a foreign file"} {
		leave(t, mem, path.Join(tmpDir, name))
	}
	return mem
}

// leave leaves a file as a process does that goes down while it writes it.
func leave(t testing.TB, mem *vfs.Mem, name string) {
	t.Helper()
	f, err := mem.Create(inDir(name))
	if err == nil {
		_, err = f.Write([]byte("half of it"))
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close(), mem.SyncDir(path.Dir(inDir(name)))); err != nil {
		t.Fatal(err)
	}
}

var zeros = regexp.MustCompile(`\b0+(\d)`)

// namesIn lists the files of a directory, a line for each folder, and numbers without zeros before
// them: line-step-fence for a run manifest, line-step-fence-shard-attempt for a file of a shard.
func namesIn(mem *vfs.Mem) (names string) {
	last := ""
	for _, name := range mem.Walk(testDir) {
		folder, name := path.Split(zeros.ReplaceAllString(strings.TrimPrefix(name, testDir+"/"), "$1"))
		if folder != last {
			names += "\n" + folder
			last = folder
		}
		names += " " + name
	}
	return names
}

// A disk that refuses once while a directory is made smaller says nothing about its files. The
// error is returned, nothing is removed that is to be kept, and the next compaction leaves what one
// that nothing disturbs leaves.
func TestADiskThatRefusesACompactionChangesNothing(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	full := crowded(t)
	for keep, files := range map[Retention]string{
		{Newest: 1}: `
manifest/ 2-80-2
segment/ 2-80-2-0-0 2-80-2-1-0 2-82-2-0-0 2-82-2-1-0 2-83-2-0-7 2-84-3-1-0 2-86-3-0-0 2-86-3-1-0 2-99-3-0-7
shard/ 2-80-2-0-0 2-80-2-1-0 2-82-2-0-0 2-82-2-1-0 2-84-3-1-0 2-86-3-0-0 2-86-3-1-0
tmp/ a foreign file line-2.0 manifest-2-83-2.1 manifest-2-84-3.1 manifest-2-99-3.1 shard-2-83-2-0-7.0 shard-2-99-3-0-7.0`,
		{Newest: 2, Every: 20}: `
manifest/ 2-20-1 2-30-1 2-40-1 2-60-2 2-70-2 2-80-2
segment/ 2-20-1-0-0 2-20-1-1-0 2-30-1-0-0 2-30-1-1-0 2-40-1-0-0 2-40-1-1-0 2-60-2-0-0 2-60-2-1-0 2-70-2-0-0 2-70-2-1-0` +
			` 2-80-2-0-0 2-80-2-1-0 2-82-2-0-0 2-82-2-1-0 2-83-2-0-7 2-84-3-1-0 2-85-3-0-0 2-86-3-0-0 2-86-3-1-0 2-99-3-0-7
shard/ 2-20-1-0-0 2-20-1-1-0 2-30-1-0-0 2-30-1-1-0 2-40-1-0-0 2-40-1-1-0 2-60-2-0-0 2-60-2-1-0 2-70-2-0-0 2-70-2-1-0` +
			` 2-80-2-0-0 2-80-2-1-0 2-82-2-0-0 2-82-2-1-0 2-84-3-1-0 2-85-3-0-0 2-86-3-0-0 2-86-3-1-0
tmp/ a foreign file line-2.0 manifest-2-83-2.1 manifest-2-84-3.1 manifest-2-99-3.1 shard-2-83-2-0-7.0 shard-2-99-3-0-7.0`,
	} {
		mem := full.Crash(nil)
		before := readTree(t, mem)
		report, err := Compact(mem, testDir, keep)
		if err != nil {
			t.Fatal(err)
		}
		if left := namesIn(mem); left != files {
			t.Errorf("%+v leaves%s\nwant%s", keep, left, files)
		}
		want := readTree(t, mem)
		freed := int64(0)
		for name, b := range before {
			if _, left := want[name]; left == slices.Contains(report.Removed, strings.TrimPrefix(name, testDir+"/")) {
				t.Errorf("%+v: %s is left: %v, and the report says the opposite", keep, name, left)
			} else if !left {
				freed += int64(len(b))
			}
		}
		if report.Freed != freed || freed == 0 {
			t.Errorf("%+v: %d bytes are said to be freed, %d are", keep, report.Freed, freed)
		}
		for n := 0; ; n += stride() {
			mem := full.Crash(nil)
			disk := vfs.NewInjector(mem, vfs.FailAt(n, syscall.EACCES))
			compactor := new(Compactor)
			_, err := compactor.Compact(disk, testDir, keep)
			if disk.Operations() <= n {
				if n < 50 {
					t.Errorf("a compaction takes %d operations: the test tests nothing", n)
				}
				break
			}
			left := readTree(t, mem)
			for name := range want {
				if left[name] == nil {
					t.Fatalf("%+v, operation %d is refused: %s is gone", keep, n, name)
				}
			}
			if !errors.Is(err, syscall.EACCES) {
				t.Fatalf("%+v, operation %d is refused: the error is %v", keep, n, err)
			}
			if _, err := compactor.Compact(mem, testDir, keep); err != nil {
				t.Fatalf("%+v, operation %d was refused: the next one says %v", keep, n, err)
			}
			if left := readTree(t, mem); !maps.EqualFunc(left, want, bytes.Equal) {
				t.Fatalf("%+v, operation %d was refused: the next one leaves %d files, want %d", keep, n, len(left), len(want))
			}
		}
	}
}
