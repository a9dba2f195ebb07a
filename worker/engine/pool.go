package engine

import (
	"sync"
	"sync/atomic"
)

// pool runs the parts of a computation on a fixed number of threads. It is used by one goroutine at a time, which
// computes as well.
type pool struct {
	threads int
	wake    chan int       // lanes of those that are to help
	helping sync.WaitGroup // those that help with the present computation

	task func(part, lane int)
	next atomic.Int64 // the first part that nobody has taken
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

// each calls task for each part in [0, parts) and returns when all have returned. lane says which of the threads calls:
// calls with equal lanes do not overlap, so they can share memory. task must be made once and not in each step:
// a closure that is handed over is allocated.
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
