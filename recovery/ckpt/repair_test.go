package ckpt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

var repairTime = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

// damagedRun is a directory with two full checkpoints, saves of parts after each, and models by step.
func damagedRun(t testing.TB, fsys vfs.FS) (*kintsugi.Layout, map[kintsugi.Step]*Flat) {
	t.Helper()
	layout := smallLayout(t)
	models := map[kintsugi.Step]*Flat{}
	tr := mustTrainer(t, fsys, layout, kintsugi.RuleMomentum, 2, 1, 1)
	for _, step := range []kintsugi.Step{10, 20} {
		for at := step; at < step+3; at++ {
			models[at] = model(t, layout, kintsugi.RuleMomentum, uint64(at))
		}
		tr.mustSave(t, step, models[step])
		for i := range kintsugi.ChunkID(2) {
			w := tr.writers[i]
			s := Snapshot{Step: step + 1 + kintsugi.Step(i), Chunks: []kintsugi.ChunkID{w.cfg.Range.Lo + i, w.cfg.Range.Lo + i + 1}, Load: models[step+1+kintsugi.Step(i)].Load}
			if _, err := w.Save(context.Background(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	return layout, models
}

// state is what can be restored from a directory.
type state struct {
	newest  kintsugi.Step   // step of the newest complete checkpoint; 0: none
	whole   []kintsugi.Step // steps of all complete checkpoints, descending
	running []kintsugi.Step // by chunk: the step of its newest intact value; 0: none
}

func stateOf(t testing.TB, fsys vfs.FS, layout *kintsugi.Layout, models map[kintsugi.Step]*Flat) (s state) {
	t.Helper()
	all := kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(layout.Chunks))}
	names, err := List(fsys, testDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		m, err := Read(fsys, testDir, name)
		if err != nil {
			continue
		}
		if got, err := restoreAll(fsys, m, layout, kintsugi.RuleMomentum); err == nil {
			if !same(got, models[m.Step]) {
				t.Fatalf("%s restores to other values than were saved", name)
			}
			s.newest, s.whole = max(s.newest, m.Step), append(s.whole, m.Step)
		}
	}
	flat, err := NewFlat(layout, all, kintsugi.RuleMomentum)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := RestoreRunning(context.Background(), fsys, testDir, Lines{First: 1, Last: 1}, layout, all, flat.Place); err != nil {
		t.Fatal(err)
	}
	for id, step := range flat.Saved {
		if step > 0 && !sameBits(flat.Chunk(kintsugi.ChunkID(id)).Params, models[step].Chunk(kintsugi.ChunkID(id)).Params) {
			t.Fatalf("chunk %d comes from step %d and is not what was saved then", id, step)
		}
	}
	s.running = flat.Saved
	return s
}

// atLeast fails if something that could be restored before no longer can be.
func (s state) atLeast(t testing.TB, what string, before state) {
	t.Helper()
	if s.newest < before.newest {
		t.Fatalf("%s: the newest whole checkpoint is of step %d; it was %d", what, s.newest, before.newest)
	}
	for _, step := range before.whole {
		if !slices.Contains(s.whole, step) {
			t.Fatalf("%s: checkpoints of steps %d are whole; they were %d", what, s.whole, before.whole)
		}
	}
	for id := range s.running {
		if s.running[id] < before.running[id] {
			t.Fatalf("%s: chunk %d comes back from step %d; it was %d", what, id, s.running[id], before.running[id])
		}
	}
}

// contents returns how often each file content occurs in a directory.
func contents(files map[string][]byte) map[string]int {
	n := map[string]int{}
	for _, b := range files {
		n[string(b)]++
	}
	return n
}

func readTree(t testing.TB, m *vfs.Mem) map[string][]byte {
	files := map[string][]byte{}
	for _, name := range m.Walk(testDir) {
		b, err := readAll(m, "", name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = b
	}
	return files
}

// checkRepaired repairs and checks what Repair promises.
func checkRepaired(t *testing.T, what string, fsys *vfs.Mem, layout *kintsugi.Layout, models map[kintsugi.Step]*Flat) RepairReport {
	t.Helper()
	before, files := stateOf(t, fsys, layout, models), contents(readTree(t, fsys))
	report, err := Repair(context.Background(), fsys, testDir, RepairConfig{Now: repairTime})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if r := mustVerify(t, fsys); len(r.Damage) > 0 {
		t.Fatalf("%s: there is damage after the repair: %v\n%+v", what, r.Damage, report)
	}
	stateOf(t, fsys, layout, models).atLeast(t, what, before)
	after := contents(readTree(t, fsys))
	for content, n := range files {
		if after[content] < n {
			t.Fatalf("%s: %d bytes are gone: %.80q", what, len(content), content)
		}
	}
	return report
}

func TestRepairKeepsAllThatIsWhole(t *testing.T) {
	race.Skip(t)
	t.Parallel()
	base := vfs.NewMem()
	layout, models := damagedRun(t, base)
	whole := stateOf(t, base, layout, models)
	first := slices.Min(base.Walk(inDir(runDir)))
	rng := rand.New(rand.NewPCG(1, 2))
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	for _, name := range base.Walk(testDir) {
		info, err := base.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		for round := range rounds {
			fsys := vfs.NewMem()
			damagedRun(t, fsys)
			what := ""
			switch round {
			case 0:
				what = name + " is gone"
				if err := fsys.Remove(name); err != nil {
					t.Fatal(err)
				}
			case 1:
				what = name + " has lost its second half"
				err = fsys.Edit(name, func(b []byte) []byte { return b[:len(b)/2] })
			default:
				at := rng.IntN(int(info.Size))
				what = fmt.Sprintf("byte %d of %d in %s is wrong", at, info.Size, name)
				err = fsys.Edit(name, func(b []byte) []byte { b[at] ^= 0x11; return b })
			}
			if err != nil {
				t.Fatal(err)
			}
			report := checkRepaired(t, what, fsys, layout, models)
			if strings.Contains(name, "/"+segmentDir+"/") {
				continue
			}
			// The segments are intact, so everything can be restored: manifests are written again.
			// A full save's own bytes come back. An old run manifest that is gone was removed on purpose.
			want, after := whole, stateOf(t, fsys, layout, models)
			if round == 0 && name == first {
				want.whole = []kintsugi.Step{whole.newest}
				if !slices.Equal(after.whole, want.whole) {
					t.Fatalf("%s: checkpoints of steps %d are whole, want %d", what, after.whole, want.whole)
				}
			}
			after.atLeast(t, what, want)
			if len(report.Published) == 0 && len(report.Damage) > 0 {
				t.Fatalf("%s: nothing was published: %+v", what, report)
			}
		}
	}
}

func TestRepairLosesOneChunkWhereOneIsDamaged(t *testing.T) {
	fsys := vfs.NewMem()
	layout, models := damagedRun(t, fsys)
	before := stateOf(t, fsys, layout, models)
	var file string // the segment of shard 0 at step 20
	for _, name := range fsys.Walk(testDir) {
		if n, ok := parseIn(segmentDir, strings.TrimPrefix(name, testDir+"/")); ok && n.Step == 20 && n.Shard == 0 {
			file = name
		}
	}
	if err := fsys.Edit(file, func(b []byte) []byte { b[len(b)-align-1] ^= 1; return b }); err != nil { // the last chunk
		t.Fatal(err)
	}
	report := checkRepaired(t, "one chunk", fsys, layout, models)
	if report.Lost != 1 || report.Salvaged == 0 || len(report.Damage) != 1 {
		t.Errorf("%+v", report)
	}
	after := stateOf(t, fsys, layout, models)
	if after.newest != 10 {
		t.Errorf("the newest checkpoint is of step %d; want 10: one chunk of step 20 is lost", after.newest)
	}
	older := 0
	for id := range after.running {
		if after.running[id] < before.running[id] {
			older++
		}
	}
	if older > 1 {
		t.Errorf("%d chunks are older than before", older)
	}
	// A server goes on with what is there.
	tr := mustTrainer(t, fsys, layout, kintsugi.RuleMomentum, 2, 1, 2)
	models[30] = model(t, layout, kintsugi.RuleMomentum, 30)
	tr.mustSave(t, 30, models[30])
	if s := stateOf(t, fsys, layout, models); s.newest != 30 {
		t.Errorf("after the next save the newest is of step %d", s.newest)
	}
}

func TestRepairOfManyDamagedFiles(t *testing.T) {
	t.Parallel()
	seeds := uint64(150)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 5))
		fsys := vfs.NewMem()
		layout, models := damagedRun(t, fsys)
		for _, name := range fsys.Walk(testDir) {
			if rng.IntN(4) > 0 {
				continue
			}
			var err error
			if rng.IntN(4) == 0 {
				err = fsys.Remove(name)
			} else {
				err = fsys.Edit(name, func(b []byte) []byte { b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255)); return b })
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		checkRepaired(t, fmt.Sprintf("seed %d", seed), fsys, layout, models)
		// A second repair finds nothing to do.
		if again, err := Repair(context.Background(), fsys, testDir, RepairConfig{Now: repairTime}); err != nil || len(again.Quarantined)+len(again.Published) > 0 {
			t.Fatalf("seed %d: the second repair: %+v, %v", seed, again, err)
		}
	}
}

// Places of damage: the last file of each folder of a run, or of those of manifests, or the manifest
// of its oldest checkpoint.
var (
	everywhere = []string{runDir, shardDir, segmentDir}
	breaks     = [][]string{everywhere, {runDir, shardDir}, {oldest + runDir}}
)

// oldest before a folder's name stands for its first file.
const oldest = "oldest "

// breakAt damages, by edit, that one of the names that each place says.
func breakAt(t testing.TB, names []string, edit func(name string, f func([]byte) []byte), places []string) {
	t.Helper()
	for _, place := range places {
		folder, first := strings.CutPrefix(place, oldest)
		var in []string
		for _, name := range names {
			if path.Dir(name) == inDir(folder) {
				in = append(in, name)
			}
		}
		if len(in) < 2 {
			t.Fatalf("%s: there is nothing to damage in %q", place, names)
		}
		chosen := slices.Max(in)
		if first {
			chosen = slices.Min(in)
		}
		edit(chosen, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	}
}

// breakFiles is breakAt in memory.
func breakFiles(t testing.TB, mem *vfs.Mem, places ...string) {
	t.Helper()
	breakAt(t, mem.Walk(testDir), func(name string, f func([]byte) []byte) {
		if err := mem.Edit(name, f); err != nil {
			t.Fatal(err)
		}
	}, places)
}

// brokenRun is a damagedRun with damage in places.
func brokenRun(t testing.TB, places []string) (*vfs.Mem, *kintsugi.Layout, map[kintsugi.Step]*Flat) {
	t.Helper()
	mem := vfs.NewMem()
	layout, models := damagedRun(t, mem)
	for _, dir := range []string{runDir, shardDir, segmentDir} {
		if err := mem.SyncDir(inDir(dir)); err != nil {
			t.Fatal(err)
		}
	}
	mem = mem.Crash(nil) // everything is on the disk
	breakFiles(t, mem, places...)
	return mem, layout, models
}

// repairedUndisturbed is what a repair that nothing disturbs makes of a brokenRun.
func repairedUndisturbed(t testing.TB, places []string) state {
	t.Helper()
	mem, layout, models := brokenRun(t, places)
	before := stateOf(t, mem, layout, models)
	if _, err := Repair(context.Background(), mem, testDir, RepairConfig{Now: repairTime}); err != nil {
		t.Fatal(err)
	}
	s := stateOf(t, mem, layout, models)
	s.atLeast(t, "undisturbed", before)
	return s
}

func TestACrashDuringARepairLosesNothing(t *testing.T) {
	race.Skip(t)
	t.Parallel()
	for _, places := range breaks {
		want := repairedUndisturbed(t, places)
		for n := 0; ; n += stride() {
			mem, layout, models := brokenRun(t, places)
			before := stateOf(t, mem, layout, models)
			inj := vfs.NewInjector(mem, vfs.CrashAfter(n))
			_, err := Repair(context.Background(), inj, testDir, RepairConfig{Now: repairTime})
			disk := mem.Crash(rand.New(rand.NewPCG(uint64(n), 7)))
			what := fmt.Sprintf("%v damaged, crash after operation %d", places, n)
			if s := stateOf(t, disk, layout, models); s.newest < before.newest {
				t.Fatalf("%s: the newest whole checkpoint is of step %d; it was %d", what, s.newest, before.newest)
			}
			checkRepaired(t, what, disk, layout, models)
			stateOf(t, disk, layout, models).atLeast(t, what, want)
			if err == nil {
				break
			}
		}
	}
}

func TestARepairThatFailsCanBeTriedAgain(t *testing.T) {
	want := repairedUndisturbed(t, everywhere)
	for _, fault := range []error{syscall.ENOSPC, syscall.EROFS} {
		for n := 0; ; n += 3 {
			mem, layout, models := brokenRun(t, everywhere)
			writes := 0
			inj := vfs.NewInjector(mem, func(op vfs.Op) vfs.Fault {
				if !slices.Contains([]vfs.Kind{vfs.OpWrite, vfs.OpCreate, vfs.OpLink, vfs.OpRename, vfs.OpSync}, op.Kind) {
					return vfs.Fault{}
				}
				if writes++; writes <= n {
					return vfs.Fault{}
				}
				return vfs.Fault{Err: fault, Written: op.Bytes / 2}
			})
			_, err := Repair(context.Background(), inj, testDir, RepairConfig{Now: repairTime})
			if err != nil && !errors.Is(err, fault) {
				t.Fatalf("after %d writes: %v; want %v", n, err, fault)
			}
			checkRepaired(t, fmt.Sprintf("%v after %d writes", fault, n), mem, layout, models)
			stateOf(t, mem, layout, models).atLeast(t, "again", want)
			if err == nil {
				break
			}
		}
	}
}

func TestRepairInAnObjectStore(t *testing.T) {
	t.Parallel()
	want := repairedUndisturbed(t, everywhere)
	for n := 0; ; n += 2 * stride() {
		mem := &object.Mem{}
		layout, models := damagedRun(t, objectFS(t, mem))
		breakAt(t, slices.Collect(maps.Keys(mem.Objects())), func(name string, f func([]byte) []byte) {
			mem.Put(name, f(slices.Clone(mem.Objects()[name])))
		}, everywhere)
		net := &network{Store: mem, choose: func(i int) (bool, error) {
			if i < n {
				return true, nil
			}
			return i == n && n%4 == 0, vfs.ErrCrashed
		}}
		_, err := Repair(context.Background(), objectFS(t, net), testDir, RepairConfig{Now: repairTime})
		after := objectFS(t, mem)
		if _, err := Repair(context.Background(), after, testDir, RepairConfig{Now: repairTime}); err != nil {
			t.Fatalf("crash at request %d: %v", n, err)
		}
		if r := mustVerify(t, after); len(r.Damage) > 0 {
			t.Fatalf("crash at request %d: %v", n, r.Damage)
		}
		stateOf(t, after, layout, models).atLeast(t, fmt.Sprintf("crash at request %d", n), want)
		if err == nil {
			return
		}
	}
}

func TestRepairNeedsTheModelWhereNoRunManifestIsLeft(t *testing.T) {
	for _, known := range []bool{false, true} {
		fsys := vfs.NewMem()
		layout, models := damagedRun(t, fsys)
		for _, name := range fsys.Walk(inDir(runDir)) {
			if err := fsys.Edit(name, func(b []byte) []byte { b[5] ^= 1; return b }); err != nil {
				t.Fatal(err)
			}
		}
		c := RepairConfig{Now: repairTime}
		if known {
			c.Model = &RunManifest{Model: "small", Seed: 7, Tensors: layout.Tensors}
		}
		r, err := Repair(context.Background(), fsys, testDir, c)
		if err != nil {
			t.Fatal(err)
		}
		if s := stateOf(t, fsys, layout, models); (s.newest == 20) != known {
			t.Errorf("the model is known: %t; the newest checkpoint is of step %d", known, s.newest)
		}
		if want := []kintsugi.Step{10, 20}; slices.Equal(r.Nameless, want) == known {
			t.Errorf("the model is known: %t; it is missed for steps %d, want %d", known, r.Nameless, want)
		}
	}
}

// If a directory has taken the place of a segment, nothing of the segment is left. That is damage
// like any other, and not a disk that fails for the moment.
func TestADirectoryInPlaceOfASegmentIsDamage(t *testing.T) {
	t.Chdir(t.TempDir())
	fsys := vfs.OS{}
	layout, models := damagedRun(t, fsys)
	segments, err := fsys.List(inDir(segmentDir))
	if err != nil {
		t.Fatal(err)
	}
	newest := inDir(segmentDir + "/" + segments[len(segments)-1])
	if err := errors.Join(fsys.Remove(newest), fsys.MkdirAll(newest)); err != nil {
		t.Fatal(err)
	}
	all := kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(layout.Chunks))}
	nowhere := func(ChunkInfo) (Arrays, error) { return Arrays{}, nil }
	if r, err := RestoreRunning(t.Context(), fsys, testDir, Lines{First: 1, Last: 1}, layout, all, nowhere); err != nil || len(r.Skipped) == 0 || len(r.Missing) > 0 {
		t.Errorf("the running checkpoint: %+v, %v", r, err)
	}
	if _, err := Repair(t.Context(), fsys, testDir, RepairConfig{Now: repairTime}); err != nil {
		t.Fatal(err)
	}
	if r := mustVerify(t, fsys); len(r.Damage) > 0 {
		t.Errorf("after the repair: %v", r.Damage)
	}
	if s := stateOf(t, fsys, layout, models); s.newest == 0 {
		t.Error("no checkpoint is left")
	}
}
