package sim

import (
	"errors"
	"slices"
	"time"
)

// stream is a pair of ordered queues between two processes, like a connection: until it is cut, no
// message is lost, duplicated or overtaken. Messages on the way may be lost when it is cut, and
// each end notices at its own time.
type stream struct {
	ends [2]*end
	cut  bool
}

// end is one side of a stream.
type end struct {
	c      *Cluster
	s      *stream
	at     *proc
	peer   *end
	queue  []item        // messages on the way to this end
	last   time.Duration // arrival of the newest of them
	closed bool          // this side knows that the stream is over
	hear   func(m any)   // nil: messages wait
	broke  func(err error)
}

type item struct {
	due time.Duration
	m   any
}

// over is the last item of a stream.
type over struct{ err error }

// opening is the first item of a stream. It says what the stream is for.
type opening struct{ first any }

// pinned is a message whose memory must not be reused until the message has arrived or is lost.
type pinned interface{ done() }

var errCut = errors.New("the connection broke")

// open opens a stream from one process to another. hear is called with each message that comes
// back. broke is called once, when the stream has ended by itself. Neither is called after close.
func (c *Cluster) open(from, to *proc, first any, hear func(any), broke func(error)) *end {
	s := &stream{}
	a := &end{c: c, s: s, at: from, hear: hear, broke: broke}
	b := &end{c: c, s: s, at: to, peer: a}
	a.peer = b
	s.ends = [2]*end{a, b}
	if to == nil || to.dead {
		s.cut = true
		a.enqueue(over{errCut}, c.delay(from, to))
		return a
	}
	from.keep(s)
	to.keep(s)
	b.enqueue(opening{first}, c.delay(from, to))
	return a
}

// keep registers a stream with a living process, so that it breaks when the process dies.
func (p *proc) keep(s *stream) {
	if len(p.streams) > 32 && len(p.streams) == cap(p.streams) {
		p.streams = slices.DeleteFunc(p.streams, func(s *stream) bool { return s.cut })
	}
	p.streams = append(p.streams, s)
}

// send sends a message. If the stream is cut, the message is lost without an error, as with a
// socket.
func (e *end) send(m any) {
	if e.s.cut || e.closed {
		drop(m)
		return
	}
	e.peer.enqueue(m, e.c.delay(e.at, e.peer.at))
	e.c.cutAfter(e.s, m)
}

func drop(m any) {
	if x, ok := m.(pinned); ok {
		x.done()
	}
}

func (e *end) enqueue(m any, delay time.Duration) {
	e.last = max(e.last, e.c.now+delay)
	e.queue = append(e.queue, item{e.last, m})
	e.c.at(e.at, e.last, e.pump)
}

// pump delivers the messages that have arrived.
func (e *end) pump() {
	for len(e.queue) > 0 && e.queue[0].due <= e.c.now {
		if e.closed {
			e.lose(0)
			return
		}
		switch m := e.queue[0].m.(type) {
		case opening:
			e.queue = e.queue[1:]
			e.at.accept(e, m.first)
		case over:
			e.queue, e.closed = nil, true
			if e.broke != nil {
				e.broke(m.err)
			}
		default:
			if e.hear == nil {
				return
			}
			e.queue = e.queue[1:]
			e.hear(m)
		}
	}
}

// lose drops messages on the way, except the first keep items.
func (e *end) lose(keep int) {
	for _, x := range e.queue[keep:] {
		drop(x.m)
	}
	e.queue = e.queue[:keep]
}

// close ends a stream from one side. The other side receives err after the messages that were sent
// before; the last of these may be lost.
func (e *end) close(err error) {
	if e == nil || e.closed {
		return
	}
	e.closed = true
	e.lose(0)
	if e.s.cut {
		return
	}
	e.s.cut = true
	if e.c.chance(0.5) {
		e.peer.lose(e.c.rng.IntN(len(e.peer.queue) + 1))
	}
	e.peer.enqueue(over{err}, e.c.delay(e.at, e.peer.at))
}

// breakStream cuts a stream in the middle: both ends lose the messages on the way, and notice the
// cut after a while.
func (c *Cluster) breakStream(s *stream) {
	if s.cut {
		return
	}
	s.cut = true
	for _, e := range s.ends {
		e.lose(c.rng.IntN(len(e.queue) + 1))
		notice := c.delay(e.at, e.peer.at)
		if c.chance(0.2) { // nobody closed the connection: only a keep-alive notices
			notice += c.between(0, 3*time.Second)
		}
		if c.chance(0.5) { // a slow reader: what has arrived is delivered only long after the next stream was opened
			e.stall(c.between(0, time.Second))
		}
		e.enqueue(over{errCut}, notice)
	}
}

// stall delays the messages on the way.
func (e *end) stall(d time.Duration) {
	for i := range e.queue {
		e.queue[i].due += d
		e.c.at(e.at, e.queue[i].due, e.pump)
	}
	e.last += d
}

// delay draws the transmission time of a message. Blocked links hold it until they are unblocked.
func (c *Cluster) delay(from, to *proc) time.Duration {
	d := 50*time.Microsecond + time.Duration(c.rng.ExpFloat64()*float64(c.cfg.Jitter))
	if to == nil || len(c.blocked) == 0 {
		return d
	}
	if until := c.blocked[[2]int{from.id, to.id}]; until > c.now {
		d += until - c.now
	}
	return d
}

func (c *Cluster) chance(p float64) bool { return c.rng.Float64() < p }

func (c *Cluster) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(c.rng.Int64N(int64(hi-lo)+1))
}
