package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

// Whoever listens to the replica after a head hears what it answers to the head, for as long as it
// listens. A head has no such answers.
func TestWhoListensHearsTheAnswersToTheHead(t *testing.T) {
	s, chunks := ofOneShard(t, Config{ID: 1, Load: func(context.Context, kintsugi.View, *Shard) error { return nil }})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		v := kintsugi.View{Number: 1, Line: 1, Fence: 1, Replicas: 2, Chains: [][]kintsugi.ServerID{{0, 1}}, Servers: make([]kintsugi.Member, 2)}
		home := &tenure{view: v, replicas: make(map[kintsugi.ShardID]*replica)}
		place := func(at int) *replica {
			r, err := s.newReplica(ctx, v, 0, chunks, at)
			if err != nil {
				t.Fatal(err)
			}
			home.replicas[0] = r
			return r
		}
		hears := newOutbox[kintsugi.ReplicaMessage]()
		if err := home.listen(0, hears); !errors.Is(err, kintsugi.ErrStaleView) {
			t.Errorf("a server without the shard: %v", err)
		}
		go place(0).run()
		if err := home.listen(0, hears); !errors.Is(err, kintsugi.ErrStaleView) {
			t.Errorf("a head: %v", err)
		}
		r := place(1)
		go r.run()
		for range 2 { // once more changes nothing
			if err := home.listen(0, hears); err != nil {
				t.Fatal(err)
			}
		}
		step := func(n kintsugi.Step) {
			t.Helper()
			if err := r.do(func() {
				r.before = newOutbox[kintsugi.FollowerMessage]()
				r.core.Obey(kintsugi.Take{Line: 1, View: 1, Fence: 3})
				u := r.sums.take()
				for i := range u.parts {
					u.parts[i] = make([]float32, r.sums.size[i])
				}
				u.step, u.decided = n, 3
				r.sums.unpin(r.given)
				r.given = u
				if !r.core.Obey(kintsugi.Update{Commit: kintsugi.Commit{Line: 1, Fence: 3, Decided: 3, Step: n, Scale: 1, Optimizer: kintsugi.Optimizer{Rule: kintsugi.RuleSGD}}}) {
					t.Errorf("step %d is refused", n)
				}
			}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		step(1)
		said, _ := hears.take()
		if len(said) != 1 {
			t.Fatalf("it hears %+v", said)
		}
		if m, ok := said[0].(kintsugi.Stable); !ok || m.Step != 1 || m.Decided != 3 || m.Fence != 3 || m.Waits || m.Products != nil {
			t.Errorf("it hears %+v", said[0])
		}
		if err := r.do(func() {
			r.forget(hears)
			r.core.Obey(kintsugi.Released{Line: 1, Fence: 3, Step: 1})
		}); err != nil {
			t.Fatal(err)
		}
		step(2)
		if said, _ := hears.take(); len(said) > 0 || r.core.Released() != 1 {
			t.Errorf("who has gone hears %+v, at step %d", said, r.core.Released())
		}
	})
}

// controlled is a server of which only the control streams are served.
type controlled struct {
	transport.Handler
	control func(*transport.ControlServer) error
}

func (f *controlled) Control(s *transport.ControlServer) error { return f.control(s) }

// A step is released when its head has applied it, and the replica after the head says so to the
// conductor, though the head has not heard of that.
func TestAConductorHearsOfAStepFromTheReplicaAfterTheHead(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	applied, released := make(chan kintsugi.Commit, 1), make(chan kintsugi.Step, 1)
	head := func(s *transport.ControlServer) error {
		for {
			c, err := s.Recv()
			if err != nil {
				return err
			}
			switch m := c.Message.(type) {
			case kintsugi.Take:
				err = s.Send(kintsugi.Taken{Fence: m.Fence})
			case kintsugi.Members:
				err = s.Send(kintsugi.MembersKnown{Fence: m.Fence, Change: m.Change})
			case kintsugi.Commit:
				applied <- m
				err = s.Send(kintsugi.Stable{Fence: m.Fence, Step: m.Step, Decided: m.Decided, Waits: true})
			case kintsugi.Released:
				released <- m.Step
			}
			if err != nil {
				return err
			}
		}
	}
	next := func(s *transport.ControlServer) error {
		c, err := s.Recv()
		if _, ok := c.Message.(kintsugi.Listen); !ok || err != nil {
			t.Errorf("the replica after the head is told %+v, %v", c.Message, err)
			return err
		}
		m := <-applied
		if err := s.Send(kintsugi.Stable{Fence: m.Fence, Step: m.Step, Decided: m.Decided}); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}
	var servers []kintsugi.Member
	for i, f := range []func(*transport.ControlServer) error{head, next} {
		lis, err := transport.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		srv := transport.NewServer(lis, &controlled{control: f})
		go func() { _ = srv.Serve() }()
		defer srv.Stop()
		servers = append(servers, kintsugi.Member{Server: kintsugi.ServerID(i), Incarnation: 1, Address: srv.Address()})
	}
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "a", Shape: []int{7}}})
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{
		Layout: l, Slots: 1, Steps: 10, StartGrace: time.Minute, LeaveGrace: time.Minute,
		NextFence: func(context.Context, kintsugi.View) (kintsugi.Fence, error) { return 2, nil },
	})
	s.life = ctx
	c, err := s.newConducting(ctx, kintsugi.View{Number: 1, Line: 1, Replicas: 2, Chains: [][]kintsugi.ServerID{{0, 1}}, Servers: servers})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); c.run() }()
	defer func() { cancel(); <-ended }()
	out, admitted := newOutbox[kintsugi.ConductorMessage](), make(chan struct{}, 1)
	out.try = func(m kintsugi.ConductorMessage) bool {
		if _, ok := m.(kintsugi.Admitted); ok {
			admitted <- struct{}{}
		}
		return true
	}
	if failed := c.do(func() {
		c.workers[0] = &workerStream{incarnation: 1, out: out}
		err = c.core.HandleHello(time.Now(), kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Model: l.Agreement(), Line: 1, View: 1, Incarnation: 1})
	}); failed != nil || err != nil {
		t.Fatal(failed, err)
	}
	<-admitted
	if err := c.do(func() {
		c.core.HandleTicket(time.Now(), kintsugi.Ticket{Push: kintsugi.PushID{Line: 1, Incarnation: 1}, Views: []kintsugi.ViewNumber{1}, Examples: 1})
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case step := <-released:
		if step != 1 {
			t.Errorf("step %d is released", step)
		}
	case <-ctx.Done():
		t.Fatal("the step is not released")
	}
}
