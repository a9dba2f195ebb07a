package live

import (
	"context"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// As long as every head lives, copies change no bit of the model, whatever happens to the replicas
// behind the heads.
func TestCopiesDoNotChangeTheModel(t *testing.T) {
	want := run(t, base(t), nil)
	cfg := base(t)
	cfg.Servers, cfg.Replicas, cfg.CopyEvery = 3, 3, 4
	got := run(t, cfg, func(l *Cluster) {
		until(t, l, 12)
		if line := l.View().Line; line != 1 {
			t.Errorf("it goes on on line %d", line)
		}
	})
	if !slices.EqualFunc(got, want, sameBits) {
		t.Error("another model")
	}
}

// Heads die. Each time, their shards fall back to the next replica's copy, fewer steps than lie
// between two copies, and the others stay as they are. The second head that dies heads two shards.
// In the end all heads die, and every shard has a copy.
func TestAShardWhoseHeadDiesFallsBackToACopy(t *testing.T) {
	const every = 4
	cfg := base(t)
	cfg.Servers, cfg.Replicas, cfg.CopyEvery = 3, 3, every
	cfg.Steps = 90
	run(t, cfg, func(l *Cluster) {
		back := func(victim int) {
			t.Helper()
			if err := l.StartServer(victim); err != nil {
				t.Fatal(err)
			}
			l.GoOn("it came back")
			for i := range cfg.Servers {
				l.CaughtUp(i)
			}
		}
		fall := func(reason string, shards int, victims ...int) {
			t.Helper()
			line := l.View().Line
			for _, v := range victims {
				l.KillServer(v)
			}
			l.GoOn(reason)
			told := partials(t, l, shards)
			if v := l.View(); v.Line != line+1 || len(v.Lost) != shards {
				t.Errorf("%s: line %d after line %d, without %v", reason, v.Line, line, v.Lost)
			}
			for _, e := range told { // a line may begin at a step that was applied and not released, so fewer released steps are lost
				if e.Chunks == 0 || e.Age%uint64(e.Chunks) != 0 || e.Age/uint64(e.Chunks) > every || e.Step-e.Oldest > every {
					t.Errorf("%s: copies every %d steps, and %+v", reason, every, e)
				}
			}
		}
		until(t, l, 15)
		fall("the head of one shard died", 1, 0)
		until(t, l, 25)
		back(0)
		partials(t, l, 1) // it repeats what was missed in the view before
		until(t, l, 38)
		fall("the head of two shards died", 2, 1)
		until(t, l, 47)
		back(1)
		until(t, l, 55)
		fall("all heads died, and the other replica lives", 3, 2)
	})
}

// partials waits until that many shards have been restored in the present view.
func partials(t *testing.T, l *Cluster, shards int) (told []kintsugi.PartialEvent) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil && len(told) < shards {
		told = nil
		_ = l.Watch(ctx, func(e kintsugi.RunEvent) bool {
			if p, ok := e.(kintsugi.PartialEvent); ok {
				told = append(told, p)
			}
			return len(told) < shards
		})
	}
	if len(told) < shards {
		t.Fatalf("%d of %d shards came back", len(told), shards)
	}
	return told
}
