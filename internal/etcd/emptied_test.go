package etcd

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kintsugi-ml/kintsugi"
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

// Who leads, and who waits to lead, would not hear of anything any more.
func TestACandidateLearnsThatEtcdHasGoneBack(t *testing.T) {
	t.Parallel()
	b := startEtcd(t)
	data, backup := filepath.Join(b.dir, "data"), filepath.Join(b.dir, "backup")
	candidate := func(id string) (looks latest[int], leads chan *Leadership, ended chan error) {
		n := 0
		looks, leads, ended = newLatest[int](), make(chan *Leadership, 1), make(chan error, 1)
		go func() {
			l, err := b.dial(t).campaign(t.Context(), id, 60, func() {
				n++
				looks.send(n)
			})
			leads <- l
			ended <- err
		}()
		return looks, leads, ended
	}
	some := func(n int) bool { return n > 0 }
	firstLooks, leads, _ := candidate("first")
	first := <-leads
	secondLooks, _, ended := candidate("second")
	// A candidate that has not begun to wait ends with etcd. This one begins once its key is there,
	// and before it has looked twice more.
	c, standing := b.dial(t), 0
	await(t, secondLooks, "its candidacy", func(n int) bool {
		r, err := c.etcd.Get(within(t), c.prefix+electionPrefix+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && r.Count == 2 && standing == 0 {
			standing = n
		}
		return standing > 0 && n >= standing+2
	})
	b.Close()
	if err := os.CopyFS(backup, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	if _, err := b.dial(t).ID(within(t)); err != nil { // something that the backup does not know
		t.Fatal(err)
	}
	b.Close()
	for _, looks := range []latest[int]{firstLooks, secondLooks} {
		select {
		case <-looks: // it may be from before
		default:
		}
	}
	b.start(t)
	for _, looks := range []latest[int]{firstLooks, secondLooks} {
		await(t, looks, "a look at what etcd knows now", some)
	}
	select {
	case <-first.Lost():
		t.Fatal("an etcd that has its data is taken for one without")
	default:
	}
	b.Close()
	if err := errors.Join(os.RemoveAll(data), os.Rename(backup, data)); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	<-first.Lost()
	if err := <-ended; !errors.Is(err, errLapsed) {
		t.Errorf("who waited: %v", err)
	}
	if err := first.Resign(); err != nil {
		t.Error(err)
	}
	_, leads, _ = candidate("third")
	if third := <-leads; third == nil || third.Resign() != nil {
		t.Error("after that, nobody leads")
	}
}

// Changes that are made after etcd went back hide how far it went: its revision grows past what it
// was. The view says it all the same, also one that has the number of the view that was lost.
func TestAViewThatEtcdHasLostIsMissed(t *testing.T) {
	t.Parallel()
	b := startEtcd(t)
	data, backup := filepath.Join(b.dir, "data"), filepath.Join(b.dir, "backup")
	c := b.dial(t)
	put := func(c *Client, number kintsugi.ViewNumber, fence kintsugi.Fence) {
		if _, err := c.PutView(within(t), number-1, kintsugi.View{Number: number, Line: 1, Fence: fence}); err != nil {
			t.Fatal(err)
		}
	}
	back := func() bool {
		_, back, err := c.look(within(t), "")
		if err != nil {
			t.Fatal(err)
		}
		return back
	}
	put(c, 1, 1)
	b.Close()
	if err := os.CopyFS(backup, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	put(c, 2, 2)
	if back() {
		t.Fatal("an etcd that has its data is taken for one without")
	}
	b.Close()
	if err := errors.Join(os.RemoveAll(data), os.Rename(backup, data)); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	d := b.dial(t)
	for i := range uint32(10) {
		register(t, d, Worker, i, time.Minute)
	}
	if !back() {
		t.Error("view 1 is taken for view 2")
	}
	if back() {
		t.Error("what was missed once is missed again")
	}
	c.hears(&kintsugi.View{Number: 2, Line: 1, Fence: 2})
	put(d, 2, 3)
	if !back() {
		t.Error("one view 2 is taken for another")
	}
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
			emptied <- c.emptied(ctx, lookSoon, func() {
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
