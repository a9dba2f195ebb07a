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
	open, say := ok[*transport.ControlClient](c), c.say
	lost, present := open(c.peer.Control(c.ctx)), open(c.peer.Control(c.ctx))
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

// say sends a message of a conductor.
func (t *one) say(s *transport.ControlClient, m kintsugi.ControlMessage) {
	t.Helper()
	if err := s.Send(transport.Control{Message: m}); err != nil {
		t.Fatal(err)
	}
}

// A worker that says that it will wait is sent a version while the conductor has not released it.
// Others are not, and nobody is once another conductor has taken the shard.
func TestAVersionIsSentBeforeItIsReleasedToThoseWhoWait(t *testing.T) {
	c := start(t)
	conductor := ok[*transport.ControlClient](c)(c.peer.Control(c.ctx))
	hear := func(done func(kintsugi.ReplicaMessage) bool) {
		c.Helper()
		for !done(ok[kintsugi.ReplicaMessage](c)(conductor.Recv())) {
		}
	}
	const fence = 99
	take := func(fence kintsugi.Fence) {
		c.say(conductor, kintsugi.Take{Line: 1, View: 1, Fence: fence})
		hear(func(m kintsugi.ReplicaMessage) bool { k, is := m.(kintsugi.Taken); return is && k.Fence == fence })
	}
	take(fence)
	members := []kintsugi.Countable{{Slot: 0, Incarnation: 1}}
	c.say(conductor, kintsugi.Members{Line: 1, Fence: fence, Change: 1, Countable: members})
	pushes := c.push()
	c.send(pushes, id(0), 1, c.frames...)
	c.wantReceived(pushes, id(0))

	ask := func(atLeast kintsugi.Step, unreleased bool) (answered chan kintsugi.Step) {
		answered = make(chan kintsugi.Step, 1)
		s := ok[*transport.ReadClient](c)(c.peer.Read(c.ctx))
		if err := s.Send(transport.ReadRequest{Line: 1, AtLeast: atLeast, Unreleased: unreleased}); err != nil {
			c.Fatal(err)
		}
		go func() {
			if f, err := s.Recv(); err == nil {
				answered <- f.Push.Version
				f.Release()
			}
		}()
		return answered
	}
	waits, others := ask(1, true), ask(1, false)
	c.say(conductor, kintsugi.Commit{
		Line: 1, Fence: fence, Decided: fence, Step: 1, Scale: 1, Counted: []kintsugi.Weighted{{Push: id(0), Weight: 1}}, Countable: members,
		Optimizer: kintsugi.Optimizer{Rule: kintsugi.RuleSGD},
	})
	hear(func(m kintsugi.ReplicaMessage) bool { _, is := m.(kintsugi.Stable); return is })
	if got := <-waits; got != 1 {
		t.Errorf("a worker that waits for the release of version 1 is sent version %d", got)
	}
	take(fence + 1)
	late := ask(1, true)
	if got := <-ask(0, true); got != 0 {
		t.Errorf("whom version 0 is enough for is sent version %d", got)
	}
	for name, answered := range map[string]chan kintsugi.Step{"wants a released version": others, "asks another conductor's shard": late} {
		if len(answered) > 0 {
			t.Errorf("who %s is sent version %d before it is released", name, <-answered)
		}
	}
	c.say(conductor, kintsugi.Released{Line: 1, Fence: fence + 1, Step: 1})
	if a, b := <-others, <-late; a != 1 || b != 1 {
		t.Errorf("when version 1 is released, versions %d and %d are sent", a, b)
	}
}
