package cli

import (
	"context"
	"time"
)

// What a run reports while something keeps it from beginning or going on.

// SayAgain is how often the same reason for waiting is reported again.
const SayAgain = 10 * time.Second

// SayWaits reports what the run waits for whenever that changes, and at intervals, until it waits
// for nothing, which is "", or ctx ends.
func SayWaits(ctx context.Context, words <-chan string, say func(word string, news bool)) {
	tick := time.NewTicker(SayAgain)
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
			tick.Reset(SayAgain)
			say(word, true)
		case <-tick.C:
			if word != "" {
				say(word, false)
			}
		}
	}
}

// Meanwhile calls say every ten seconds with the time that something has taken so far, until done
// is called.
func Meanwhile(say func(took time.Duration)) (done func()) {
	begin, stop, stopped := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(SayAgain)
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
