package server

import (
	"context"
	"errors"
	"sync"
)

// loop is a goroutine that owns a state: everything that touches the state is a closure in its inbox.
type loop struct {
	ctx   context.Context
	inbox chan func()
	ended chan struct{} // closed when run has returned: no closure runs any more
}

// errStopped means that the owner of the state has ended; the view it served is over.
var errStopped = errors.New("the view it served is over")

// newLoop returns a loop that ends with ctx. The inbox is short: senders wait while the owner is behind.
func newLoop(ctx context.Context) loop {
	return loop{ctx: ctx, inbox: make(chan func(), 64), ended: make(chan struct{})}
}

// run executes closures, and after after each of them, until the loop's context ends.
func (l loop) run(after func()) {
	defer close(l.ended)
	for {
		select {
		case <-l.ctx.Done():
			return
		case f := <-l.inbox:
			f()
			after()
		}
	}
}

// post hands f to the owner and does not wait for it. It reports false if the owner has ended.
func (l loop) post(f func()) bool {
	select {
	case l.inbox <- f:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// do hands f to the owner and waits until it has run, or until it never will: either way the caller may
// then look at what f writes.
func (l loop) do(f func()) error {
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

// outbox is a queue of messages to one stream. Put never blocks, so that a slow peer cannot hold up the
// owner of a state; a peer that falls maxOutbox messages behind loses its stream and connects again.
type outbox[T any] struct {
	mu    sync.Mutex
	queue []T
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

// put appends m.
func (o *outbox[T]) put(m T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) >= maxOutbox {
		o.stop(errSlowPeer)
	}
	if o.err == nil {
		o.queue = append(o.queue, m)
	}
	o.look()
}

// end makes the stream end with err, even if a message is being sent that the peer does not take.
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
		o.mu.Lock()
		batch, last := o.queue, o.last
		o.queue = nil
		o.mu.Unlock()
		for _, m := range batch {
			if err := send(m); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

// converse runs receive, and sends what is put in out meanwhile, until either fails, out ends or the
// tenure does. When receive has come to the peer's orderly end, the answers so far are still sent.
// Returning ends the stream, and with it what is still running.
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
