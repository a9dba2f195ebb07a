package main

import (
	"context"
	"time"
)

// What a run says while something keeps it from beginning or from going on.

// sayAgain is how often what is waited for is said again.
const sayAgain = 10 * time.Second

// sayWaits says what is waited for whenever that changes, and again and again until it is nothing, which is the empty word, or ctx ends.
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

// meanwhile says every ten seconds how long something has taken, until done is called.
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
