package server_test

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

// A conductor that loses a stream opens another. What it sent on the first may arrive after what it
// sent on the second, from the buffers of a process that stood still, and then the first stream
// ends. The answers must still go to the second.
func TestATakeThatComesLateDoesNotKeepTheAnswers(t *testing.T) {
	c := start(t)
	open := ok[*transport.ControlClient](c)
	lost, present := open(c.peer.Control(c.ctx)), open(c.peer.Control(c.ctx))
	say := func(s *transport.ControlClient, m kintsugi.ControlMessage) {
		c.Helper()
		if err := s.Send(transport.Control{Message: m}); err != nil {
			c.Fatal(err)
		}
	}
	// hear waits for an answer to Take or, if change is not 0, to Members.
	hear := func(s *transport.ControlClient, change uint64) {
		c.Helper()
		for {
			m, err := s.Recv()
			if err != nil {
				c.Fatal(err)
			}
			switch m := m.(type) {
			case kintsugi.Taken:
				if change == 0 && m.Fence == 99 {
					return
				}
			case kintsugi.MembersKnown:
				if m.Fence == 99 && m.Change == change {
					return
				}
			}
		}
	}
	take := kintsugi.Take{Line: 1, View: 1, Fence: 99}
	say(present, take)
	hear(present, 0)
	say(lost, take)
	hear(lost, 0)
	say(present, kintsugi.Members{Line: 1, Fence: 99, Change: 1})
	hear(present, 1)
	if err := lost.CloseSend(); err != nil {
		c.Fatal(err)
	}
	for err := error(nil); err == nil; {
		_, err = lost.Recv()
	}
	say(present, kintsugi.Members{Line: 1, Fence: 99, Change: 2})
	hear(present, 2)
}
