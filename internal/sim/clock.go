package sim

import "time"

// proc is one life of a process. Its events are dropped when it dies, and wait while it is paused.
type proc struct {
	name    string
	id      int
	dead    bool
	paused  time.Duration // no events before this time
	streams []*stream
	accept  func(e *end, first any) // accepts a stream; first says what the stream is for
}

// event is a future event of a process, or of the environment if on is nil.
type event struct {
	at  time.Duration
	due time.Duration // when it would happen without pauses; of events at the same time, the one that was due first comes first
	seq uint64        // and then the one that was created first, so that a seed determines the order
	on  *proc
	do  func()
}

// clock is virtual time: a heap of events. Nothing waits; the clock jumps to the next event.
type clock struct {
	now    time.Duration
	seq    uint64
	heap   []event
	events int // number of past events
}

// after schedules do for p after d.
func (c *clock) after(p *proc, d time.Duration, do func()) {
	c.at(p, c.now+d, do)
}

func (c *clock) at(p *proc, t time.Duration, do func()) {
	c.seq++
	t = max(t, c.now)
	c.push(event{at: t, due: t, seq: c.seq, on: p, do: do})
}

// step executes the next event. It returns false if there is none.
func (c *clock) step() bool {
	if len(c.heap) == 0 {
		return false
	}
	e := c.pop()
	c.now = e.at
	if e.on != nil {
		if e.on.dead {
			return true
		}
		if e.on.paused > c.now { // it happens when the process continues, in the original order, however often the pause is extended
			e.at = e.on.paused
			c.push(e)
			return true
		}
	}
	c.events++
	e.do()
	return true
}

func (e event) before(o event) bool {
	if e.at != o.at {
		return e.at < o.at
	}
	return e.due < o.due || e.due == o.due && e.seq < o.seq
}

func (c *clock) push(e event) {
	c.heap = append(c.heap, e)
	i := len(c.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !c.heap[i].before(c.heap[up]) {
			return
		}
		c.heap[i], c.heap[up] = c.heap[up], c.heap[i]
		i = up
	}
}

func (c *clock) pop() event {
	top := c.heap[0]
	last := len(c.heap) - 1
	c.heap[0] = c.heap[last]
	c.heap[last] = event{}
	c.heap = c.heap[:last]
	for i := 0; ; {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < last; k++ {
			if c.heap[k].before(c.heap[least]) {
				least = k
			}
		}
		if least == i {
			return top
		}
		c.heap[i], c.heap[least] = c.heap[least], c.heap[i]
		i = least
	}
}
