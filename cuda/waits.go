package cuda

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
)

// ErrHangs means that a call to the GPU does not return: it, its driver or the bus hangs, and no call
// reports that. Such a call cannot be given up. Only the end of the process ends it.
var ErrHangs = errors.New("the GPU hangs")

// waits are the calls to a driver in which the host waits for the GPU. All others only queue work.
type waits struct {
	driver.Context

	mu       sync.Mutex
	number   int         // of calls so far
	underway map[int]int // by number of a call, how often Watch has seen it

	over chan struct{} // closed with the device
}

func newWaits(c driver.Context) *waits {
	return &waits{Context: c, underway: map[int]int{}, over: make(chan struct{})}
}

func (w *waits) Synchronize(s driver.Stream) error {
	defer w.end(w.begin())
	return w.Context.Synchronize(s)
}

func (w *waits) Await(e driver.Event) error {
	defer w.end(w.begin())
	return w.Context.Await(e)
}

func (w *waits) Elapsed(begin, end driver.Event) (float64, error) {
	defer w.end(w.begin())
	return w.Context.Elapsed(begin, end)
}

func (w *waits) begin() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number++
	w.underway[w.number] = 0
	return w.number
}

func (w *waits) end(call int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.underway, call)
}

// look counts how often it has seen each call, and returns the largest count.
func (w *waits) look() (most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for call := range w.underway {
		w.underway[call]++
		most = max(most, w.underway[call])
	}
	return most
}

// looks is how often Watch looks at a call before that hangs. It counts looks and not the time, as a
// process that was stopped meanwhile has not waited.
const looks = 64

// Watch calls hangs, once and with an ErrHangs, if the host waits for the GPU in one call for longer
// than after, until the device is closed. Neither that call nor Close will return, so hangs should end the process.
func (d *Device) Watch(after time.Duration, hangs func(error)) {
	go func() {
		tick := time.NewTicker(max(time.Millisecond, after/looks))
		defer tick.Stop()
		for {
			select {
			case <-d.waits.over:
				return
			case <-tick.C:
				if d.waits.look() > looks {
					hangs(fmt.Errorf("GPU %d has not finished its work within %v: %w", d.ordinal, after, ErrHangs))
					return
				}
			}
		}
	}()
}
