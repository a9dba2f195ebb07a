package engine

import (
	"sync"
	"sync/atomic"
)

// pool runs the parts of a computation on a fixed number of threads. Only one goroutine uses a pool
// at a time, and it computes parts as well.
type pool struct {
	threads int
	wake    chan int       // lanes of the threads that are to help
	helping sync.WaitGroup // threads that help with the current computation

	task func(part, lane int)
	next atomic.Int64 // the first part that no thread has taken
	end  int64
}

func newPool(threads int) *pool {
	p := &pool{threads: max(1, threads)}
	if p.threads > 1 {
		wake := make(chan int, p.threads)
		p.wake = wake
		for range p.threads - 1 {
			go func() {
				for lane := range wake {
					p.work(lane)
					p.helping.Done()
				}
			}()
		}
	}
	return p
}

// each calls task for each part in [0, parts), and returns when all calls have returned. Calls with
// the same lane do not overlap, so they may share memory. Make task once and not in each step:
// passing a new closure allocates it.
func (p *pool) each(parts int, task func(part, lane int)) {
	helpers := min(p.threads, parts) - 1
	if helpers < 1 {
		for i := range parts {
			task(i, 0)
		}
		return
	}
	p.task, p.end = task, int64(parts)
	p.next.Store(0)
	p.helping.Add(helpers)
	for i := range helpers {
		p.wake <- i + 1
	}
	p.work(0)
	p.helping.Wait()
	p.task = nil
}

func (p *pool) work(lane int) {
	for i := p.next.Add(1) - 1; i < p.end; i = p.next.Add(1) - 1 {
		p.task(int(i), lane)
	}
}

// close ends the goroutines.
func (p *pool) close() {
	if p.wake != nil {
		close(p.wake)
		p.wake = nil
	}
}
