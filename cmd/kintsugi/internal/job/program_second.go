package job

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// Second is a second process of a run's program. It starts while the first one is asked for its
// description, and ends before workers start theirs.
type Second struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when it has started, or failed to

	running *program.Program // set before done is closed, as is err
	err     error
}

// StartSecond starts the second process, or returns nil if the run has no program.
func StartSecond(ctx context.Context, s *Settings) *Second {
	if len(s.Program) == 0 {
		return nil
	}
	offerModule()
	ctx, cancel := context.WithCancel(ctx)
	b := &Second{cancel: cancel, done: make(chan struct{})}
	cfg := program.Config{Command: s.Program, Seed: s.Seed, Slots: s.Workers, HangAfter: time.Duration(s.HangAfter)} // its output is dropped: it repeats that of the first process
	go func() {
		defer close(b.done)
		b.running, b.err = program.Start(ctx, cfg)
	}()
	return b
}

// Close ends the second process, even while it starts. It may be called again.
func (b *Second) Close() {
	if b == nil {
		return
	}
	b.cancel()
	<-b.done
	if b.running != nil {
		_ = b.running.Close() // it is no longer needed
		b.running = nil
	}
}

// seedTheStart is the advice if processes of a program differ.
const seedTheStart = "what is random while the program starts, such as a shuffle or a split of its data, must have a seed of its own, and what comes from a set must be sorted"

// alike is the largest distance, relative to the norm, between gradients of two processes that
// differ only in the order of additions.
const alike = 0.01

// compare asks the second process for the gradient that the first one has computed. Workers with
// different data, vocabularies or frozen parameters would train without an error, but the result
// would be useless.
func (m *Program) compare(ctx context.Context, s *Settings, other *Second, grads []float32) (warning string, err error) {
	<-other.done
	if other.err != nil {
		return "", fmt.Errorf("a second process of the program, beside the first one: %w", other.err)
	}
	if err := m.same(other.running); err != nil {
		return "", err
	}
	theirs := make([]float32, len(grads))
	if _, _, err := m.gradient(s, other.running)(ctx, m.Initial, theirs, kintsugi.PushID{}); err != nil {
		return "", fmt.Errorf("a second process of the program, beside the first one: %w", err)
	}
	if slices.Equal(grads, theirs) {
		return "", nil
	}
	for i := range theirs {
		theirs[i] -= grads[i]
	}
	if apart := norm(theirs) / norm(grads); !(apart <= alike) {
		return "", fmt.Errorf("%w: two processes of %s compute gradients of one batch, at the same parameters, that are %.2g of their norm apart, so each worker would train something else: %s",
			kintsugi.ErrUsage, other.running, apart, seedTheStart)
	}
	return fmt.Sprintf("two processes of %s compute gradients of one batch, at the same parameters, that differ a little: training works, but a run after failures may end with other parameters than one without", other.running), nil
}

func norm(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum)
}
