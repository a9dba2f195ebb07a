package ckpt

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// answers are what a directory says when it is asked, each as text that has every bit of it. skipped
// is the number of damaged files that the answer names.
var answers = map[string]func(fsys vfs.FS, layout *kintsugi.Layout, rule kintsugi.Rule) (answer string, skipped int, err error){
	"Newest": func(fsys vfs.FS, layout *kintsugi.Layout, rule kintsugi.Rule) (string, int, error) {
		m, skipped, err := Newest(fsys, testDir)
		if err != nil {
			return "", len(skipped), err
		}
		f, err := restoreAll(fsys, m, layout, rule)
		return m.Name() + bitsOf(f), len(skipped), err
	},
	"NewestOf": func(fsys vfs.FS, _ *kintsugi.Layout, _ kintsugi.Rule) (string, int, error) {
		m, skipped, err := NewestOf(fsys, testDir, "mine")
		if err != nil {
			return "", len(skipped), err
		}
		return m.Name(), len(skipped), err
	},
	"List": func(fsys vfs.FS, _ *kintsugi.Layout, _ kintsugi.Rule) (string, int, error) {
		names, err := List(fsys, testDir)
		return strings.Join(names, " "), 0, err
	},
	"Params": func(fsys vfs.FS, layout *kintsugi.Layout, _ kintsugi.Rule) (string, int, error) {
		names, err := List(fsys, testDir)
		var all []*RunManifest
		for _, name := range names {
			m, err := Read(fsys, testDir, name)
			if err != nil {
				return "", 0, err
			}
			all = append(all, m)
		}
		if err != nil {
			return "", 0, err
		}
		mean, err := Params(context.Background(), fsys, testDir, layout, all...)
		return hexOf(mean), 0, err
	},
	"RestoreRunning": func(fsys vfs.FS, layout *kintsugi.Layout, rule kintsugi.Rule) (string, int, error) {
		f, err := NewFlat(layout, kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(layout.Chunks))}, rule)
		if err != nil {
			return "", 0, err
		}
		report, err := RestoreRunning(context.Background(), fsys, testDir, Lines{First: 1, Last: 9, Run: "mine"}, layout, f.Range, f.Place)
		return fmt.Sprint(report.Missing, f.Saved) + bitsOf(f), len(report.Skipped), err
	},
	"Survey": func(fsys vfs.FS, layout *kintsugi.Layout, _ kintsugi.Rule) (string, int, error) {
		states, skipped, err := Survey(context.Background(), fsys, testDir, layout, func(a, b []float32) (float64, error) {
			return math.Float64frombits(uint64(math.Float32bits(a[0])) ^ uint64(math.Float32bits(b[0]))<<32), nil
		})
		text := ""
		for _, s := range states {
			before := kintsugi.Step(0)
			if s.Before != nil {
				before = *s.Before
			}
			s.Before = nil
			text += fmt.Sprintf("%+v before %d moved %x\n", s, before, math.Float64bits(s.Moved))
		}
		return text, len(skipped), err
	},
	"Verify": func(fsys vfs.FS, _ *kintsugi.Layout, _ kintsugi.Rule) (string, int, error) {
		r, err := Verify(context.Background(), fsys, testDir, nil)
		text := fmt.Sprint(r.Unpublished, r.Files, r.Bytes)
		for _, c := range r.Checkpoints {
			text += fmt.Sprintf(" %s, %d damaged", c.Name, len(c.Damage))
		}
		return text, len(r.Damage), err
	},
	"LastLine": func(fsys vfs.FS, _ *kintsugi.Layout, _ kintsugi.Rule) (string, int, error) {
		line, err := LastLine(fsys, testDir)
		return fmt.Sprint(line), 0, err
	},
	"Holder": func(fsys vfs.FS, _ *kintsugi.Layout, _ kintsugi.Rule) (string, int, error) {
		c, err := Holder(fsys, testDir)
		return fmt.Sprintf("%+v", c), 0, err
	},
	"Holds": func(fsys vfs.FS, _ *kintsugi.Layout, _ kintsugi.Rule) (string, int, error) {
		return "mine", 0, Holds(fsys, testDir, "mine")
	},
}

func hexOf(values []float32) string {
	var b strings.Builder
	for _, v := range values {
		fmt.Fprintf(&b, " %08x", math.Float32bits(v))
	}
	return b.String()
}

func bitsOf(f *Flat) string {
	if f == nil {
		return ""
	}
	return fmt.Sprint(f.Steps) + hexOf(f.Params) + hexOf(f.State[0]) + hexOf(f.State[1])
}

// places fill directories as runs leave them: with whole chunks of two shards and what was saved of
// some of them since, and with chains of increments.
var places = map[string]func(t *testing.T, fsys vfs.FS) (*kintsugi.Layout, kintsugi.Rule){
	"whole chunks": func(t *testing.T, fsys vfs.FS) (*kintsugi.Layout, kintsugi.Rule) {
		if _, err := Take(fsys, testDir, Claim{Line: 1, Run: "mine", Name: "a run", Since: time.Unix(9, 0)}); err != nil {
			t.Fatal(err)
		}
		layout := smallLayout(t)
		tr := mustTrainer(t, fsys, layout, kintsugi.RuleAdam, 2, 1, 1)
		for step := range kintsugi.Step(3) {
			tr.mustSave(t, 10+10*step, model(t, layout, kintsugi.RuleAdam, uint64(step)))
		}
		later := model(t, layout, kintsugi.RuleAdam, 9)
		for i, w := range tr.writers {
			if _, err := w.Save(context.Background(), Snapshot{Step: 35 + kintsugi.Step(i), Chunks: []kintsugi.ChunkID{w.cfg.Range.Lo}, Load: later.Load}); err != nil {
				t.Fatal(err)
			}
		}
		return layout, kintsugi.RuleAdam
	},
	"a place that has changed hands": func(t *testing.T, fsys vfs.FS) (*kintsugi.Layout, kintsugi.Rule) {
		layout := smallLayout(t)
		first := mustTake(t, fsys, layout, "before")
		first.mustSave(t, 10, model(t, layout, kintsugi.RuleMomentum, 1))
		between := mustTake(t, fsys, layout, "between")
		mine := mustTake(t, fsys, layout, "mine")
		between.mustFinish(t, 25, model(t, layout, kintsugi.RuleMomentum, 6))
		mine.mustSave(t, 20, model(t, layout, kintsugi.RuleMomentum, 2))
		first.mustFinish(t, 30, model(t, layout, kintsugi.RuleMomentum, 3))
		mustTake(t, fsys, layout, "after").mustSave(t, 40, model(t, layout, kintsugi.RuleMomentum, 4))
		mine.mustFinish(t, 50, model(t, layout, kintsugi.RuleMomentum, 5))
		return layout, kintsugi.RuleMomentum
	},
	"increments": func(t *testing.T, fsys vfs.FS) (*kintsugi.Layout, kintsugi.Rule) {
		x, err := newShadowed(t, fsys, kintsugi.RuleMomentum, Increments{Encoding: kernels.Int8, Coasts: 9})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			x.move()
			if err := x.save([]kintsugi.ChunkID{0, 2}); err != nil {
				t.Fatal(err)
			}
		}
		return x.Layout, kintsugi.RuleMomentum
	},
}

// Whichever operation of the disk fails, a directory never gives another answer because of it. An
// error that may pass is returned. A place that cannot be read is an error, or is named as damage,
// and then something older may be the answer.
func TestAnErrorOfTheDiskIsNeverTakenForAnAnswer(t *testing.T) {
	race.Skip(t)
	operations := 0
	for place, fill := range places {
		mem := vfs.NewMem()
		layout, rule := fill(t, mem)
		for name, ask := range answers {
			want, none, wantErr := ask(mem, layout, rule)
			if none > 0 {
				t.Fatalf("%s, %s: damage in a whole directory", place, name)
			}
			for n := 0; ; n++ {
				done := false
				for _, fault := range []error{syscall.EACCES, syscall.EIO} {
					disk := vfs.NewInjector(mem, vfs.FailAt(n, fault))
					got, skipped, err := ask(disk, layout, rule)
					if done = disk.Operations() <= n; done {
						break
					}
					operations++
					switch {
					case errors.Is(err, fault):
					case err != nil && wantErr != nil && err.Error() == wantErr.Error(): // there is no such thing here in any case
					case err != nil && fault == syscall.EIO && errors.Is(err, kintsugi.ErrCorrupt):
					case err != nil && fault == syscall.EIO && skipped > 0:
					case err != nil:
						t.Errorf("%s, %s, operation %d fails with %v: the error is %v", place, name, n, fault, err)
					case got == want && wantErr == nil: // it was not needed
					case fault == syscall.EIO && skipped > 0:
					default:
						t.Errorf("%s, %s, operation %d fails with %v: the answer is\n%s, want\n%s (%v)", place, name, n, fault, got, want, wantErr)
					}
				}
				if done {
					break
				}
			}
		}
	}
	t.Logf("%d operations have failed", operations)
	if operations < 200 {
		t.Errorf("%d operations have failed: the test tests nothing", operations)
	}
}

// A request to an object store that fails once is made again, and the answer is the same. If the
// store is away from a request on, that is an error.
func TestAStoreThatIsAwayIsNeverTakenForAnAnswer(t *testing.T) {
	race.Skip(t)
	requests := 0
	for place, fill := range places {
		mem := &object.Mem{}
		layout, rule := fill(t, objectFS(t, mem))
		for name, ask := range answers {
			want, _, wantErr := ask(objectFS(t, mem), layout, rule)
			for n, done := 0, false; !done; n++ {
				for _, forever := range []bool{false, true} {
					net := &network{Store: mem, choose: func(i int) (bool, error) {
						if i == n || forever && i > n {
							return false, fmt.Errorf("%w: 503 Slow Down", object.ErrAway)
						}
						return true, nil
					}}
					got, skipped, err := ask(objectFS(t, net), layout, rule)
					if done = net.n <= n; done {
						break
					}
					requests++
					switch {
					case forever && errors.Is(err, object.ErrAway):
					case forever && wantErr != nil && err != nil:
					case !forever && got == want && skipped == 0 && fmt.Sprint(err) == fmt.Sprint(wantErr):
					default:
						t.Errorf("%s, %s, request %d fails, forever: %v: the answer is\n%s (%v), want\n%s (%v)", place, name, n, forever, got, err, want, wantErr)
					}
				}
			}
		}
	}
	t.Logf("%d requests have failed", requests)
	if requests < 200 {
		t.Errorf("%d requests have failed: the test tests nothing", requests)
	}
}

// Whichever operation fails while a directory is made smaller, everything that is to be kept can be
// restored.
func TestAnErrorWhileCompactingLosesNothing(t *testing.T) {
	race.Skip(t)
	for n := 0; ; n++ {
		mem := vfs.NewMem()
		layout, rule := places["whole chunks"](t, mem)
		newest, _, err := Newest(mem, testDir)
		if err != nil {
			t.Fatal(err)
		}
		want, _, err := answers["RestoreRunning"](mem, layout, rule)
		if err != nil {
			t.Fatal(err)
		}
		disk := vfs.NewInjector(mem, vfs.FailAt(n, syscall.EIO))
		_, _ = Compact(disk, testDir, Retention{Newest: 1})
		if disk.Operations() <= n {
			if n < 10 {
				t.Errorf("%d operations: the test tests nothing", n)
			}
			return
		}
		after, skipped, err := Newest(mem, testDir)
		if err != nil || len(skipped) > 0 || after.Name() != newest.Name() {
			t.Fatalf("operation %d fails: newest is %v, skipped %v, error %v", n, after, skipped, err)
		}
		if _, err := restoreAll(mem, after, layout, rule); err != nil {
			t.Fatalf("operation %d fails: %v", n, err)
		}
		if got, _, err := answers["RestoreRunning"](mem, layout, rule); err != nil || got != want {
			t.Fatalf("operation %d fails: other values come back (%v)", n, err)
		}
		if r := mustVerify(t, mem); len(r.Damage) > 0 {
			t.Fatalf("operation %d fails: %v", n, r.Damage)
		}
		names, err := List(mem, testDir)
		if err != nil || !slices.Contains(names, newest.Name()) {
			t.Fatalf("operation %d fails: listed are %v (%v)", n, names, err)
		}
	}
}

// A disk that refuses once while a place is taken is an error, and the place can be taken then, from
// whatever is in it, even if the last claim is damaged.
func TestADiskThatRefusesATakingIsToldOf(t *testing.T) {
	t.Parallel()
	for _, damage := range []bool{false, true} {
		for n := 0; ; n++ {
			mem := vfs.NewMem()
			layout := smallLayout(t)
			first := mustTake(t, mem, layout, "before")
			newest := first.mustSave(t, 10, model(t, layout, kintsugi.RuleMomentum, 1))
			if damage {
				if err := mem.Edit(inDir(first.claim.File()), func(b []byte) []byte { return b[1:] }); err != nil {
					t.Fatal(err)
				}
			}
			mine := Claim{Run: "mine", Name: "a run", Since: time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))}
			var refused vfs.Op
			disk := vfs.NewInjector(mem, func(op vfs.Op) vfs.Fault {
				if op.N == n {
					refused = op
				}
				return vfs.FailAt(n, syscall.EACCES)(op)
			})
			_, err := Take(disk, testDir, mine)
			if disk.Operations() <= n {
				if n < 15 {
					t.Errorf("a place is taken with %d operations: the test tests nothing", n)
				}
				break
			}
			if !errors.Is(err, syscall.EACCES) && (err != nil || refused.Kind != vfs.OpRemove) { // a temporary file that stays does no harm
				t.Fatalf("%v is refused: %v", refused, err)
			}
			told := err
			if err == nil {
				err = Holds(mem, testDir, "mine")
			} else {
				_, err = Take(mem, testDir, mine)
			}
			held, heldErr := Holder(mem, testDir)
			if err != nil || heldErr != nil || held.Run != "mine" || held.After != newest.Name() || !held.Since.Equal(mine.Since) {
				t.Fatalf("%v is refused (%v): %v, and then the place is held by %+v (%v)", refused, told, err, held, heldErr)
			}
		}
	}
}

// A disk that refuses once while a directory is repaired says nothing about its files. None of them
// is put aside because of it: the next repair brings back what one that nothing disturbed does.
func TestADiskThatRefusesDuringARepairLosesNothing(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	for _, places := range breaks {
		want := repairedUndisturbed(t, places)
		for n := 0; ; n += stride() {
			mem, layout, models := brokenRun(t, places)
			before := stateOf(t, mem, layout, models)
			disk := vfs.NewInjector(mem, vfs.FailAt(n, syscall.EACCES))
			_, err := Repair(context.Background(), disk, testDir, RepairConfig{Now: repairTime})
			if disk.Operations() <= n {
				if n < 30 {
					t.Fatalf("a repair did %d operations: the test tests nothing", n)
				}
				break
			}
			if err != nil && !errors.Is(err, syscall.EACCES) {
				t.Fatalf("operation %d is refused: %v", n, err)
			}
			what := fmt.Sprintf("%v damaged, operation %d is refused", places, n)
			stateOf(t, mem, layout, models).atLeast(t, what, before)
			checkRepaired(t, what, mem, layout, models)
			stateOf(t, mem, layout, models).atLeast(t, what+", and it is repaired again", want)
		}
	}
}
