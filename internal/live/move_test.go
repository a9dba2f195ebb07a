package live

import (
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// A shard with one replica moves to another server and comes back home, while steps go on. Nothing
// is lost, the run stays on its line, and the model has the bits of a run in which nothing moved.
// At home the shard lies outside its process again, and the server's next life finds it there.
// Every shard does this, also the conductor's.
func TestAShardThatMovesAndComesBackChangesNothing(t *testing.T) {
	calm := base(t)
	calm.Steps = 120
	want := run(t, calm, nil)
	cfg := calm
	cfg.Servers, cfg.SaveEvery, cfg.RunEvery, cfg.Outside = 3, 0, 4, t.TempDir()
	got := run(t, cfg, func(l *Cluster) {
		for i := range 3 {
			home, other := kintsugi.ServerID(i), kintsugi.ServerID((i+1)%3)
			at := kintsugi.Step(30 * i)
			until(t, l, at+4)
			l.Rehead(i, home, other)
			l.CaughtUp(int(other))
			l.Rehead(i, other)
			until(t, l, at+8)
			l.KillServer(i) // it holds no shard now
			if err := l.StartServer(i); err != nil {
				t.Fatal(err)
			}
			l.Rehead(i, other, home)
			l.CaughtUp(i)
			until(t, l, at+12)
			l.Rehead(i, home)
			until(t, l, at+16)
			l.KillServer(i)
			if err := l.StartServer(i); err != nil {
				t.Fatal(err)
			}
			l.NewContinuedView("it found what it held")
		}
		if v := l.View(); v.Line != 1 {
			t.Errorf("the run is on line %d", v.Line)
		}
	})
	if !slices.EqualFunc(got, want, sameBits) {
		t.Error("another model")
	}
}
