package server

import (
	"context"
	"errors"
	"sync"
)

// loop owns a state: everything that touches the state is a closure, and the loop runs one closure
// at a time. The goroutine that posts a closure runs it, and then the closures that others have
// posted meanwhile. So a step does not wait for a goroutine to wake up that would only pass
// something on.
type loop struct {
	ctx   context.Context
	after func() // runs after each closure

	mu    sync.Mutex
	room  sync.Cond // of mu: signalled when inbox has become short, or nobody runs closures any more
	inbox []func()
	busy  bool          // somebody runs closures
	ended chan struct{} // closed when run has returned: no closure runs any more
}

// maxInbox is how many closures may wait. A goroutine that brings another one waits with it while
// the state is busy.
const maxInbox = 64

// errStopped means that the owner of the state has ended: its view is over.
var errStopped = errors.New("the view it served is over")

// newLoop returns a loop that ends with ctx.
func newLoop(ctx context.Context, after func()) *loop {
	l := &loop{ctx: ctx, after: after, ended: make(chan struct{})}
	l.room.L = &l.mu
	return l
}

// run waits until the loop's context has ended and no closure runs any more.
func (l *loop) run() {
	<-l.ctx.Done()
	l.mu.Lock()
	for l.busy {
		l.room.Wait()
	}
	l.inbox = nil
	l.room.Broadcast()
	l.mu.Unlock()
	close(l.ended)
}

// post hands f to the state, and runs it if nobody else does. It reports false if the loop has
// ended.
func (l *loop) post(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.inbox) >= maxInbox && l.ctx.Err() == nil {
		l.room.Wait()
	}
	if l.ctx.Err() != nil {
		return false
	}
	l.inbox = append(l.inbox, f)
	if !l.busy {
		l.busy = true
		l.work()
	}
	return true
}

// work runs the closures in the inbox. mu is locked, but not while a closure runs.
func (l *loop) work() {
	for len(l.inbox) > 0 && l.ctx.Err() == nil {
		f := l.inbox[0]
		if l.inbox = l.inbox[1:]; len(l.inbox) == maxInbox-1 {
			l.room.Broadcast()
		}
		l.mu.Unlock()
		f()
		l.after()
		l.mu.Lock()
	}
	if len(l.inbox) == 0 {
		l.inbox = nil
	}
	l.busy = false
	l.room.Broadcast()
}

// do hands f to the state and waits until f has run, or until it never will. After either, the
// caller may read what f writes.
func (l *loop) do(f func()) error {
	done := make(chan struct{})
	if !l.post(func() { f(); close(done) }) {
		return errStopped
	}
	select {
	case <-done:
		return nil
	case <-l.ended:
		return errStopped
	}
}

// outbox is a queue of messages to one stream. Put never blocks, so that a slow peer cannot hold up
// the owner of a state. A peer that falls maxOutbox messages behind loses its stream and connects
// again.
type outbox[T any] struct {
	try func(T) bool // sends at once or not at all, without waiting; nil: drain sends everything. Set before the first put

	mu    sync.Mutex
	queue []T
	busy  bool          // drain is sending: what is put now comes after it
	last  bool          // drain ends when the queue is empty
	err   error         // why the stream must end; written before ended is closed
	ended chan struct{} // closed when err is set
	wake  chan struct{} // holds one token when there is something to look at
}

const maxOutbox = 4096

var errSlowPeer = errors.New("the peer is too slow: its queue of messages is full")

func newOutbox[T any]() *outbox[T] {
	return &outbox[T]{ended: make(chan struct{}), wake: make(chan struct{}, 1)}
}

func (o *outbox[T]) put(m T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.try != nil && !o.busy && len(o.queue) == 0 && o.err == nil && o.try(m) {
		return
	}
	if len(o.queue) >= maxOutbox {
		o.stop(errSlowPeer)
	}
	if o.err == nil {
		o.queue = append(o.queue, m)
	}
	o.look()
}

// end makes the stream end with err, even while a message is being sent that the peer does not
// take.
func (o *outbox[T]) end(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stop(err)
}

// finish makes drain return once everything that was put is sent.
func (o *outbox[T]) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = true
	o.look()
}

func (o *outbox[T]) stop(err error) {
	if o.err == nil {
		o.err, o.queue = err, nil
		close(o.ended)
	}
}

func (o *outbox[T]) look() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// drain sends what is put, in order, until ctx ends, send fails, or the outbox ends or is finished.
func (o *outbox[T]) drain(ctx context.Context, send func(T) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-o.ended:
			return o.err
		case <-o.wake:
		}
		for more := true; more; {
			var batch []T
			var last bool
			if batch, last = o.take(); len(batch) == 0 && last {
				return nil
			}
			for _, m := range batch {
				if err := send(m); err != nil {
					return err
				}
			}
			more = len(batch) > 0
		}
	}
}

// take returns the messages to send. If there are none, it notes that the caller is not sending any
// more.
func (o *outbox[T]) take() (batch []T, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	batch, o.queue = o.queue, nil
	o.busy = len(batch) > 0
	return batch, o.last
}

// converse runs receive and meanwhile sends what is put in out, until either of them fails, out
// ends or the tenure does. When receive has come to the peer's orderly end, the answers so far are
// still sent. The return of converse ends the stream, and with it whatever still runs on it.
func converse[T any](ctx context.Context, t *tenure, out *outbox[T], send func(T) error, receive func() error) error {
	received, drained := make(chan error, 1), make(chan error, 1)
	go func() { received <- receive() }()
	go func() { drained <- out.drain(ctx, send) }()
	for {
		select {
		case err := <-received:
			if err != nil {
				return err
			}
			out.finish()
			received = nil
		case err := <-drained:
			return err
		case <-out.ended:
			return out.err
		case <-t.ctx.Done():
			return t.over()
		}
	}
}
