package ckpt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// tenant is a run that saves into a place which other runs are given too.
type tenant struct {
	trainer
	run   string
	claim *Claim
}

// take makes a run take the place, and opens its writers on its new line.
func take(fsys vfs.FS, layout *kintsugi.Layout, run string) (*tenant, error) {
	c, err := Take(fsys, testDir, Claim{Run: run, Name: "run " + run, Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
	if err != nil {
		return nil, err
	}
	x := &tenant{trainer: trainer{fs: fsys, layout: layout, rule: kintsugi.RuleMomentum, line: c.Line, fence: 1}, run: run, claim: c}
	return x, x.open(c.Line)
}

// open opens writers on a line.
func (x *tenant) open(line kintsugi.Line) error {
	x.line, x.writers = line, nil
	for i, r := range x.layout.Split(2) {
		w, err := OpenWriter(x.fs, testDir, WriterConfig{
			Layout: x.layout, Rule: x.rule, Shard: kintsugi.ShardID(i), Range: r, Line: line, Fence: x.fence, Run: x.run,
		})
		if err != nil {
			return err
		}
		x.writers = append(x.writers, w)
	}
	return nil
}

// newest restores what the run would go on from; nil: the initialisation.
func (x *tenant) newest() (*Flat, error) {
	m, _, err := NewestOf(x.fs, testDir, x.run)
	if errors.Is(err, ErrNoCheckpoint) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return restoreAll(x.fs, m, x.layout, x.rule)
}

// running restores the newest saved value of each chunk, among all that the run may read.
func (x *tenant) running() (*Flat, error) {
	f, err := NewFlat(x.layout, kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(x.layout.Chunks))}, x.rule)
	if err != nil {
		return nil, err
	}
	_, err = RestoreRunning(context.Background(), x.fs, testDir, Lines{Last: ^kintsugi.Line(0), Run: x.run}, x.layout, f.Range, f.Place)
	return f, err
}

// mustFinish saves as a run does that checked whose the place is just before another run takes it.
func (x *tenant) mustFinish(t *testing.T, step kintsugi.Step, f *Flat) {
	t.Helper()
	for _, w := range x.writers {
		w.cfg.Run = ""
	}
	x.mustSave(t, step, f)
}

func mustTake(t *testing.T, fsys vfs.FS, layout *kintsugi.Layout, run string) *tenant {
	t.Helper()
	x, err := take(fsys, layout, run)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// onBoth runs a test on a file system and on an object store.
func onBoth(t *testing.T, f func(t *testing.T, fsys vfs.FS)) {
	t.Run("folder", func(t *testing.T) { t.Parallel(); f(t, vfs.NewMem()) })
	t.Run("object store", func(t *testing.T) { t.Parallel(); f(t, objectFS(t, &object.Mem{})) })
}

func TestTwoRunsInOnePlaceNeverReadEachOther(t *testing.T) {
	t.Parallel()
	layout := smallLayout(t)
	a, b := model(t, layout, kintsugi.RuleMomentum, 1), model(t, layout, kintsugi.RuleMomentum, 2)
	onBoth(t, func(t *testing.T, fsys vfs.FS) {
		first := mustTake(t, fsys, layout, "a")
		second := mustTake(t, fsys, layout, "b")
		if first.line == second.line {
			t.Fatalf("both are on line %d", first.line)
		}
		// What the first run has begun to save still appears, with a later step than anything of
		// the second.
		first.mustFinish(t, 50, a)
		if got, err := second.newest(); err != nil || got != nil {
			t.Errorf("the second, which began when nothing was there, would go on from %v, %v", got, err)
		}
		part := Snapshot{Step: 10, Chunks: []kintsugi.ChunkID{0}, Load: b.Load}
		if _, err := second.writers[0].Save(t.Context(), part); err != nil {
			t.Fatal(err)
		}
		got, err := second.running()
		if err != nil {
			t.Fatal(err)
		}
		for id, step := range got.Saved {
			if want := kintsugi.Step(0); id > 0 && step != want || id == 0 && !sameBits(got.Chunk(0).Params, b.Chunk(0).Params) {
				t.Errorf("chunk %d of the second comes from step %d", id, step)
			}
		}
		second.mustSave(t, 20, b)
		if got, err := second.newest(); err != nil || !same(got, b) {
			t.Errorf("the second would go on from something else than it has saved: %v", err)
		}
		if got, err := first.newest(); err != nil || !same(got, a) {
			t.Errorf("the first would go on from something else than it has saved: %v", err)
		}
	})
}

func TestARunWhosePlaceWasTakenIsTold(t *testing.T) {
	t.Parallel()
	layout := smallLayout(t)
	onBoth(t, func(t *testing.T, fsys vfs.FS) {
		first := mustTake(t, fsys, layout, "a")
		if err := Holds(fsys, testDir, "a"); err != nil {
			t.Error(err)
		}
		mustTake(t, fsys, layout, "b")
		err := Holds(fsys, testDir, "a")
		if _, saved := first.save(10, model(t, layout, kintsugi.RuleMomentum, 1)); !errors.Is(saved, ErrTaken) {
			t.Errorf("it saves: %v", saved)
		}
		for _, line := range []kintsugi.Line{1, 2, 3} { // its own, the other run's, and one that it has begun in memory
			if opened := first.open(line); !errors.Is(opened, ErrTaken) || !errors.Is(err, ErrTaken) {
				t.Errorf("line %d: %v, %v", line, opened, err)
			}
		}
		if !strings.Contains(err.Error(), `"run b" has it since 2026-01-02T03:04:05Z (line 2,`) {
			t.Errorf("it is told %q", err)
		}
		if err := Holds(fsys, testDir, "b"); err != nil {
			t.Error(err)
		}
	})
}

// A folder that is not mounted looks like a place where no run has been. A run that has begun has
// been in its own.
func TestARunFindsOutThatAPlaceIsNotItsOwn(t *testing.T) {
	t.Parallel()
	layout := smallLayout(t)
	flat := model(t, layout, kintsugi.RuleMomentum, 1)
	onBoth(t, func(t *testing.T, fsys vfs.FS) {
		x := mustTake(t, fsys, layout, "a")
		x.fs = vfs.NewMem()
		if err := x.open(x.line); !errors.Is(err, ErrUnclaimed) {
			t.Errorf("it would write there: %v", err)
		}
		if err := Holds(x.fs, testDir, "a"); !errors.Is(err, ErrUnclaimed) {
			t.Errorf("it would read there: %v", err)
		}
		mustTake(t, x.fs, layout, "a")
		if err := x.open(x.line + 3); err != nil { // the line that it has reached by now
			t.Error(err)
		}
		saved, err := x.writers[1].Save(t.Context(), Snapshot{Step: 7, Load: flat.Load})
		if err != nil {
			t.Fatal(err)
		}
		m := &RunManifest{Line: x.line, Step: 7, Fence: 1, Model: "test", Rule: x.rule, Tensors: layout.Tensors}
		if err := PublishRun(fsys, testDir, m, []string{saved.File}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "shard 1 was saved somewhere else") {
			t.Errorf("published: %v", err)
		}
	})
}

// If a run took a place by mistake, removing its claim gives the place back to the run before.
func TestAPlaceWhoseClaimIsRemovedBelongsToTheRunBefore(t *testing.T) {
	t.Parallel()
	layout := smallLayout(t)
	fsys := vfs.NewMem()
	first := mustTake(t, fsys, layout, "a")
	second := mustTake(t, fsys, layout, "b")
	if err := fsys.Remove(inDir(second.claim.File())); err != nil {
		t.Fatal(err)
	}
	if err := first.open(1); err != nil {
		t.Fatal(err)
	}
	first.mustSave(t, 10, model(t, layout, kintsugi.RuleMomentum, 1))
}

func TestARunGoesOnFromWhatIsInThePlaceItTakes(t *testing.T) {
	t.Parallel()
	layout := smallLayout(t)
	a := model(t, layout, kintsugi.RuleMomentum, 1)
	onBoth(t, func(t *testing.T, fsys vfs.FS) {
		mustTrainer(t, fsys, layout, kintsugi.RuleMomentum, 2, 1, 1).mustSave(t, 10, a) // written by a program that knew no claims
		second := mustTake(t, fsys, layout, "b")
		if got, err := second.newest(); err != nil || !same(got, a) || second.line != 2 {
			t.Errorf("on line %d it goes on from something else than what is there: %v", second.line, err)
		}
	})
}

// A line that begins in memory is claimed when something is first written on it, by whichever shard
// is first.
func TestEveryLineThatIsWrittenOnIsClaimed(t *testing.T) {
	t.Parallel()
	layout := smallLayout(t)
	a := model(t, layout, kintsugi.RuleMomentum, 1)
	onBoth(t, func(t *testing.T, fsys vfs.FS) {
		x := mustTake(t, fsys, layout, "a")
		if err := x.open(5); err != nil {
			t.Fatal(err)
		}
		x.mustSave(t, 10, a)
		held, err := Holder(fsys, testDir)
		if err != nil || held.Line != 5 || held.Run != "a" || !held.Since.Equal(x.claim.Since) {
			t.Errorf("the place is held by %+v, %v", held, err)
		}
		if next := mustTake(t, fsys, layout, "b"); next.line != 6 {
			t.Errorf("the next run is on line %d", next.line)
		}
	})
}

// Runs that take a place at the same time each get their own lines, and the place belongs to one of
// them.
func TestOfManyWhoTakeAPlaceAtOnceOneHasIt(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, fsys vfs.FS) {
		const runs = 8
		var lines [runs]kintsugi.Line
		var wg sync.WaitGroup
		for i := range runs {
			wg.Go(func() {
				c, err := Take(fsys, testDir, Claim{Run: fmt.Sprint(i), Since: time.Unix(int64(i), 0)})
				if err != nil {
					t.Errorf("run %d: %v", i, err)
					return
				}
				lines[i] = c.Line
			})
		}
		wg.Wait()
		have := 0
		for i := range runs {
			if Holds(fsys, testDir, fmt.Sprint(i)) == nil {
				have++
			}
		}
		slices.Sort(lines[:])
		if have != 1 || len(slices.Compact(lines[:])) != runs {
			t.Errorf("%d runs have the place; their lines are %d", have, lines)
		}
		if r := mustVerify(t, fsys); len(r.Damage) > 0 || len(r.Unpublished) > 0 {
			t.Errorf("%+v", r)
		}
	})
}

// handover is what happens in a place until the machine goes down: a run saves, another run takes
// the place and saves, and the first run, which does not know that, tries to save.
func handover(fsys vfs.FS, layout *kintsugi.Layout, a, b *Flat) (taken bool, err error) {
	first, err := take(fsys, layout, "a")
	if err != nil {
		return false, err
	}
	if _, err := first.save(10, a); err != nil {
		return false, err
	}
	second, err := take(fsys, layout, "b")
	if err != nil {
		return false, err
	}
	_, err = first.save(20, a)
	if errors.Is(err, ErrTaken) {
		err = first.open(first.line + 7)
	}
	if !errors.Is(err, ErrTaken) {
		return true, fmt.Errorf("the first run is told: %w", err)
	}
	if err := second.open(second.line + 1); err != nil {
		return true, err
	}
	if _, err := second.save(15, b); err != nil {
		return true, err
	}
	_, err = Compact(fsys, testDir, Retention{Newest: 1})
	return true, err
}

// checkHandover checks what is left by a crash in a handover: the place belongs to one run alone,
// and a third run goes on from one of the checkpoints, which is intact.
func checkHandover(fsys vfs.FS, layout *kintsugi.Layout, a, b *Flat, taken bool) error {
	if taken && Holds(fsys, testDir, "b") != nil {
		return errors.New("the second run has taken the place, and has it no more")
	}
	switch err := Holds(fsys, testDir, "a"); {
	case errors.Is(err, ErrTaken), !taken && err == nil:
	case !taken && errors.Is(err, ErrUnclaimed): // it went down before anything was claimed
	default:
		return fmt.Errorf("the first run is told: %w", err)
	}
	x, err := take(fsys, layout, "c")
	if err != nil {
		return err
	}
	got, err := x.newest()
	if err != nil || got != nil && !same(got, a) && !same(got, b) {
		return fmt.Errorf("a third run goes on from a mixture, or from nothing: %w", err)
	}
	if _, err := x.save(40, a); err != nil {
		return err
	}
	r, err := Verify(context.Background(), fsys, testDir, nil)
	if err != nil || len(r.Damage) > 0 {
		return fmt.Errorf("verify: %v, %w", r.Damage, err)
	}
	return nil
}

func TestACrashWhileAPlaceChangesHandsLeavesItToOneRun(t *testing.T) {
	race.Skip(t)
	t.Parallel()
	layout := smallLayout(t)
	a, b := model(t, layout, kintsugi.RuleMomentum, 1), model(t, layout, kintsugi.RuleMomentum, 2)
	for n := 0; ; n += stride() {
		operations := 0
		for seed := range uint64(4) {
			mem := vfs.NewMem()
			inj := vfs.NewInjector(mem, vfs.CrashAfter(n))
			taken, err := handover(inj, layout, a, b)
			if operations = inj.Operations(); err != nil && !errors.Is(err, vfs.ErrCrashed) {
				t.Fatalf("operation %d: %v", n, err)
			}
			var rng *rand.Rand // in the first round: a disk that loses all it may lose
			if seed > 0 {
				rng = rand.New(rand.NewPCG(seed, uint64(n)))
			}
			if err := checkHandover(mem.Crash(rng), layout, a, b, taken); err != nil {
				t.Fatalf("crash after operation %d, seed %d: %v", n, seed, err)
			}
		}
		if operations <= n {
			if n < 100 {
				t.Fatalf("a handover takes %d operations: the test tests too little", n)
			}
			return
		}
	}
}

func TestACrashBetweenTwoRequestsOfAHandoverLeavesThePlaceToOneRun(t *testing.T) {
	t.Parallel()
	layout := smallLayout(t)
	a, b := model(t, layout, kintsugi.RuleMomentum, 1), model(t, layout, kintsugi.RuleMomentum, 2)
	for n := 0; ; n += stride() {
		mem := &object.Mem{}
		net := &network{Store: mem, choose: func(i int) (bool, error) {
			if i < n {
				return true, nil
			}
			return false, vfs.ErrCrashed
		}}
		taken, err := handover(objectFS(t, net), layout, a, b)
		if err != nil && !errors.Is(err, vfs.ErrCrashed) {
			t.Fatalf("request %d: %v", n, err)
		}
		if err := checkHandover(objectFS(t, mem), layout, a, b, taken); err != nil {
			t.Fatalf("crash at request %d: %v", n, err)
		}
		if net.n <= n {
			if n < 60 {
				t.Fatalf("a handover takes %d requests: the test tests too little", n)
			}
			return
		}
	}
}

// meddler is a disk on which something happens just before the claim of a line is made.
type meddler struct {
	vfs.FS
	meddle func()
}

func (m *meddler) Link(from, to string) error {
	if path.Dir(to) == inDir(lineDir) {
		m.meddle()
	}
	return m.FS.Link(from, to)
}

// A run that takes a place looks first and claims then. What the previous run publishes, and
// compacts away, in between is not missed.
func TestWhatIsPublishedWhileAPlaceIsTakenIsGoneOnFrom(t *testing.T) {
	t.Parallel()
	layout := smallLayout(t)
	a := model(t, layout, kintsugi.RuleMomentum, 1)
	mem := vfs.NewMem()
	first := mustTake(t, mem, layout, "a")
	first.mustSave(t, 10, model(t, layout, kintsugi.RuleMomentum, 3))
	steps := []kintsugi.Step{20, 30}
	second := mustTake(t, &meddler{mem, func() {
		for _, step := range steps {
			first.mustSave(t, step, a)
			if _, err := Compact(mem, testDir, Retention{Newest: 1}); err != nil {
				t.Fatal(err)
			}
		}
		steps = nil
	}}, layout, "b")
	if got, err := second.newest(); err != nil || got == nil || !same(got, a) {
		t.Errorf("it goes on from %v, %v", got, err)
	}
}

// A run that finds the line it wants taken meanwhile takes the next one.
func TestALineThatIsTakenMeanwhileIsLeftToTheOther(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	others := 3
	c, err := Take(&meddler{mem, func() {
		if others--; others >= 0 {
			if _, err := Take(mem, testDir, Claim{Run: fmt.Sprint(others), Since: time.Unix(1, 0)}); err != nil {
				t.Fatal(err)
			}
		}
	}}, testDir, Claim{Run: "b", Since: time.Unix(2, 0)})
	if err != nil || c.Line != 4 || Holds(mem, testDir, "b") != nil {
		t.Errorf("it has %+v, %v", c, err)
	}
}

// A run whose checkpoint is damaged uses any value that was saved before it began, of the run that
// it went on from and of programs that know no claims, and none that another run has saved since.
func TestARunReadsTheLinesThatItBeganWith(t *testing.T) {
	t.Parallel()
	layout := smallLayout(t)
	a := model(t, layout, kintsugi.RuleMomentum, 1)
	onBoth(t, func(t *testing.T, fsys vfs.FS) {
		first := mustTake(t, fsys, layout, "a")
		if err := first.open(4); err != nil {
			t.Fatal(err)
		}
		first.mustSave(t, 10, a)
		if err := first.open(5); err != nil {
			t.Fatal(err)
		}
		first.mustSave(t, 20, a)
		second := mustTake(t, fsys, layout, "b")
		for line, step := range map[kintsugi.Line]kintsugi.Step{3: 30, 4: 11, 9: 35} {
			unclaimed := mustTrainer(t, fsys, layout, kintsugi.RuleMomentum, 2, line, 9)
			if _, err := unclaimed.writers[0].Save(t.Context(), Snapshot{Step: step, Chunks: []kintsugi.ChunkID{kintsugi.ChunkID(line % 3)}, Load: a.Load}); err != nil {
				t.Fatal(err)
			}
		}
		mustTake(t, fsys, layout, "c").mustSave(t, 40, a)
		got, err := second.running()
		if err != nil {
			t.Fatal(err)
		}
		for id, step := range got.Saved {
			if want := map[int]kintsugi.Step{0: 35}[id]; step != max(want, 20) {
				t.Errorf("chunk %d comes from step %d", id, step)
			}
		}
	})
}

func TestADamagedClaimIsFoundAndPutAway(t *testing.T) {
	t.Parallel()
	layout := smallLayout(t)
	mem := vfs.NewMem()
	x := mustTake(t, mem, layout, "a")
	x.mustSave(t, 10, model(t, layout, kintsugi.RuleMomentum, 1))
	if err := x.open(2); err != nil {
		t.Fatal(err)
	}
	if err := mem.Edit(inDir("line/00000000000000000002"), func(b []byte) []byte { b[40] ^= 8; return b }); err != nil {
		t.Fatal(err)
	}
	if err := x.open(2); !errors.Is(err, kintsugi.ErrCorrupt) {
		t.Errorf("a writer says %v", err)
	}
	if r := mustVerify(t, mem); len(r.Damage) != 1 {
		t.Errorf("verify says %v", r.Damage)
	}
	r, err := Repair(t.Context(), mem, testDir, RepairConfig{})
	if err != nil || !slices.Equal(r.Quarantined, []string{"line/00000000000000000002"}) {
		t.Errorf("repair has moved %q, %v", r.Quarantined, err)
	}
	if err := x.open(2); err != nil {
		t.Error(err)
	}
	if r := mustVerify(t, mem); len(r.Damage) != 0 {
		t.Errorf("verify says %v", r.Damage)
	}
}
