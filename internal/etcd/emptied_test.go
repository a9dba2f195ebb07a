package etcd

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An etcd that comes back without its data knows no life. A process learns that it is forgotten, even
// if another one has the place by then, under the same incarnation: that one keeps it.
func TestALifeThatEtcdHasLostLearnsOfItAndTouchesNoOther(t *testing.T) {
	t.Parallel()
	b := startEtcd(t)
	forgotten := func(s Status) bool { return s.State == Forgotten }
	first, second := register(t, b.dial(t), Server, 0, time.Second), register(t, b.dial(t), Server, 1, time.Second)
	b.Close()
	if err := os.RemoveAll(filepath.Join(b.dir, "data")); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	c := b.dial(t)
	members := c.WatchMembers(within(t), Server)
	later := register(t, c, Server, 1, time.Minute)
	await(t, first.Changes(), "forgotten", forgotten)
	await(t, second.Changes(), "forgotten, with another life in the place", forgotten)
	if err := second.Tell(within(t), "of the past"); err != nil {
		t.Error(err)
	}
	if err := second.Leave(within(t)); err != nil {
		t.Error(err)
	}
	if left, err := c.Left(within(t), Server, 1); left != 0 || err != nil {
		t.Errorf("life %d has left, %v", left, err)
	}
	if err := later.Tell(within(t), "of now"); err != nil {
		t.Fatal(err)
	}
	await(t, members, "the later life, unharmed", func(ms []Member) bool { return present("server/1@1")(ms) && string(ms[0].Value) == `"of now"` })
}

// Whoever only reads learns of it too. An etcd that comes back with its data is not taken for one
// that has lost them.
func TestAnEtcdThatHasLostItsDataIsNoticed(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} { // whether the run has its id yet
		b := startEtcd(t)
		c := b.dial(t)
		if known {
			if _, err := c.ID(within(t)); err != nil {
				t.Fatal(err)
			}
		}
		register(t, b.dial(t), Worker, 0, time.Minute) // so that there are revisions
		looked, emptied := make(chan struct{}), make(chan bool, 1)
		ctx := within(t)
		go func() {
			emptied <- c.emptied(ctx, func() {
				select {
				case looked <- struct{}{}:
				case <-ctx.Done():
				}
			})
		}()
		<-looked
		for range 2 {
			b.Close()
			b.start(t)
			select {
			case <-looked:
			case <-emptied:
				t.Fatalf("id known %t: an etcd that has its data is taken for one without", known)
			}
		}
		b.Close()
		if err := os.RemoveAll(filepath.Join(b.dir, "data")); err != nil {
			t.Fatal(err)
		}
		b.start(t)
		if !<-emptied {
			t.Errorf("id known %t: the loss was not noticed within %v", known, limit)
		}
	}
}
