package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// stepWatch records when the shells of a synchronous run enter their states. In each step, each
// worker computes once and each server publishes once, so the n-th entry belongs to step n.
type stepWatch struct {
	mu      sync.Mutex
	workers []lane
	servers []lane
	cpu     []float64 // CPU time of the process when server 0 published
}

// lane is when one process entered each of its states.
type lane map[string][]time.Time

func newStepWatch(workers, servers int) *stepWatch {
	w := &stepWatch{workers: make([]lane, workers), servers: make([]lane, servers)}
	for _, lanes := range [][]lane{w.workers, w.servers} {
		for i := range lanes {
			lanes[i] = make(lane)
		}
	}
	return w
}

func (w *stepWatch) worker(i kintsugi.Slot, s worker.State) { w.note(w.workers[i], string(s)) }

func (w *stepWatch) server(i kintsugi.ServerID, s server.State) {
	w.note(w.servers[i], string(s))
	if i == 0 && s == server.Publishing {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.cpu = append(w.cpu, cpuTime().Seconds())
	}
}

func (w *stepWatch) note(l lane, state string) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	l[state] = append(l[state], now)
}

// last returns when the last of some processes entered a state for the n-th time, counted from 0.
func last(lanes []lane, state string, n int) (at time.Time, ok bool) {
	for _, l := range lanes {
		if n >= len(l[state]) {
			return at, false
		}
		if t := l[state][n]; t.After(at) {
			at = t
		}
	}
	return at, true
}

// run returns the measured steps.
func (w *stepWatch) run() (r stepRun, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := warmSteps; ; n++ {
		begin, ok := last(w.servers, string(server.Publishing), n-1)
		read, ok2 := last(w.workers, string(worker.Computing), n)
		pushed, ok3 := last(w.workers, string(worker.Waiting), n)
		end, ok4 := last(w.servers, string(server.Publishing), n)
		if !ok || !ok2 || !ok3 || !ok4 {
			break
		}
		// Entries may be recorded late. A version may be read before its server has said that it
		// can be, and a step may be made as the gradients arrive and be published before the last
		// worker starts to wait for it.
		read = within(read, begin, end)
		pushed = within(pushed, read, end)
		r.steps = append(r.steps, stepTimes{
			parts: [...]float64{read.Sub(begin).Seconds(), pushed.Sub(read).Seconds(), end.Sub(pushed).Seconds(), end.Sub(begin).Seconds()},
			strip: func() string { return w.strip(begin, end) },
		})
	}
	if len(r.steps) == 0 {
		return r, errors.New("the run has ended before a step could be measured")
	}
	r.cpu = (w.cpu[len(w.cpu)-1] - w.cpu[warmSteps-1]) / float64(len(w.cpu)-warmSteps)
	return r, nil
}

// within returns t, limited to the range from low to high.
func within(t, low, high time.Time) time.Time {
	switch {
	case t.Before(low):
		return low
	case t.After(high):
		return high
	}
	return t
}

const stripColumns = 72

// strip draws the states of each process between two releases, one line per process.
func (w *stepWatch) strip(begin, end time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%.0f ms; workers: < reads, ~ scans, > pushes, . waits; servers: < lands, + makes what has landed, # applies\n", end.Sub(begin).Seconds()*1e3)
	draw := func(name string, l lane, rest byte, marks map[string]byte) {
		line := make([]byte, stripColumns)
		for i := range line {
			at := begin.Add(time.Duration(float64(end.Sub(begin)) * (float64(i) + 0.5) / stripColumns))
			line[i] = rest
			newest := begin
			for state, mark := range marks {
				if t, ok := before(l[state], at); ok && !t.Before(newest) {
					newest, line[i] = t, mark
				}
			}
		}
		fmt.Fprintf(&b, "%-9s |%s|\n", name, line)
	}
	for i, l := range w.workers {
		draw(fmt.Sprintf("worker/%d", i), l, '<', map[string]byte{string(worker.Computing): '~', string(worker.Pushing): '>', string(worker.Waiting): '.'})
	}
	for i, l := range w.servers {
		draw(fmt.Sprintf("server/%d", i), l, '.', map[string]byte{string(server.Pushing): '<', string(server.Arriving): '+', string(server.Committing): '#'})
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// before returns the last of some ascending times that is not after at.
func before(times []time.Time, at time.Time) (time.Time, bool) {
	i, found := slices.BinarySearchFunc(times, at, time.Time.Compare)
	if found {
		return times[i], true
	}
	if i == 0 {
		return time.Time{}, false
	}
	return times[i-1], true
}

// saveNothing simulates a store that takes no time.
func saveNothing(context.Context, kintsugi.View, server.Shard) (string, uint64, error) {
	return "nothing", 0, nil
}
