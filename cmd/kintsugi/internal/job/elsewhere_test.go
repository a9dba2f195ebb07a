package job

import (
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
	"github.com/kintsugi-ml/kintsugi/server"
)

// begun returns the shelf of a run that has saved all of step 2, and afterwards some chunks of step
// 3.
func begun(t *testing.T) *shelf {
	x := newShelf(t, vfs.NewMem(), "scar:1/8,16")
	x.view.Run = "a"
	if _, _, line, err := x.store.Newest(t.Context(), recovery.Asking{Run: "a", Begins: true}); err != nil || line != 0 {
		t.Fatalf("it begins after line %d: %v", line, err)
	}
	x.move(2, 0.25, 3, 9)
	manifest, _, err := x.store.Save(t.Context(), x.view, x.shard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.store.Publish(t.Context(), server.Checkpoint{Run: "a", Line: 1, Step: 2, Fence: 1, Manifests: []string{manifest}}); err != nil {
		t.Fatal(err)
	}
	x.move(3, 0.5, 9)
	x.save(9)
	return x
}

// A server whose folder is not mounted sees a place where nothing has been saved. It must not start
// a shard anew there, since the shard's checkpoints exist elsewhere.
func TestAShardIsNotLoadedFromAPlaceWhereItsRunHasNotBeen(t *testing.T) {
	x := begun(t)
	restore, _, err := x.store.NewestOf(t.Context(), "a")
	if err != nil || restore == "" {
		t.Fatalf("the newest is %q, %v", restore, err)
	}
	var said strings.Builder
	away := &Checkpoints{Settings: x.store.Settings, Problem: x.store.Problem, FS: vfs.NewMem(), Dir: "store", Log: slog.New(slog.NewTextHandler(&said, nil))}
	for name, load := range map[string]func(restore string) error{
		"all": func(restore string) error {
			s := x.blank()
			return away.Load(t.Context(), kintsugi.View{Number: 2, Line: 2, Fence: 2, Run: "a", Restore: restore, RestoreStep: 2}, &s)
		},
		"one shard": func(restore string) error {
			s := x.blank()
			_, err := away.LoadRunning(t.Context(), kintsugi.View{Number: 2, Line: 2, Fence: 2, Run: "a", Keeps: 1, Restore: restore, RestoreStep: 2}, &s)
			return err
		},
		"the coordinator": func(string) error {
			_, _, _, err := away.Newest(t.Context(), recovery.Asking{Run: "a"})
			return err
		},
	} {
		for _, restore := range []string{"", restore} {
			if err := load(restore); !errors.Is(err, ckpt.ErrUnclaimed) || !strings.Contains(err.Error(), "not mounted on this host") {
				t.Errorf("%s, from %q: %v", name, restore, err)
			}
		}
	}

	// It goes on with what it still holds, and saves that. It warns about it, and finds what it
	// saved.
	saves := *x
	saves.store = away
	saves.save(9)
	if !strings.Contains(said.String(), "not mounted on this host") {
		t.Errorf("it saves in another place, and says %q", said.String())
	}
	got, steps := saves.back()
	c := x.store.Problem.Layout.Chunks[9]
	if steps[9] != 3 || !slices.Equal(got.Params[c.Lo:c.Hi], x.shard.Params[c.Lo:c.Hi]) {
		t.Errorf("what it has saved there comes back as of step %d", steps[9])
	}
	manifest, _, err := away.Save(t.Context(), x.view, x.shard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.store.Publish(t.Context(), server.Checkpoint{Run: "a", Line: 1, Step: 3, Fence: 1, Manifests: []string{manifest}}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "shard 0 was saved somewhere else") {
		t.Errorf("the one that publishes says %v", err)
	}
}

// The memory of a process that was started again is empty, and a run that uses it expects that.
func TestARunGoesOnWithAStoreInMemoryThatHasForgotten(t *testing.T) {
	x := begun(t)
	store := &Checkpoints{Settings: x.store.Settings, Problem: x.store.Problem, FS: vfs.NewMem(), Dir: "store", Forgets: true, Log: x.store.Log}
	s := x.blank()
	if _, err := store.LoadRunning(t.Context(), kintsugi.View{Number: 2, Line: 2, Fence: 2, Run: "a", Keeps: 1}, &s); err != nil {
		t.Error(err)
	}
	if got := newShelf(t, vfs.NewMem(), "scar:1/8,16"); !slices.Equal(s.Params, got.shard.Params) {
		t.Error("what nobody has any more does not begin again")
	}
}
