package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// A process that sees a place empty can ask why. The answer is there by then, and stays when the
// next life has come.
func TestALifeThatHadNoticeIsKnownToHaveLeft(t *testing.T) {
	t.Parallel()
	c := startEtcd(t).dial(t)
	left := func() kintsugi.Incarnation {
		t.Helper()
		inc, err := c.Left(within(t), Worker, 3)
		if err != nil {
			t.Fatal(err)
		}
		return inc
	}
	members := c.WatchMembers(within(t), Worker)
	if err := register(t, c, Worker, 3, time.Minute).Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if got := left(); got != 0 {
		t.Errorf("life %d has left; the first one ended without a notice", got)
	}
	second := register(t, c, Worker, 3, time.Minute)
	await(t, members, "the second life", present("worker/3@2"))
	gone := make(chan kintsugi.Incarnation, 1)
	go func() {
		for len(<-members) > 0 {
		}
		inc, _ := c.Left(context.Background(), Worker, 3)
		gone <- inc
	}()
	if err := second.Leave(within(t)); err != nil {
		t.Fatal(err)
	}
	if got := <-gone; got != 2 {
		t.Errorf("when the place is empty life %d has left, want 2", got)
	}
	third := register(t, c, Worker, 3, time.Minute)
	if got := left(); got != 2 {
		t.Errorf("beside its next life, life %d has left, want 2", got)
	}
	fourth := register(t, c, Worker, 3, time.Minute)
	if err := third.Leave(within(t)); err != nil {
		t.Fatal(err)
	}
	await(t, members, "the fourth life", present("worker/3@4"))
	if got := left(); got != 2 {
		t.Errorf("life %d has left; the third had lost its place before", got)
	}
	if err := fourth.Leave(within(t)); err != nil || left() != 4 {
		t.Errorf("the fourth left: %v, and life %d has", err, left())
	}
}
