package cuda

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
)

// slow is a GPU whose work takes as long as the number of the stream or event, in seconds.
type slow struct{ driver.Context }

func (slow) Synchronize(s driver.Stream) error {
	time.Sleep(time.Duration(s) * time.Second)
	return nil
}

func (slow) Await(e driver.Event) error { return slow{}.Synchronize(driver.Stream(e)) }

func (slow) Elapsed(_, end driver.Event) (float64, error) { return 0, slow{}.Await(end) }

// Many calls that are short are no long one, and of several at the same time, one is enough that hangs.
func TestAGPUThatDoesNotFinishHangs(t *testing.T) {
	for name, wait := range map[string]func(c driver.Context, seconds int){
		"Synchronize": func(c driver.Context, seconds int) { _ = c.Synchronize(driver.Stream(seconds)) },
		"Await":       func(c driver.Context, seconds int) { _ = c.Await(driver.Event(seconds)) },
		"Elapsed":     func(c driver.Context, seconds int) { _, _ = c.Elapsed(1, driver.Event(seconds)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWaits(slow{})
				d := &Device{c: w, waits: w, ordinal: 3}
				hung := make(chan time.Time, 2) // when
				d.Watch(64*time.Second, func(err error) {
					if !errors.Is(err, ErrHangs) || err.Error() != "GPU 3 has not finished its work within 1m4s: the GPU hangs" {
						t.Error(err)
					}
					hung <- time.Now()
				})
				defer close(w.over)
				go wait(d.c, 60)
				for range 30 {
					wait(d.c, 20)
				}
				if len(hung) > 0 {
					t.Fatalf("it hangs at %v", <-hung)
				}
				go wait(d.c, 30)
				time.Sleep(500 * time.Millisecond)
				begin := time.Now()
				wait(d.c, 200)
				if len(hung) != 1 {
					t.Fatalf("it hangs %d times", len(hung))
				}
				if after := (<-hung).Sub(begin); after != 64500*time.Millisecond {
					t.Errorf("it hangs after %v", after)
				}
			})
		})
	}
}

func TestAWatchEndsWithTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(slow{})
		d := &Device{c: w, waits: w, lost: errors.New("an address that is none")}
		d.Watch(time.Second, func(err error) { t.Error(err) })
		if err := errors.Join(d.Close(), d.Close()); err != nil {
			t.Error(err)
		}
		_ = d.c.Synchronize(10)
	})
}
