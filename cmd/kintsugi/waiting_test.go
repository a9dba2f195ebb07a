package main

import (
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object/objecttest"
)

// What a run waits for is reported at once, then every ten seconds, and no longer once it is there.
func TestWhatIsWaitedForIsSaidAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, words, said := time.Now(), make(chan string), []string(nil)
		go sayWaits(t.Context(), words, func(word string, news bool) {
			said = append(said, fmt.Sprintf("%v %q %v", time.Since(start), word, news))
		})
		time.Sleep(15 * time.Second)
		words <- "a"
		time.Sleep(24 * time.Second)
		words <- "b"
		time.Sleep(11 * time.Second)
		words <- ""
		time.Sleep(time.Hour)
		synctest.Wait()
		want := []string{`15s "a" true`, `25s "a" false`, `35s "a" false`, `39s "b" true`, `49s "b" false`, `50s "" true`}
		if !slices.Equal(said, want) {
			t.Errorf("it said\n%q\nwant\n%q", said, want)
		}
	})
}

// That a run stands still is logged as often as the conductor reports it, and noted once, even if a
// stream repeats it. It is not noted when it is over.
func TestARunThatStandsIsNotedOnce(t *testing.T) {
	dir, start := filepath.Join(t.TempDir(), "run"), time.Unix(1_700_000_000, 0)
	rec, err := record.Create(dir, nil, record.Header{Start: start})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	w := newWatcher(&settings{Servers: 1, Workers: 1, Steps: 100}, nil, rec, start)
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

// A store fails after the launcher has tried it, before the first view. The run reports that with
// the store's own words. It begins when the store works again, and if it does not, the run ends at
// the first signal.
func TestARunWhoseStoreFailsBeforeItsFirstView(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	const begins = 2 // writes of the launcher, which tries the store
	for name, c := range map[string]struct {
		fault  objecttest.Fault
		says   string
		signal syscall.Signal // 0: the store works again
		status int
	}{
		"full, and comes back": {fault: objecttest.Fault{Status: http.StatusInsufficientStorage, Code: "XMinioStorageFull"}, says: "is full", status: exitDone},
		"full":                 {objecttest.Fault{Status: http.StatusInsufficientStorage, Code: "XMinioStorageFull"}, "is full", syscall.SIGTERM, exitPreempted},
		"503":                  {objecttest.Fault{Status: http.StatusServiceUnavailable, Code: "SlowDown"}, "503 SlowDown", syscall.SIGINT, exitInterrupted},
		"hangs":                {objecttest.Fault{Hang: true}, "no answer within", syscall.SIGTERM, exitPreempted},
		"hangs for ever":       {objecttest.Fault{Hang: true}, "looking for the newest checkpoint", syscall.SIGTERM, exitPreempted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := objecttest.New(t)
			var wrong atomic.Int32
			wrong.Store(-begins)
			server.Fail(func(_ int, r *http.Request) objecttest.Fault {
				if r.Method == http.MethodPut && wrong.Add(1) > 0 {
					return c.fault
				}
				return objecttest.Fault{}
			})
			dir := newDir(t)
			patience := "&patience=100ms"
			if name == "hangs for ever" {
				patience = "&patience=1h"
			}
			p := start(t, quadratic(300, "--store", server.Place("x")+patience, "--out", dir)...)
			eventually(t, "it says what the store does", func() bool {
				notes := notesOf(dir)
				return strings.Contains(notes, "the run has not begun") && strings.Contains(notes, c.says)
			})
			if c.signal == 0 {
				wrong.Store(math.MinInt32)
			} else {
				p.signal(c.signal)
			}
			r := p.wait()
			if r.status != c.status || !strings.Contains(r.stderr, "begins by itself") {
				t.Errorf("exit status %d:\n%s", r.status, r.stderr)
			}
			lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
			if last := lines[len(lines)-1]; c.signal != 0 && (!strings.Contains(last, "saves nothing") || !strings.Contains(last, c.says) || !strings.Contains(last, "--resume "+dir)) {
				t.Errorf("it says last\n%s", last)
			}
			noOrphans(t, dir)
			wrong.Store(math.MinInt32)
			if c.signal != 0 {
				must(t, "train", "--resume", dir)
			}
			if step, _ := lastParams(t, dir); step != 300 {
				t.Errorf("the newest checkpoint is of step %d", step)
			}
		})
	}
}

// notesOf returns the notes of a run, which may not have a folder yet.
func notesOf(dir string) string {
	r, err := record.ReadRun(dir)
	if err != nil {
		return ""
	}
	return fmt.Sprint(r.Notes)
}

func TestWhatTakesLongSaysSoMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		done := meanwhile(func(took time.Duration) { said = append(said, fmt.Sprint(took)) })
		time.Sleep(25 * time.Second)
		done()
		time.Sleep(time.Minute)
		if !slices.Equal(said, []string{"10s", "20s"}) {
			t.Error(said)
		}
	})
}
