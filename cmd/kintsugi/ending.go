package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// How a run of train ends that is asked to, and how long it waits for its last checkpoint.

// saveWithin is how long a run that ends waits for its last checkpoint at least: its store may be
// away, or slow with a large model whose first save this is.
const saveWithin = 5 * time.Minute

// lastSaveWithin is how long a run that ends waits for its last checkpoint: also as long as its
// machine or its owner has said that it may, and long enough for the save that is under way and the
// one after it.
func lastSaveWithin(warning, slowest time.Duration) time.Duration {
	return max(saveWithin, warning, 3*slowest)
}

// asking is somebody who asks a run to end.
type asking struct {
	why string // in words
	end error  // what the run ends with
}

// ending is how a run ends that is asked to.
type ending struct {
	begun   func() bool                        // there may be steps to save
	stop    func(context.Context, error) error // asks for the end after a last checkpoint
	within  func() time.Duration               // how long that may take
	unsaved func() string                      // in words, what is not in a checkpoint
	say     func(text string)
}

// await returns what ends the run without a last checkpoint: who asks again, that it takes too
// long, or that there is nothing to save. nil: ctx has ended.
func (e *ending) await(ctx context.Context, asks <-chan asking) error {
	var first asking
	select {
	case <-ctx.Done():
		return nil
	case first = <-asks:
	}
	if !e.begun() {
		return fmt.Errorf("%w: it had not begun, and saves nothing%s", first.end, e.unsaved())
	}
	within := e.within()
	e.say(fmt.Sprintf("%s: ending the run after a last checkpoint, without it after %v; once more kills it", first.why, within))
	refused := make(chan error, 1)
	go func() {
		if err := e.stop(ctx, first.end); err != nil {
			refused <- err
		}
	}()
	late, tick := time.After(within), time.NewTicker(sayAgain)
	defer tick.Stop()
	for left := within - sayAgain; ; left -= sayAgain {
		select {
		case <-ctx.Done():
			return nil
		case <-asks:
			return fmt.Errorf("%w: asked once more, so without a last checkpoint%s", first.end, e.unsaved())
		case err := <-refused:
			return errors.Join(first.end, err)
		case <-late:
			return fmt.Errorf("%w: no last checkpoint within %v%s", first.end, within, e.unsaved())
		case <-tick.C:
			if left > 0 {
				e.say(fmt.Sprintf("the last checkpoint is not there yet; the run ends without it in %v, and at once when it is asked once more", left))
			}
		}
	}
}
