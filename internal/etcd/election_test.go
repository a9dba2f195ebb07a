package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kintsugi-ml/kintsugi"
)

func TestTheNextCandidateLeadsWhenTheLeaderResigns(t *testing.T) {
	b := startEtcd(t)
	first, err := b.dial(t).Campaign(within(t), "first", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		lead *Leadership
		err  error
	}
	second := make(chan result, 1)
	c := b.dial(t)
	go func() {
		l, err := c.Campaign(t.Context(), "second", time.Minute)
		second <- result{l, err}
	}()
	if _, err := first.PutView(within(t), 0, view(1, 1)); err != nil {
		t.Error(err)
	}
	if err := first.Resign(); err != nil {
		t.Fatal(err)
	}
	r := await(t, second, "the second candidate", func(result) bool { return true })
	if r.err != nil {
		t.Fatal(r.err)
	}
	defer r.lead.Resign()
	if _, err := first.PutView(within(t), 1, view(2, 2)); !errors.Is(err, kintsugi.ErrFenced) {
		t.Errorf("a view of the leader that resigned: %v, want ErrFenced", err)
	}
	if _, err := r.lead.PutView(within(t), 1, view(2, 2)); err != nil {
		t.Error(err)
	}
}

func TestNobodyWaitsForACandidateThatIsKnownToBeDead(t *testing.T) {
	b := startEtcd(t)
	first, err := b.dial(t).Campaign(within(t), "first", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Resign() })
	if _, err := first.PutView(within(t), 0, view(1, 1)); err != nil {
		t.Error(err)
	}
	c := b.dial(t)
	waits, err := c.etcd.Grant(within(t), 60) // a candidate that died while it waited
	if err == nil {
		_, err = c.etcd.Put(within(t), fmt.Sprintf("%s%s/%x", c.prefix, electionPrefix, waits.ID), "second", clientv3.WithLease(waits.ID))
	}
	if err != nil {
		t.Fatal(err)
	}
	third := make(chan *Leadership, 1)
	go func() {
		if l, err := c.Campaign(within(t), "third", time.Minute); err == nil {
			third <- l
		}
		close(third)
	}()
	asked := make(map[string]bool)
	for !asked["third"] { // until it campaigns
		err := c.Depose(within(t), func(id string) bool { asked[id] = true; return id == "second" })
		if err != nil {
			t.Fatal(err)
		}
	}
	if id, err := c.Leader(within(t)); err != nil || id != "first" {
		t.Errorf("%q leads, %v; nobody has said that the first is dead", id, err)
	}
	if err := c.Depose(within(t), func(id string) bool { return id == "first" }); err != nil {
		t.Fatal(err)
	}
	l := await(t, third, "the third candidate", func(*Leadership) bool { return true })
	if l == nil {
		t.Fatal("the third candidate does not lead")
	}
	defer l.Resign()
	if _, err := first.PutView(within(t), 1, view(2, 2)); !errors.Is(err, kintsugi.ErrFenced) {
		t.Errorf("a view of one that was taken for dead: %v, want ErrFenced", err)
	}
	select {
	case <-first.Lost():
	case <-within(t).Done():
		t.Error("one that was taken for dead does not learn of it")
	}
	if _, err := l.PutView(within(t), 1, view(2, 2)); err != nil {
		t.Error(err)
	}
}

func TestADeadLeaderIsReplacedAfterItsLease(t *testing.T) {
	t.Parallel()
	b := startEtcd(t)
	dying, err := Dial(within(t), []string{b.Endpoint()}, "test")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dying.Campaign(within(t), "dying", time.Second); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	dying.Close()
	l, err := b.dial(t).Campaign(within(t), "next", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("with a lease of 1s the next coordinator led after %v", time.Since(begin).Round(time.Millisecond))
	l.Resign()
}

func TestALeaderThatEtcdForgetsLearnsOfIt(t *testing.T) {
	t.Parallel()
	b := startEtcd(t)
	l, err := b.dial(t).Campaign(within(t), "first", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	select {
	case <-l.Lost():
	case <-time.After(limit):
		t.Errorf("it still believes that it leads after %v", limit)
	}
}

func TestACampaignEndsWithItsContextEvenWhileEtcdIsAway(t *testing.T) {
	t.Parallel()
	b := startEtcd(t)
	l, err := b.dial(t).Campaign(within(t), "first", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Resign()
	c := b.dial(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Campaign(ctx, "second", time.Minute)
		ended <- err
	}()
	b.Close()
	cancel()
	// An etcd that closes may still report, before the context ends, that the lease is over or that
	// it closes. What matters is that the campaign does not go on for ever.
	if err := await(t, ended, "the end", func(error) bool { return true }); err == nil {
		t.Error("it leads, with nobody there to say so")
	}
}
