package server

import (
	"sync"
	"sync/atomic"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// sum is the scaled sum of a step on a shard: what replicas that are no heads apply. The newest one is kept as long as
// somebody behind may lack it.
type sum struct {
	step    kintsugi.Step
	decided kintsugi.Fence
	values  []float32
	array   kernels.Array // whose host's side are values; nil: they are on the host alone
	pins    atomic.Int32
}

// sums are the buffers of one shard, of all views in which this server holds it. One whose pins are never given back,
// because a connection broke, is left to the garbage collector.
type sums struct {
	arrays kernels.Arrays // on an accelerator; nil: on the host

	mu   sync.Mutex
	free []*sum
}

// take returns a sum of n values to write, pinned once.
func (p *sums) take(n int) *sum {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &sum{}
	if last := len(p.free) - 1; last >= 0 {
		s, p.free = p.free[last], p.free[:last]
	} else if p.arrays != nil {
		s.array = p.arrays.NewArray()
		s.values = s.array.Host()
	} else {
		s.values = make([]float32, n)
	}
	s.pins.Store(1)
	return s
}

// unpin gives a pin of s back; nil: nothing.
func (p *sums) unpin(s *sum) {
	if s == nil || s.pins.Add(-1) > 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, s)
}
