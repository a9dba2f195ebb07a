package server_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

// A worker claims that the head has its gradient, which it has not sent. It is told why its stream
// ends. When it has connected again and pushed, the step is taken.
func TestAWorkerWhoseGradientIsLackingIsToldToPushAgain(t *testing.T) {
	one := start(t)
	w := one.join(0, 1)
	ticket := kintsugi.Ticket{Push: id(0), Views: []kintsugi.ViewNumber{1}, Examples: 1, SquaredNorm: 1}
	if err := w.Send(ticket); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := w.Recv()
		ended <- err
	}()
	var err error
	for told := false; !told; {
		select {
		case err = <-ended:
			told = true
		default:
			// The first step has waited for the missing worker, and then for the shard.
			if err := one.server.Pretend(2 * time.Minute); err != nil {
				t.Fatal(err)
			}
			runtime.Gosched()
		}
	}
	if want := "shard 0 lacks the gradient worker/0 version 0"; err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("its stream ends with %v, want %q", err, want)
	}
	w = one.join(0, 1)
	s := ok[*transport.PushClient](one)(one.peer.Push(one.ctx))
	one.send(s, id(0), 1, one.frames...)
	one.wantReceived(s, id(0))
	if m, is := ok[kintsugi.ConductorMessage](one)(w.Recv()).(kintsugi.Released); !is || m.Step != 1 || len(m.Counted) != 1 || m.Counted[0] != id(0) {
		t.Errorf("it hears %+v, want that its gradient is counted", m)
	}
}
