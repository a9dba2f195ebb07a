package ckpt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// shadowed is a model in training whose chunks are saved as increments, with what its server
// believes to be saved.
type shadowed struct {
	*Flat
	t      testing.TB
	w      *Writer
	step   kintsugi.Step
	rng    *rand.Rand
	drift  []float32
	saved  []Moving
	at     []kintsugi.Step                              // by chunk: the step of saved
	values map[kintsugi.Step]map[kintsugi.ChunkID]*Flat // everything that was ever saved
}

// shadowedLayout has few chunks for its size, since those of a small model have no room for
// increments.
func shadowedLayout(t testing.TB) *kintsugi.Layout {
	l := mustLayout(t, kintsugi.Tensor{Name: "w", Shape: []int{8, 90}}, kintsugi.Tensor{Name: "b", Shape: []int{70}})
	chunks := l.Chunks
	l.Chunks = nil
	for _, c := range chunks {
		if n := len(l.Chunks); n > 0 && l.Chunks[n-1].Tensor == c.Tensor && l.Chunks[n-1].Len() < 90 {
			l.Chunks[n-1].Hi = c.Hi
			continue
		}
		l.Chunks = append(l.Chunks, c)
	}
	return l
}

// newShadowed begins to train, and saves all of the model at step 10.
func newShadowed(t testing.TB, fsys vfs.FS, rule kintsugi.Rule, c Increments) (*shadowed, error) {
	t.Helper()
	layout := shadowedLayout(t)
	all := kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(layout.Chunks))}
	flat, err := NewFlat(layout, all, rule)
	if err != nil {
		t.Fatal(err)
	}
	x := &shadowed{Flat: flat, t: t, step: 9, rng: rand.New(rand.NewPCG(1, 1)), saved: make([]Moving, all.Hi), at: make([]kintsugi.Step, all.Hi),
		values: map[kintsugi.Step]map[kintsugi.ChunkID]*Flat{}}
	for range flat.Params {
		x.drift = append(x.drift, float32(x.rng.NormFloat64()))
	}
	for i := range flat.Params {
		flat.Params[i] = float32(x.rng.NormFloat64())
	}
	if x.w, err = OpenWriter(fsys, testDir, WriterConfig{Layout: layout, Rule: rule, Range: all, Line: 1, Fence: 1, Increments: &c}); err != nil {
		return nil, err
	}
	x.move()
	return x, x.save(nil)
}

// move makes the next version: parameters drift, with noise.
func (x *shadowed) move() {
	x.step++
	for i := range x.Params {
		x.Params[i] += float32(float32(0.01*x.drift[i]) + float32(0.002*float32(x.rng.NormFloat64()))) // rounded each time, since a build that fuses would write other files
		for s := range x.State {
			if x.State[s] != nil {
				x.State[s][i] = float32(x.rng.NormFloat64())
			}
		}
	}
	for i := range x.Steps {
		x.Steps[i] = uint64(x.step)
	}
}

// save saves chunks (nil: all) and notes what a restore must return.
func (x *shadowed) save(chunks []kintsugi.ChunkID) error {
	report, err := x.w.Save(context.Background(), Snapshot{Step: x.step, Chunks: chunks, Load: x.Load, Saved: func(id kintsugi.ChunkID) Moving { return x.saved[id] }})
	if err != nil {
		return err
	}
	if chunks == nil {
		for id := range x.Range.Hi {
			chunks = append(chunks, id)
		}
	}
	x.values[x.step] = map[kintsugi.ChunkID]*Flat{}
	for _, id := range chunks {
		a, one := x.Chunk(id), &Flat{}
		kept, ok := report.Kept[id]
		one.Params = slices.Clone(a.Params)
		for s := range a.State {
			one.State[s] = slices.Clone(a.State[s])
		}
		if ok {
			one.Params = kept.Params
			for s := range a.State {
				rounded(x.t, one.State[s])
			}
		} else {
			kept = Moving{Params: one.Params}
			if x.w.cfg.Increments.Coasts > 0 {
				kept.Velocity = make([]float32, len(a.Params))
			}
		}
		x.saved[id], x.at[id], x.values[x.step][id] = kept, x.step, one
	}
	return nil
}

func rounded(t testing.TB, x []float32) {
	b := make([]byte, 2*len(x))
	if err := errors.Join(kernels.Best().EncodeBF16(b, x, nil, nil), kernels.Best().Decode(x, kernels.BF16, b)); err != nil {
		t.Fatal(err)
	}
}

// back restores everything, checks that each chunk has a value that was saved, complete, and
// returns the steps of the chunks.
func (x *shadowed) back(t testing.TB, fsys vfs.FS) ([]kintsugi.Step, RunningReport) {
	t.Helper()
	got, err := NewFlat(x.Layout, x.Range, x.w.cfg.Rule)
	if err != nil {
		t.Fatal(err)
	}
	velocity := map[kintsugi.ChunkID][]float32{}
	report, err := RestoreRunning(context.Background(), fsys, testDir, Lines{First: 1, Last: 1}, x.Layout, x.Range, func(c ChunkInfo) (Arrays, error) {
		velocity[c.Chunk] = slices.Clone(c.Velocity)
		return got.Place(c)
	})
	if err != nil {
		t.Fatal(err)
	}
	for id, step := range got.Saved {
		id := kintsugi.ChunkID(id)
		if step == 0 {
			continue
		}
		want, a := x.values[step][id], got.Chunk(id)
		if want == nil || !sameBits(a.Params, want.Params) || !sameBits(a.State[0], want.State[0]) || !sameBits(a.State[1], want.State[1]) || got.Steps[id] != uint64(step) {
			t.Fatalf("chunk %d comes back as of step %d, and is not what was saved then", id, step)
		}
		if moving := x.saved[id].Velocity; step == x.at[id] && moving != nil && velocity[id] != nil && !sameBits(velocity[id], moving) {
			t.Fatalf("chunk %d of step %d has another velocity than was kept", id, step)
		}
	}
	return got.Saved, report
}

// some draws chunks, in ascending order.
func (x *shadowed) some() (chunks []kintsugi.ChunkID) {
	for id := range x.Range.Hi {
		if x.rng.IntN(3) > 0 {
			chunks = append(chunks, id)
		}
	}
	return chunks
}

var incrementEncodings = []kernels.Encoding{kernels.Int8, kernels.Int4, kernels.Sign, kernels.BF16}

// Chunks that were saved as increments come back with the bits that their server kept, in every
// encoding, with every number of state arrays, coasting or not. They take less room than whole
// chunks.
func TestIncrementsComeBackAsTheyWereKept(t *testing.T) {
	race.Skip(t)
	t.Parallel()
	for _, e := range incrementEncodings {
		for _, rule := range []kintsugi.Rule{kintsugi.RuleSGD, kintsugi.RuleMomentum, kintsugi.RuleAdam} {
			for _, coasts := range []kintsugi.Step{0, 5} {
				fsys := vfs.NewMem()
				x, err := newShadowed(t, fsys, rule, Increments{Encoding: e, Coasts: coasts})
				if err != nil {
					t.Fatal(err)
				}
				added := 0
				for n := range 24 {
					for range 1 + n%3 {
						x.move()
					}
					chunks := x.some()
					if n%11 == 10 {
						chunks = nil
					}
					if err := x.save(chunks); err != nil {
						t.Fatal(err)
					}
					if _, err := Compact(fsys, testDir, Retention{Newest: 1}); err != nil {
						t.Fatal(err)
					}
					for _, e := range x.w.newest.Chunks {
						if e.Increment {
							added++
						}
					}
				}
				what := fmt.Sprintf("%v, rule %d, coasting for %d", e, rule, coasts)
				if at, report := x.back(t, fsys); !slices.Equal(at, x.at) || len(report.Missing)+len(report.Skipped) > 0 {
					t.Errorf("%s: steps %v come back, want %v; %+v", what, at, x.at, report)
				}
				if added < 24 {
					t.Errorf("%s: %d increments", what, added)
				}
				if r := mustVerify(t, fsys); len(r.Damage) > 0 {
					t.Errorf("%s: %v", what, r.Damage)
				}
				for id := range x.saved {
					for i, v := range x.saved[id].Params {
						if c := x.Chunk(kintsugi.ChunkID(id)); math.Abs(float64(c.Params[i]-v)) > 0.5 {
							t.Fatalf("%s: value %d of chunk %d is saved as %g, it is %g", what, i, id, v, c.Params[i])
						}
					}
				}
			}
		}
	}
}

// Values that move steadily are nearer to the truth if they coast than if they stay.
func TestWhatCoastsIsNearer(t *testing.T) {
	distance := func(coasts kintsugi.Step) (d float64) {
		x, err := newShadowed(t, vfs.NewMem(), kintsugi.RuleSGD, Increments{Encoding: kernels.Int8, Coasts: coasts})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			for range 4 {
				x.move()
			}
			if err := x.save([]kintsugi.ChunkID{0, 1, 2, 3}); err != nil {
				t.Fatal(err)
			}
		}
		for range 4 {
			x.move()
		}
		for id := range kintsugi.ChunkID(4) {
			at := slices.Clone(x.saved[id].Params)
			if coasts > 0 {
				kernels.Coast(at, at, x.saved[id].Velocity, 4)
			}
			d += kernels.SquaredDistance(at, x.Chunk(id).Params)
		}
		return d
	}
	if stays, coasts := distance(0), distance(100); coasts > stays/4 {
		t.Errorf("saved values that coast are at distance² %g, those that stay at %g", coasts, stays)
	}
}

// A crash after any operation leaves the newest saved value of each chunk, or a newer one,
// complete.
func TestCrashAfterAnyOperationLeavesWholeIncrements(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	for n := 0; ; n += stride() {
		mem := vfs.NewMem()
		x, err := newShadowed(t, vfs.NewInjector(mem, vfs.CrashAfter(n)), kintsugi.RuleMomentum, Increments{Encoding: kernels.Int8, Coasts: 9})
		if x == nil {
			continue
		}
		for range 9 {
			if err != nil {
				break
			}
			x.move()
			if err = x.save(x.some()); err == nil {
				_, err = Compact(x.w.fs, testDir, Retention{Newest: 1})
			}
		}
		if err != nil && x.values[x.step] == nil {
			x.values[x.step] = x.again() // a save that has failed may have left this
		}
		if err != nil && !errors.Is(err, vfs.ErrCrashed) {
			t.Fatalf("operation %d: %v", n, err)
		}
		disk := mem.Crash(rand.New(rand.NewPCG(uint64(n), 4)))
		at, _ := x.back(t, disk)
		for id, step := range x.at {
			if at[id] < step {
				t.Fatalf("crash after operation %d: chunk %d comes back as of step %d, step %d was saved", n, id, at[id], step)
			}
		}
		if r := mustVerify(t, disk); len(r.Damage) > 0 {
			t.Fatalf("crash after operation %d: %v", n, r.Damage)
		}
		if err == nil {
			if n < 100 {
				t.Fatalf("the story takes %d operations: the test tests too little", n)
			}
			return
		}
	}
}

// again does all that x did where nothing fails, and returns what was saved last.
func (x *shadowed) again() map[kintsugi.ChunkID]*Flat {
	y, err := newShadowed(x.t, vfs.NewMem(), x.w.cfg.Rule, *x.w.cfg.Increments)
	if err != nil {
		x.t.Fatal(err)
	}
	for y.step < x.step {
		y.move()
		if err := y.save(y.some()); err != nil {
			x.t.Fatal(err)
		}
	}
	return y.values[y.step]
}

// Whichever byte is wrong, it is noticed, and no value is returned that was never saved.
func TestAWrongByteInAnIncrementIsNeverApplied(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	fsys := vfs.NewMem()
	x, err := newShadowed(t, fsys, kintsugi.RuleMomentum, Increments{Encoding: kernels.Sign, Coasts: 9})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		x.move()
		if err := x.save([]kintsugi.ChunkID{1, 2}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Compact(fsys, testDir, Retention{Newest: 1}); err != nil {
		t.Fatal(err)
	}
	step := 29
	if testing.Short() {
		step = 53
	}
	for _, name := range fsys.Walk(testDir) {
		info, err := fsys.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < int(info.Size); i += step {
			flip := func(b []byte) []byte { b[i] ^= 0x21; return b }
			if err := fsys.Edit(name, flip); err != nil {
				t.Fatal(err)
			}
			if r := mustVerify(t, fsys); len(r.Damage) == 0 {
				t.Fatalf("byte %d of %s is wrong, and nobody notices", i, name)
			}
			x.back(t, fsys)
			if err := fsys.Edit(name, flip); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// chains is a directory in which chunks 0 and 1 need four records each.
func chains(t testing.TB) (*shadowed, *vfs.Mem) {
	t.Helper()
	fsys := vfs.NewMem()
	x, err := newShadowed(t, fsys, kintsugi.RuleMomentum, Increments{Encoding: kernels.Int8})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		x.move()
		if err := x.save([]kintsugi.ChunkID{0, 1}); err != nil {
			t.Fatal(err)
		}
	}
	return x, fsys
}

// A repair keeps the part of a chain before the damage, and no damage is left.
func TestRepairKeepsTheWholePartOfAChain(t *testing.T) {
	for lost := range 4 {
		x, fsys := chains(t)
		entry := x.w.newest.Chunks[4+lost] // of chunk 1
		if err := fsys.Edit(inDir(x.w.newest.Segments[entry.Segment].File), func(b []byte) []byte { b[entry.Offset+70] ^= 1; return b }); err != nil {
			t.Fatal(err)
		}
		if _, err := Repair(context.Background(), fsys, testDir, RepairConfig{Now: repairTime}); err != nil {
			t.Fatal(err)
		}
		if r := mustVerify(t, fsys); len(r.Damage) > 0 {
			t.Fatal(r.Damage)
		}
		at, _ := x.back(t, fsys)
		want := kintsugi.Step(9 + lost)
		if lost == 0 {
			want = 0
		}
		if at[0] != 13 || at[1] != want {
			t.Errorf("record %d of chunk 1 was damaged: chunks come back as of steps %v; want 13, %d …", lost, at[:2], want)
		}
	}
}

// A chunk is saved whole if no increment can be added: the first time, after a save that failed, if
// the caller's saved values are not what was saved, and if numbers are not finite.
func TestWhatCannotBeAddedToIsSavedWhole(t *testing.T) {
	disk := &brokenOnce{FS: vfs.NewMem()}
	x, err := newShadowed(t, disk, kintsugi.RuleSGD, Increments{Encoding: kernels.Int8})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, adds bool) {
		t.Helper()
		x.move()
		if err := x.save([]kintsugi.ChunkID{2}); err != nil {
			t.Fatal(err)
		}
		if got := slices.ContainsFunc(x.w.newest.Chunks, func(e Entry) bool { return e.Chunk == 2 && e.Step == x.step && e.Increment }); got != adds {
			t.Errorf("%s: it is added: %t", what, got)
		}
	}
	check("after a whole save", true)
	x.saved[2].Params[3]++
	check("saved values that differ", false)
	check("after that", true)
	disk.broken = true
	x.move()
	if err := x.save([]kintsugi.ChunkID{1}); err == nil {
		t.Fatal("a broken disk saves")
	}
	check("after a save that failed", false)
	value := &x.Chunk(2).Params[0]
	was := *value
	*value = float32(math.NaN())
	check("NaN", false)
	*value = was
	check("after NaN", false)
	check("finite again", true)
	for range maxChain + 2 {
		x.move()
		if err := x.save([]kintsugi.ChunkID{2}); err != nil {
			t.Fatal(err)
		}
	}
	length := 0
	for _, e := range x.w.newest.Chunks {
		if e.Chunk == 2 {
			length++
		}
	}
	if length > maxChain {
		t.Errorf("a chain of %d records", length)
	}
}

// brokenOnce is a disk whose next file cannot be created once broken is set.
type brokenOnce struct {
	vfs.FS
	broken bool
}

func (b *brokenOnce) Create(name string) (vfs.File, error) {
	if b.broken {
		b.broken = false
		return nil, errors.New("the disk is broken")
	}
	return b.FS.Create(name)
}

// Segments of chunks that always get increments do not pile up.
func TestIncrementsDoNotFillTheDisk(t *testing.T) {
	fsys := vfs.NewMem()
	x, err := newShadowed(t, fsys, kintsugi.RuleSGD, Increments{Encoding: kernels.Int8, Coasts: 3})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 200 {
		x.move()
		if err := x.save([]kintsugi.ChunkID{kintsugi.ChunkID(n) % x.Range.Hi}); err != nil {
			t.Fatal(err)
		}
	}
	if stored, _ := x.w.newest.Bytes(); stored > (maxStored+2)*int64(x.w.bytes()) {
		t.Errorf("%d bytes of segments are needed, a shard has %d", stored, x.w.bytes())
	}
}

// Arbitrary bytes in the place of an increment's payload, with the right checksums, are refused or
// make a value of finite length.
func FuzzIncrement(f *testing.F) {
	for _, c := range []Increments{{Encoding: kernels.Int8}, {Encoding: kernels.Int4}, {Encoding: kernels.Sign, Coasts: 4}, {Encoding: kernels.BF16}} {
		x, fsys, e := oneIncrement(f, kintsugi.RuleMomentum, c)
		b, err := readAll(fsys, testDir, x.w.newest.Segments[e.Segment].File, maxManifest)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(c.Encoding), c.Coasts > 0, b[e.Offset+headerBytes:e.Offset+e.Bytes])
	}
	f.Fuzz(func(t *testing.T, encoding uint8, coasts bool, payload []byte) {
		c := Increments{Encoding: incrementEncodings[int(encoding)%len(incrementEncodings)]}
		if coasts {
			c.Coasts = 4
		}
		x, fsys, e := oneIncrement(t, kintsugi.RuleMomentum, c)
		m := x.w.newest
		err := fsys.Edit(inDir(m.Segments[e.Segment].File), func(b []byte) []byte {
			r := b[e.Offset : e.Offset+e.Bytes]
			length := binary.LittleEndian.Uint32(r[44:])
			copy(r[headerBytes:headerBytes+length], payload)
			binary.LittleEndian.PutUint32(r[56:], checksum(r[headerBytes:headerBytes+length]))
			binary.LittleEndian.PutUint32(r[60:], checksum(r[:60]))
			m.Chunks[1].CRC = Sum(binary.LittleEndian.Uint32(r[56:]))
			return b
		})
		if err != nil {
			t.Fatal(err)
		}
		content, err := m.encode()
		if err == nil {
			err = fsys.Edit(inDir(m.File()), func([]byte) []byte { return content })
		}
		if err != nil {
			t.Fatal(err)
		}
		flat, err := NewFlat(x.Layout, x.Range, kintsugi.RuleMomentum)
		if err != nil {
			t.Fatal(err)
		}
		report, err := RestoreRunning(context.Background(), fsys, testDir, Lines{First: 1, Last: 1}, x.Layout, x.Range, flat.Place)
		if err != nil || flat.Saved[0] == 10 && len(report.Skipped) == 0 {
			t.Fatalf("%v, %+v, chunk 0 as of step %d", err, report, flat.Saved[0])
		}
		mustVerifyOrNewer(t, fsys)
	})
}

// oneIncrement is a directory in which chunk 0 needs two records. It returns the second.
func oneIncrement(t testing.TB, rule kintsugi.Rule, c Increments) (*shadowed, *vfs.Mem, Entry) {
	t.Helper()
	fsys := vfs.NewMem()
	x, err := newShadowed(t, fsys, rule, c)
	if err != nil {
		t.Fatal(err)
	}
	x.move()
	if err := x.save([]kintsugi.ChunkID{0}); err != nil {
		t.Fatal(err)
	}
	return x, fsys, x.w.newest.Chunks[1]
}

// If the disk does not take a part, because it is full, fails or takes nothing, the next save makes
// up for it, whichever operation failed. A restore then returns what was saved last, and before
// that what was saved before.
func TestAPartialSaveThatFailsIsMadeUpForByTheNext(t *testing.T) {
	t.Parallel()
	for _, fault := range []error{syscall.ENOSPC, syscall.EIO, syscall.EROFS} {
		for n := 0; ; n++ {
			mem, first := vfs.NewMem(), math.MaxInt // first failing operation of the save
			inj := vfs.NewInjector(mem, func(op vfs.Op) vfs.Fault { return vfs.FailAt(first, fault)(op) })
			x, err := newShadowed(t, inj, kintsugi.RuleMomentum, Increments{Encoding: kernels.Int8, Coasts: 5})
			if err != nil {
				t.Fatal(err)
			}
			chunks := []kintsugi.ChunkID{0, 2, 3}
			for range 2 { // the second is an increment
				x.move()
				if err := x.save(chunks); err != nil {
					t.Fatal(err)
				}
			}
			before := slices.Clone(x.at)
			first = inj.Operations() + n
			x.move()
			if err := x.save(chunks); err == nil {
				if inj.Operations() > first {
					continue // only compaction would have failed
				}
				if n < 5 {
					t.Fatalf("a save takes %d operations: the test tests nothing", n)
				}
				break
			} else if !errors.Is(err, fault) {
				t.Fatalf("operation %d fails: the error is %v", n, err)
			}
			// The save may have been published, and only the answer lost.
			if at, err := savedSteps(mem, x); err != nil || !slices.Equal(at, before) && at[0] != x.step {
				t.Fatalf("operation %d failed: steps %v come back, %v", n, at, err)
			}
			x.move()
			if err := x.save(chunks); err != nil {
				t.Fatalf("operation %d failed, and so does the next save: %v", n, err)
			}
			if at, report := x.back(t, mem); !slices.Equal(at, x.at) || len(report.Missing)+len(report.Skipped) > 0 {
				t.Fatalf("operation %d failed: steps %v come back, want %v; %+v", n, at, x.at, report)
			}
			if r := mustVerify(t, mem); len(r.Damage) > 0 {
				t.Fatalf("operation %d failed: %v", n, r.Damage)
			}
		}
	}
}

// savedSteps returns the steps of the restored chunks.
func savedSteps(fsys vfs.FS, x *shadowed) ([]kintsugi.Step, error) {
	got, err := NewFlat(x.Layout, x.Range, x.w.cfg.Rule)
	if err != nil {
		return nil, err
	}
	_, err = RestoreRunning(context.Background(), fsys, testDir, Lines{First: 1, Last: 1}, x.Layout, x.Range, got.Place)
	return got.Saved, err
}
