package train

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
)

func TestARunThatIsAskedToEndDoesSoInTime(t *testing.T) {
	away := errors.New("etcd is away")
	never := func(ctx context.Context, _ error) error { <-ctx.Done(); return ctx.Err() }
	asked := func(context.Context, error) error { return nil }
	for name, c := range map[string]struct {
		begun  bool
		asks   []time.Duration // when it asks
		stop   func(context.Context, error) error
		over   time.Duration // when the last checkpoint is published
		ends   time.Duration
		words  string
		reason error
	}{
		"nothing to save":       {false, []time.Duration{time.Second}, asked, time.Hour, time.Second, "preempted: start it again with --resume: it had not begun, and saves nothing; so it is", cli.ErrPreempted},
		"saved":                 {true, []time.Duration{time.Second}, asked, 41 * time.Second, 41 * time.Second, "", nil},
		"never saved":           {true, []time.Duration{time.Second}, asked, time.Hour, 91 * time.Second, "preempted: start it again with --resume: no last checkpoint within 1m30s; so it is", cli.ErrPreempted},
		"asked again":           {true, []time.Duration{time.Second, 6 * time.Second}, asked, time.Hour, 6 * time.Second, "preempted: start it again with --resume: asked once more, so without a last checkpoint; so it is", cli.ErrPreempted},
		"asked again, no etcd":  {true, []time.Duration{time.Second, 6 * time.Second}, never, time.Hour, 6 * time.Second, "preempted: start it again with --resume: asked once more, so without a last checkpoint; so it is", cli.ErrPreempted},
		"etcd is away all time": {true, []time.Duration{time.Second}, never, time.Hour, 91 * time.Second, "preempted: start it again with --resume: no last checkpoint within 1m30s; so it is", cli.ErrPreempted},
		"etcd refuses": {true, []time.Duration{time.Second}, func(context.Context, error) error { return away }, time.Hour, time.Second,
			"preempted: start it again with --resume\netcd is away", cli.ErrPreempted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, said := time.Now(), 0
				ctx, cancel := context.WithTimeout(t.Context(), c.over)
				defer cancel()
				asks := make(chan asking)
				go func() {
					for _, at := range c.asks {
						time.Sleep(at - time.Since(start))
						select {
						case asks <- asking{"SIGTERM", cli.ErrPreempted}:
						case <-ctx.Done():
						}
					}
				}()
				e := ending{
					begun: func() bool { return c.begun }, within: func() time.Duration { return 90 * time.Second }, stop: c.stop,
					unsaved: func() string { return "; so it is" }, say: func(string) { said++ },
				}
				err := e.await(ctx, asks)
				took := time.Since(start)
				if took != c.ends || !errors.Is(err, c.reason) || err != nil && err.Error() != c.words {
					t.Errorf("it ended after %v with %q; want %v and %q", took, err, c.ends, c.words)
				}
				if most := took / cli.SayAgain; c.begun && time.Duration(said) < most {
					t.Errorf("it said something %d times in %v", said, took)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

func TestALastCheckpointMayTakeAsLongAsTheOnesBefore(t *testing.T) {
	for _, c := range []struct{ warning, slowest, want time.Duration }{
		{25 * time.Second, 0, 5 * time.Minute},
		{25 * time.Second, 10 * time.Second, 5 * time.Minute},
		{25 * time.Second, 3 * time.Minute, 9 * time.Minute},
		{10 * time.Minute, time.Minute, 10 * time.Minute},
	} {
		if got := lastSaveWithin(c.warning, c.slowest); got != c.want {
			t.Errorf("with a warning of %v and saves of %v it waits %v; want %v", c.warning, c.slowest, got, c.want)
		}
	}
}
