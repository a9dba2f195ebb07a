package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/look"
)

// How a run of train ends when it is asked to, and how long it waits for its last checkpoint.

// lastSaveWithin returns how long an ending run waits for its last checkpoint: at least as long as
// its machine or its owner permits, and long enough for the current save and the next one.
func lastSaveWithin(warning, slowest time.Duration) time.Duration {
	return max(look.SaveWithin, warning, 3*slowest)
}

// asking is a request to end a run.
type asking struct {
	why string // in words
	end error  // the error that the run ends with
}

// ending is the way a run ends when it is asked to.
type ending struct {
	begun   func() bool                        // reports whether there may be steps to save
	stop    func(context.Context, error) error // requests the end after a last checkpoint
	within  func() time.Duration               // how long that may take
	unsaved func() string                      // describes what is not in a checkpoint
	say     func(text string)
}

// await returns the reason to end the run without a last checkpoint: a second request, a timeout,
// or nothing to save. It returns nil when ctx has ended.
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
	late, tick := time.After(within), time.NewTicker(cli.SayAgain)
	defer tick.Stop()
	for left := within - cli.SayAgain; ; left -= cli.SayAgain {
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
