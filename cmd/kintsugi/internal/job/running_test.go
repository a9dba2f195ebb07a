package job

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server"
)

// shelf is the running checkpoint of a run with one server, whose shard the test moves.
type shelf struct {
	t     *testing.T
	store *Checkpoints
	view  kintsugi.View
	shard server.Shard
}

// newShelf begins a run with these settings of --recovery.
func newShelf(t *testing.T, fs vfs.FS, recovery string) *shelf {
	t.Helper()
	s := &Settings{}
	s.Register(NewFlagSet("test"))
	s.Model, s.Recovery, s.Optimizer = "qp:dimension=12000", recovery, "momentum"
	p, err := Describe(s)
	if err != nil {
		t.Fatal(err)
	}
	x := &shelf{t: t, store: &Checkpoints{Settings: s, Problem: p, FS: fs, Dir: "store", Log: slog.New(slog.NewTextHandler(io.Discard, nil))}}
	x.view = kintsugi.View{Number: 1, Line: 1, Fence: 1}
	x.shard = x.blank()
	if err := x.store.Load(t.Context(), x.view, &x.shard); err != nil {
		t.Fatal(err)
	}
	x.shard.Taken = nil // from here on every chunk takes every step
	return x
}

// blank returns an empty shard of all chunks.
func (x *shelf) blank() server.Shard {
	n := x.store.Problem.Layout.Values
	chunks := kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(x.store.Problem.Layout.Chunks))}
	return server.Shard{Chunks: chunks, Line: 1, Rule: kintsugi.RuleMomentum, Params: make([]float32, n), State: [][]float32{make([]float32, n)}}
}

// move makes the version of a step: it adds a number to the values of some chunks.
func (x *shelf) move(step kintsugi.Step, by float32, chunks ...kintsugi.ChunkID) {
	x.shard.Step = step
	for _, id := range chunks {
		c := x.store.Problem.Layout.Chunks[id]
		for i := c.Lo; i < c.Hi; i++ {
			x.shard.Params[i] += by
			x.shard.State[0][i] = float32(step)
		}
	}
}

func (x *shelf) save(chunks ...kintsugi.ChunkID) {
	x.t.Helper()
	if ran, err := x.store.SaveRunning(x.t.Context(), x.view, x.shard, chunks); err != nil || ran.Manifest == "" || ran.Bytes == 0 {
		x.t.Fatalf("save %v: %+v, %v", chunks, ran, err)
	}
}

// back returns the shard as another server would restore it on the next line, and the versions of
// its chunks.
func (x *shelf) back() (server.Shard, []kintsugi.Step) {
	x.t.Helper()
	other := &Checkpoints{Settings: x.store.Settings, Problem: x.store.Problem, FS: x.store.FS, Dir: x.store.Dir, Log: x.store.Log}
	s := x.blank()
	s.Line = 2
	saved, err := other.LoadRunning(x.t.Context(), kintsugi.View{Number: 2, Line: 2, Fence: 2, Keeps: 1}, &s)
	if err != nil {
		x.t.Fatal(err)
	}
	return s, saved
}

func TestChunksComeBackAsTheyWereSavedLast(t *testing.T) {
	x := newShelf(t, vfs.NewMem(), "scar:1/8,16")
	initial := slices.Clone(x.shard.Params)
	x.move(2, 0.25, 5, 100, 7)
	x.move(2, 0.5, 9)
	x.save(5, 7, 9, 100)
	x.move(3, 1, 9)
	got, saved := x.back()
	for i, step := range saved {
		c := x.store.Problem.Layout.Chunks[i]
		want, state := initial[c.Lo], float32(0)
		if slices.Contains([]int{5, 100, 7, 9}, i) {
			want, state = initial[c.Lo]+0.25, 2
		}
		if i == 9 {
			want = initial[c.Lo] + 0.5
		}
		if float32(step) != state || got.Taken[i] != uint64(state) || got.Params[c.Lo] != want || got.State[0][c.Lo] != state {
			t.Errorf("chunk %d comes back as version %d after %d steps, value %v and state %v; want %v and %v", i, step, got.Taken[i], got.Params[c.Lo], got.State[0][c.Lo], want, state)
		}
	}
}

// Saves that newer ones have replaced are removed.
func TestARunningCheckpointDoesNotGrow(t *testing.T) {
	x := newShelf(t, vfs.NewMem(), "scar:1/8,16")
	n := kintsugi.ChunkID(len(x.store.Problem.Layout.Chunks))
	const periods = 6
	for step := kintsugi.Step(2); step <= periods*16; step += 2 {
		first := kintsugi.ChunkID(step/2-1) % 8 * n / 8
		var eighth []kintsugi.ChunkID
		for id := first; id < first+n/8; id++ {
			eighth = append(eighth, id)
		}
		x.move(step, 0.001, eighth...)
		x.save(eighth...)
	}
	if files := x.count("segment"); files > 4*8*2 {
		t.Errorf("%d segments are kept", files)
	}
}

func (x *shelf) count(folder string) int {
	x.t.Helper()
	names, err := x.store.FS.List("store/" + folder)
	if err != nil {
		x.t.Fatal(err)
	}
	return len(names)
}

// A failure of the store is reported, and the next save may succeed.
func TestASaveThatFailsIsMadeUpFor(t *testing.T) {
	disk := &flaky{FS: vfs.NewMem()}
	x := newShelf(t, disk, "scar:1/8,16")
	disk.broken = true
	x.move(2, 1, 3)
	if _, err := x.store.SaveRunning(t.Context(), x.view, x.shard, []kintsugi.ChunkID{3}); !errors.Is(err, errDisk) {
		t.Fatalf("the disk fails: %v", err)
	}
	disk.broken = false
	x.shard.Step = 4
	x.save(3)
	if _, saved := x.back(); saved[3] != 4 {
		t.Errorf("chunk 3 comes back as version %d", saved[3])
	}
}

// If chunks are saved as increments, a lost shard comes back as its server has kept it, and knows
// how fast it moved.
func TestIncrementsComeBackThroughTheStore(t *testing.T) {
	x := newShelf(t, vfs.NewMem(), "scar:1/8,16,coasting")
	kept := make(map[kintsugi.ChunkID]server.Kept)
	c := x.store.Problem.Layout.Chunks
	for _, id := range []kintsugi.ChunkID{3, 4} {
		kept[id] = server.Kept{Params: slices.Clone(x.shard.Params[c[id].Lo:c[id].Hi]), Velocity: make([]float32, c[id].Len())}
	}
	x.shard.Saved = func(id kintsugi.ChunkID) server.Kept { return kept[id] }
	for step := kintsugi.Step(2); step <= 12; step += 2 {
		x.move(step, 0.125, 3, 4)
		ran, err := x.store.SaveRunning(t.Context(), x.view, x.shard, []kintsugi.ChunkID{3, 4})
		if err != nil {
			t.Fatal(err)
		}
		if want := 0; step == 2 && len(ran.Kept) != want || step > 2 && len(ran.Kept) != 2 {
			t.Fatalf("step %d: %d chunks are saved by increments", step, len(ran.Kept))
		}
		for id := range kept {
			k, ok := ran.Kept[id]
			if !ok {
				k = server.Kept{Params: slices.Clone(x.shard.Params[c[id].Lo:c[id].Hi]), Velocity: make([]float32, c[id].Len())}
			}
			kept[id] = k
		}
	}
	got, saved := x.back()
	for _, id := range []kintsugi.ChunkID{3, 4} {
		lo, hi := c[id].Lo, c[id].Hi
		if saved[id] != 12 || !slices.Equal(got.Params[lo:hi], kept[id].Params) || !slices.Equal(got.Velocity[lo:hi], kept[id].Velocity) {
			t.Errorf("chunk %d comes back as version %d, %v with velocity %v; kept were %v and %v", id, saved[id], got.Params[lo:hi], got.Velocity[lo:hi], kept[id].Params, kept[id].Velocity)
		}
	}
	if v := float64(got.Velocity[c[3].Lo]); math.Abs(v-0.0625) > 0.01 {
		t.Errorf("it goes 0.0625 in a step and is said to go %g", v)
	}
}

// A full save is the newest saved value of every chunk.
func TestAFullSaveIsPartOfTheRunningCheckpoint(t *testing.T) {
	x := newShelf(t, vfs.NewMem(), "scar:1/8,16")
	x.move(2, 1, 3, 4)
	if _, _, err := x.store.Save(t.Context(), x.view, x.shard); err != nil {
		t.Fatal(err)
	}
	x.move(4, 1, 4)
	x.save(4)
	_, saved := x.back()
	for i, step := range saved {
		want := kintsugi.Step(2)
		if i == 4 {
			want = 4
		}
		if step != want {
			t.Errorf("chunk %d comes back as version %d, want %d", i, step, want)
		}
	}
}

// full saves the whole shard as the version of a step, publishes it, and returns the name.
func (x *shelf) full(step kintsugi.Step) string {
	x.t.Helper()
	x.shard.Step = step
	file, _, err := x.store.Save(x.t.Context(), x.view, x.shard)
	if err != nil {
		x.t.Fatal(err)
	}
	name, err := x.store.Publish(x.t.Context(), server.Checkpoint{Line: x.view.Line, Step: step, Fence: x.view.Fence, Manifests: []string{file}})
	if err != nil {
		x.t.Fatal(err)
	}
	return name
}

// spoil changes a byte in the first value of the given chunks, in every segment.
func (x *shelf) spoil(chunks ...kintsugi.ChunkID) {
	x.t.Helper()
	mem := x.store.FS.(*vfs.Mem)
	for _, name := range mem.Walk("store/segment") {
		for _, id := range chunks {
			value := kernels.Bytes(x.shard.Params[x.store.Problem.Layout.Chunks[id].Lo:][:4])
			if err := mem.Edit(name, func(b []byte) []byte {
				if at := bytes.Index(b, value); at >= 0 {
					b[at] ^= 1
				}
				return b
			}); err != nil {
				x.t.Fatal(err)
			}
		}
	}
}

// A lost shard needs no complete checkpoint to come back: each chunk is restored as it was saved
// last, and only a chunk of which no intact value exists begins anew. It does not matter whether
// the checkpoint that the view names is damaged or missing.
func TestALostShardComesBackWhereNoCheckpointIsWhole(t *testing.T) {
	for _, gone := range []bool{false, true} {
		x := newShelf(t, vfs.NewMem(), "scar:1/8,16")
		initial := slices.Clone(x.shard.Params)
		x.move(2, 0.25, 3, 4, 5)
		restore := x.full(2)
		x.move(4, 0.5, 4)
		x.save(4)
		x.spoil(3)
		if gone {
			if err := x.store.FS.Remove("store/" + restore); err != nil {
				t.Fatal(err)
			}
		}
		s := x.blank()
		s.Line, s.Step = 2, 2
		saved, err := x.store.LoadRunning(t.Context(), kintsugi.View{Number: 2, Line: 2, Fence: 2, Keeps: 1, Restore: restore, RestoreStep: 2}, &s)
		if err != nil {
			t.Fatalf("the checkpoint is gone: %t; %v", gone, err)
		}
		for i, step := range saved {
			lo := x.store.Problem.Layout.Chunks[i].Lo
			want, value := kintsugi.Step(2), x.shard.Params[lo]
			switch i {
			case 3:
				want, value = 0, initial[lo]
			case 4:
				want = 4
			}
			if step != want || s.Taken[i] != uint64(want) || s.Params[lo] != value {
				t.Errorf("the checkpoint is gone: %t; chunk %d comes back as version %d after %d steps with value %v, want %d and %v", gone, i, step, s.Taken[i], s.Params[lo], want, value)
			}
		}
	}
}

// If all shards must go back and every checkpoint is damaged, the run does not begin anew: a person
// has to decide that.
func TestALineDoesNotBeginAgainWhereCheckpointsAreDamaged(t *testing.T) {
	x := newShelf(t, vfs.NewMem(), "checkpoint")
	x.move(2, 0.25, 3)
	restore := x.full(2)
	x.spoil(3)
	name, _, err := x.store.NewestOf(t.Context(), "")
	if err != nil || name != "" {
		t.Fatalf("the newest whole checkpoint is %q, %v", name, err)
	}
	for _, from := range []string{"", restore} {
		s := x.blank()
		err := x.store.Load(t.Context(), kintsugi.View{Number: 2, Line: 2, Fence: 2, Restore: from}, &s)
		if !errors.Is(err, kintsugi.ErrCorrupt) || !strings.Contains(err.Error(), "kintsugi checkpoint repair") {
			t.Errorf("from %q it begins with %v", from, err)
		}
	}
}

var errDisk = errors.New("the disk is broken")

// flaky is a disk on which no file can be created while it is broken.
type flaky struct {
	vfs.FS
	broken bool
}

func (f *flaky) Create(name string) (vfs.File, error) {
	if f.broken {
		return nil, errDisk
	}
	return f.FS.Create(name)
}
