package worker

import (
	"sync"

	"github.com/kintsugi-ml/kintsugi"
)

// arrival is a version of which a part has arrived. The first frame of every shard is here, so the
// version is known. The other frames arrive while layers are computed. Until wait returns, the
// stream of each source belongs to the goroutine that reads it.
type arrival struct {
	mu     sync.Mutex
	moved  sync.Cond // uses mu: landed or err has changed
	from   []*source
	landed []int // by source: all values before this index are here
	err    error
	wg     sync.WaitGroup
}

// arrive receives the first frame of each shard's answer. If all are of one version, it lets
// goroutines receive the rest and returns the arrival. Otherwise it receives all frames itself and
// returns a nil arrival; params then mix the versions that have names.
func arrive(from []*source, params []float32) (a *arrival, have []kintsugi.Step, err error) {
	have = make([]kintsugi.Step, len(from))
	same := true
	for i, x := range from {
		if have[i], err = x.landFrames(params, 0, 1, 0); err != nil {
			return nil, nil, err
		}
		same = same && have[i] == have[0]
	}
	if !same {
		for i, x := range from {
			if _, err := x.landFrames(params, 1, len(x.frames), have[i]); err != nil {
				return nil, nil, err
			}
		}
		return nil, have, nil
	}
	a = &arrival{from: from, landed: make([]int, len(from))}
	a.moved.L = &a.mu
	for i, x := range from {
		_, a.landed[i] = x.layout.Span(x.frames[0])
		a.wg.Go(func() {
			for j := 1; j < len(x.frames); j++ {
				_, err := x.landFrames(params, j, j+1, have[i])
				_, hi := x.layout.Span(x.frames[j])
				a.move(i, hi, err)
				if err != nil {
					return
				}
			}
			x.done()
		})
	}
	return a, have, nil
}

func (a *arrival) move(i, hi int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.landed[i] = hi; err != nil && a.err == nil {
		a.err = err
	}
	a.moved.Broadcast()
}

// need waits until values [lo, hi) are here. It returns false if they will never come.
func (a *arrival) need(lo, hi int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		missing := false
		for i, x := range a.from {
			first, end := x.layout.Span(x.chunks)
			missing = missing || lo < end && hi > first && a.landed[i] < min(hi, end)
		}
		if !missing || a.err != nil {
			return a.err == nil
		}
		a.moved.Wait()
	}
}

// wait waits until all values are here or an error has ended the arrival.
func (a *arrival) wait() error {
	if a == nil {
		return nil
	}
	a.wg.Wait()
	return a.err
}
