package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// What a run reports while something keeps it from beginning or going on.

// sayAgain is how often the same reason for waiting is reported again.
const sayAgain = 10 * time.Second

// sayWaits reports what the run waits for whenever that changes, and at intervals, until it waits
// for nothing, which is "", or ctx ends.
func sayWaits(ctx context.Context, words <-chan string, say func(word string, news bool)) {
	tick := time.NewTicker(sayAgain)
	defer tick.Stop()
	word := ""
	for {
		select {
		case <-ctx.Done():
			return
		case w, ok := <-words:
			if !ok {
				return
			}
			word = w
			tick.Reset(sayAgain)
			say(word, true)
		case <-tick.C:
			if word != "" {
				say(word, false)
			}
		}
	}
}

// stands reports that no step is taken, and what the run waits for: people do not read the log of
// the server that conducts. It is recorded only once.
func (w *watcher) stands(e kintsugi.StandEvent) {
	w.mu.Lock()
	before := w.stood
	news := e.Time.After(before.Time) && !(e.Line == w.seen.Line && e.Step < w.seen.After)
	if news {
		w.stood = e
	}
	w.mu.Unlock()
	if !news {
		return // reported already, or over: conductors keep it for later watchers
	}
	w.log.Warn("no step is taken", "seconds", e.Lasts.Seconds(), "step", e.Step, "waits_for", e.Waits)
	if e.Line != before.Line || e.Step != before.Step || e.Waits != before.Waits {
		w.rec.Record(e.Time, &record.Note{Level: "warn", Text: fmt.Sprintf("no step is taken for %.0f s, and the run waits for %s", e.Lasts.Seconds(), e.Waits)})
	}
}

// meanwhile calls say every ten seconds with the time that something has taken so far, until done
// is called.
func meanwhile(say func(took time.Duration)) (done func()) {
	begin, stop, stopped := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(sayAgain)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case now := <-tick.C:
				say(now.Sub(begin).Round(time.Second))
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}
