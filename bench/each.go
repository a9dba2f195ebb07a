package bench

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Each calls f for 0 … n−1, up to threads calls at the same time. It starts no more calls after the
// first error, which it returns, or when ctx has ended.
func Each(ctx context.Context, threads, n int, f func(ctx context.Context, i int) error) error {
	g, running := errgroup.WithContext(ctx)
	g.SetLimit(max(1, threads))
	for i := 0; i < n && running.Err() == nil; i++ {
		g.Go(func() error {
			if err := running.Err(); err != nil {
				return err
			}
			return f(running, i)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// Countdown reports how many of a number of runs are finished, and how long the rest takes at the
// same rate.
type Countdown struct {
	to    io.Writer
	of    int
	start time.Time
	Share bool // report the finished share instead of the number of runs

	mu   sync.Mutex
	done int
}

// NewCountdown returns a countdown of so many runs, which begin now. It reports to a writer.
func NewCountdown(to io.Writer, of int) *Countdown {
	return &Countdown{to: to, of: of, start: time.Now()}
}

// Ended notes the end of the run that text describes.
func (c *Countdown) Ended(text string) { c.Advanced(1, text) }

// Advanced notes the end of what text describes, which counts as by runs.
func (c *Countdown) Advanced(by int, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done += by
	left := time.Duration(float64(time.Since(c.start)) / float64(c.done) * float64(c.of-c.done))
	if c.Share {
		fmt.Fprintf(c.to, "%s (%d %%, %v left)\n", text, 100*c.done/c.of, left.Round(time.Second))
		return
	}
	fmt.Fprintf(c.to, "%s (%d of %d, %v left)\n", text, c.done, c.of, left.Round(time.Second))
}
