package transport

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kintsugi-ml/kintsugi"
)

func isOtherModel(err error) bool { return errors.Is(err, kintsugi.ErrOtherModel) }

// For every condition, errors.Is says the same about a handler's error on the other side, and the
// message arrives too.
func TestConditionsSurviveTheWire(t *testing.T) {
	var reason error
	_, p := loopback(t, handler{work: func(*WorkServer) error { return reason }})
	for _, c := range conditions {
		reason = fmt.Errorf("take step 7: %w", fmt.Errorf("shard 3: %w", c.err))
		s := must[*WorkClient](t)(p.Work(within(t, 10*time.Second)))
		_, err := s.Recv()
		for _, other := range conditions {
			if got, want := errors.Is(err, other.err), other.err == c.err; got != want {
				t.Errorf("%v arrived as %v: is it %q? %v, want %v", reason, err, other.err, got, want)
			}
		}
		if err.Error() != reason.Error() {
			t.Errorf("got the words %q, want %q", err, reason)
		}
	}
}

// A condition that one process learns from another is passed on to a third.
func TestConditionsSurviveTwoWires(t *testing.T) {
	for _, c := range conditions {
		err := fromWire(toWire(fmt.Errorf("relay: %w", fromWire(toWire(c.err)))))
		if !errors.Is(err, c.err) {
			t.Errorf("%v arrived as %v", c.err, err)
		}
	}
}

// A code stands for one condition, and is none of those that gRPC itself uses.
func TestCodesAreUnambiguous(t *testing.T) {
	seen := map[codes.Code]bool{
		codes.OK: true, codes.Canceled: true, codes.Unknown: true, codes.DeadlineExceeded: true, codes.ResourceExhausted: true,
		codes.Unimplemented: true, codes.Internal: true, codes.Unavailable: true, codes.Unauthenticated: true, codes.PermissionDenied: true,
	}
	for _, c := range conditions {
		if seen[c.code] {
			t.Errorf("%v is carried by %v, which means something else", c.err, c.code)
		}
		seen[c.code] = true
	}
}

// Only io.EOF is the orderly end of a stream. A file that ended too soon is not.
func TestOnlyEOFItselfIsAnOrderlyEnd(t *testing.T) {
	for _, c := range []struct {
		err  error
		want codes.Code
	}{
		{nil, codes.OK},
		{io.EOF, codes.OK},
		{fmt.Errorf("load shard 3: %w", io.EOF), codes.Unavailable},
		{errors.New("disk full"), codes.Unavailable},
		{status.Error(codes.Canceled, "gone"), codes.Canceled},
	} {
		if got := status.Code(toWire(c.err)); got != c.want {
			t.Errorf("%v is sent as %v, want %v", c.err, got, c.want)
		}
	}
	if err := fromWire(io.EOF); err != io.EOF {
		t.Errorf("io.EOF arrived as %v", err)
	}
}
