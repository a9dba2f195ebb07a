package live

import (
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// A watcher whose stream ends with a view hears from the next conductor, on the same line, what it
// has missed: it hears of every step. It may hear of a step twice: from the conductor that released
// it, and from one that took over before a shard had heard of the release. Watchers skip what they
// have heard.
func TestAWatcherMissesNoStepOfALine(t *testing.T) {
	cfg := base(t)
	cfg.Servers, cfg.Replicas = 2, 2
	run(t, cfg, func(l *Cluster) {
		until(t, l, 8)
		l.GoOn("for no reason")
		until(t, l, 12)
		var steps []kintsugi.Step
		if err := l.Watch(t.Context(), func(e kintsugi.RunEvent) bool {
			if s, ok := e.(kintsugi.StepEvent); ok {
				steps = slices.Compact(append(steps, s.Step))
			}
			return len(steps) < 10
		}); err != nil {
			t.Fatal(err)
		}
		for i, s := range steps {
			if s != kintsugi.Step(i+1) {
				t.Fatalf("it hears of the steps %v", steps)
			}
		}
	})
}
