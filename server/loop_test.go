package server

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// conversation returns what converse needs: a tenure that lasts as long as the test, and a receive
// that lasts as long as the stream.
func conversation(t *testing.T) (context.Context, *tenure, func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, &tenure{ctx: t.Context()}, func() error {
		<-ctx.Done()
		return ctx.Err()
	}
}

// A peer that receives nothing loses its stream, even while a message to it is being sent.
func TestAPeerThatTakesNothingLosesItsStream(t *testing.T) {
	ctx, tenure, receive := conversation(t)
	out := newOutbox[int]()
	sending := make(chan struct{})
	go func() {
		out.put(0)
		<-sending
		for i := range maxOutbox + 1 {
			out.put(i)
		}
	}()
	stuck := func(int) error {
		close(sending)
		<-ctx.Done()
		return ctx.Err()
	}
	if err := converse(ctx, tenure, out, stuck, receive); !errors.Is(err, errSlowPeer) {
		t.Errorf("got %v, want %v", err, errSlowPeer)
	}
	if out.put(1); len(out.queue) > 0 {
		t.Error("messages to a stream that has ended are kept")
	}
}

// When the peer ends in order, what is due is sent in order, and only then the stream ends.
func TestAnswersAreSentBeforeTheEnd(t *testing.T) {
	ctx, tenure, _ := conversation(t)
	out := newOutbox[int]()
	var got []int
	err := converse(ctx, tenure, out, func(i int) error { got = append(got, i); return nil }, func() error {
		for i := range 1000 {
			out.put(i)
		}
		return nil
	})
	if err != nil || len(got) != 1000 || !slices.IsSorted(got) {
		t.Errorf("%d messages were sent, and the end was %v", len(got), err)
	}
}

// A failure in either direction ends both.
func TestEitherDirectionEndsTheStream(t *testing.T) {
	broken := errors.New("broken")
	ctx, tenure, receive := conversation(t)
	out := newOutbox[int]()
	out.put(1)
	if err := converse(ctx, tenure, out, func(int) error { return broken }, receive); err != broken {
		t.Errorf("a send that failed: got %v", err)
	}
	if err := converse(ctx, tenure, newOutbox[int](), nil, func() error { return broken }); err != broken {
		t.Errorf("a receive that failed: got %v", err)
	}
}
