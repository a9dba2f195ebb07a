package object

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Retries says how often a request is tried and how long a try may take.
type Retries struct {
	Tries int // at least 1
	// Pause before the second try. Each pause is twice as long as the one before, less a random
	// part of up to a half, so that servers do not all try at once.
	First   time.Duration
	Timeout time.Duration // of a request without content
	Rate    int           // bytes per second that a request with content must reach at least
}

// DefaultRetries returns retries that give up after about ten seconds of refusals, or if the store
// is slower than a quarter of a megabyte per second. A save that fails is tried again when the next
// one is due.
func DefaultRetries() Retries {
	return Retries{Tries: 7, First: 200 * time.Millisecond, Timeout: 20 * time.Second, Rate: 1 << 18}
}

// Retries returns how often requests to the place are tried. All times are in proportion to its
// patience.
func (p Place) Retries() Retries {
	r := DefaultRetries()
	if p.Patience > 0 {
		scale := float64(p.Patience) / float64(r.Timeout)
		r.First, r.Timeout, r.Rate = time.Duration(scale*float64(r.First)), p.Patience, int(float64(r.Rate)/scale)
	}
	return r
}

// do calls f until it succeeds or fails with an error other than ErrAway, or until all tries are
// used up.
func (r Retries) do(ctx context.Context, bytes int, f func(context.Context) error) error {
	pause := r.First
	for try := 1; ; try++ {
		err := r.once(ctx, bytes, f)
		if err == nil || !errors.Is(err, ErrAway) || try >= r.Tries {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		}
		pause *= 2
	}
}

// once calls f with a limit on its time.
func (r Retries) once(ctx context.Context, bytes int, f func(context.Context) error) error {
	limit := r.Timeout + time.Duration(float64(bytes)/float64(r.Rate)*float64(time.Second))
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := f(within)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case within.Err() != nil:
		return fmt.Errorf("%w: no answer within %v", ErrAway, limit)
	}
	return err
}
