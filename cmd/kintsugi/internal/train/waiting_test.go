package train

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

// That a run stands still is logged as often as the conductor reports it, and noted once, even if a
// stream repeats it. It is not noted when it is over.
func TestARunThatStandsIsNotedOnce(t *testing.T) {
	dir, start := filepath.Join(t.TempDir(), "run"), time.Unix(1_700_000_000, 0)
	rec, err := record.Create(dir, nil, record.Header{Start: start})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	w := newWatcher(&job.Settings{Servers: 1, Workers: 1, Steps: 100}, nil, rec, start)
	w.log = slog.New(slog.NewTextHandler(&log, nil))
	w.seen = transport.WatchRequest{Line: 1, After: 30}
	stand := func(minute int, step kintsugi.Step, waits string) kintsugi.StandEvent {
		return kintsugi.StandEvent{Line: 1, Step: step, Time: start.Add(time.Duration(minute) * time.Minute), Lasts: time.Duration(minute) * time.Minute, Waits: waits}
	}
	for _, e := range []kintsugi.StandEvent{
		stand(1, 29, "what is over"), stand(2, 30, "gradients"), stand(3, 30, "gradients"), stand(2, 30, "gradients"), stand(4, 30, "shard 0"),
	} {
		w.stands(e)
	}
	if _, err := rec.Finish(start.Add(time.Hour), ""); err != nil {
		t.Fatal(err)
	}
	run, err := record.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	var notes []string
	for _, n := range run.Notes {
		notes = append(notes, n.Text)
	}
	if want := []string{"no step is taken for 120 s, and the run waits for gradients", "no step is taken for 240 s, and the run waits for shard 0"}; !slices.Equal(notes[:min(2, len(notes))], want) {
		t.Errorf("it noted %q, want %q first", notes, want)
	}
	if n := strings.Count(log.String(), "no step is taken"); n != 3 || strings.Contains(log.String(), "over") {
		t.Errorf("of four words, one of them told twice and one about what is over, the log has %d:\n%s", n, log.String())
	}
}
