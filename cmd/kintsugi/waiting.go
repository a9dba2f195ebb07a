package main

import (
	"context"
	"time"
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
