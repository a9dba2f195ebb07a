package shard_test

import (
	"fmt"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// pair is a head and a replica that comes into its chain, in virtual time. The head makes a step as
// soon as the one before is stable, in stepTime.
type pair struct {
	head, tail *shard.Replica
	link           // what it takes to be the tail
	now        int // ticks
	free       int // from then on, the tail can do the next thing
	down       []sent[kintsugi.ChainMessage]
	up         []sent[kintsugi.ReplicaMessage]
	made       int // when the step of the head that is being made is done; 0: none is

	stable  kintsugi.Step // newest
	since   int           // when it became stable
	stood   int           // longest time between two steps that became stable
	updates int           // on their way down
}

type link struct {
	delay    int // of a message, one way
	snapshot int // more for a snapshot, and what comes after it
	apply    int // time in which the tail takes in and applies a step
}

type sent[M any] struct {
	due     int
	message M
}

const stepTime = 10

func newPair(t *testing.T, l link) *pair {
	t.Helper()
	p := &pair{head: shard.New(0, 0, 1, 1, 0), tail: shard.New(0, 0, 1, 1, 0), link: l}
	p.head.Place(false, true)
	p.tail.Lack()
	p.tail.Place(true, false)
	p.head.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 1})
	p.connect(t, 1)
	p.commit(1)
	return p
}

// connect connects the tail, and loses what is on its way.
func (p *pair) connect(t *testing.T, attempt uint64) {
	t.Helper()
	p.down, p.up, p.updates, p.free = nil, nil, 0, p.now
	plan, err := p.head.Followed(p.tail.Follow(1, attempt))
	if err != nil {
		t.Fatal(err)
	}
	p.send(plan)
}

func (p *pair) send(list []kintsugi.ChainMessage) {
	for _, m := range list {
		x := sent[kintsugi.ChainMessage]{p.now + p.delay, m}
		if _, ok := m.(kintsugi.Snapshot); ok {
			x.due += p.snapshot
		}
		if n := len(p.down); n > 0 {
			x.due = max(x.due, p.down[n-1].due)
		}
		if _, ok := m.(kintsugi.Update); ok {
			p.updates++
		}
		p.down = append(p.down, x)
	}
}

func (p *pair) commit(s kintsugi.Step) {
	p.head.Handle(kintsugi.Commit{Line: 1, Fence: 1, Decided: 1, Step: s})
	p.made = p.now + stepTime
}

// tick lets everything happen that is due.
func (p *pair) tick(t *testing.T) {
	t.Helper()
	p.now++
	if p.made > 0 && p.made <= p.now {
		p.made = 0
		p.head.Applied(1, nil, 0, 0, 0)
	}
	for len(p.down) > 0 && p.down[0].due <= p.now && p.free <= p.now {
		m := p.down[0].message
		p.down = p.down[1:]
		if !p.tail.Obey(m) {
			t.Fatalf("at %d, the tail cannot do %+v", p.now, m)
		}
		if _, ok := m.(kintsugi.Update); ok {
			p.updates--
			p.free = p.now + p.apply
			p.tail.Applied(1, nil, 0, 0, 0)
		}
		for _, r := range p.tail.Ready().Replies {
			p.up = append(p.up, sent[kintsugi.ReplicaMessage]{max(p.now, p.free) + p.delay, r})
		}
	}
	for len(p.up) > 0 && p.up[0].due <= p.now {
		m := p.up[0].message
		p.up = p.up[1:]
		p.head.Heard(m)
	}
	ready := p.head.Ready()
	p.send(ready.Down)
	for _, m := range ready.Replies {
		if s, ok := m.(kintsugi.Stable); ok && !s.Waits && s.Step > p.stable {
			p.stood = max(p.stood, p.now-p.since)
			p.stable, p.since = s.Step, p.now
			p.head.Handle(kintsugi.Released{Line: 1, Fence: 1, Step: s.Step})
			p.commit(s.Step + 1)
		}
	}
	p.send(p.head.Ready().Down)
}

// A replica comes into its chain however far away or slow it is, while steps go on. They stand still
// for no longer than it takes to be sent, and to apply, what it lacks when they begin to wait for it;
// and not at all if it catches up by itself.
func TestAReplicaCatchesUpHoweverFarOrSlow(t *testing.T) {
	for _, c := range []struct {
		link
		stands int // longest time without a step, at most
	}{
		{link{delay: 0, apply: 1}, stepTime + 2},
		{link{delay: 4, apply: 1}, 2 * stepTime},                // an answer takes as long as a step
		{link{delay: 0, apply: 1, snapshot: 300}, stepTime + 2}, // 30 steps wait for the snapshot
		{link{delay: 0, apply: 8, snapshot: 300}, 5 * stepTime}, // and it comes closer slowly, at last less than a step in as many steps as it lacks
		{link{delay: 200, apply: 1}, 2*200 + 3*stepTime},        // an answer takes as long as 40 steps
		{link{delay: 200, apply: 1, snapshot: 300}, 2*200 + 3*stepTime},
		{link{delay: 0, apply: 11, snapshot: 30}, 20 * stepTime}, // it is a little slower than the head
		{link{delay: 0, apply: 100, snapshot: 30}, 35 * 100},     // it is slow
	} {
		t.Run(fmt.Sprintf("%+v", c.link), func(t *testing.T) {
			p := newPair(t, c.link)
			for !p.tail.Whole() {
				if p.tick(t); p.now > 200*stepTime+20*(c.delay+c.apply)+10*c.snapshot {
					t.Fatalf("it has not caught up at %d: %d steps are stable, it has %d, %d are on their way", p.now, p.stable, p.tail.Released(), p.updates)
				}
			}
			before := p.stable
			for range 10 * (stepTime + 2*c.delay + c.apply) {
				p.tick(t)
			}
			if p.stood > c.stands || p.stable < before+5 {
				t.Errorf("steps stood still for %d, want at most %d; %d were made after it had caught up", p.stood, c.stands, p.stable-before)
			}
		})
	}
}

// A replica whose queue was full, because it takes in a snapshot and steps more slowly than they are
// made, is waited for when it connects again. So its queue is not full again.
func TestAReplicaThatIsOutpacedIsWaitedFor(t *testing.T) {
	const most = 64
	p := newPair(t, link{snapshot: 100 * stepTime, apply: 2 * stepTime})
	for p.updates <= most {
		p.tick(t)
	}
	if p.tail.Whole() || p.stood > stepTime+2 {
		t.Fatalf("whole: %v; steps stood still for %d before", p.tail.Whole(), p.stood)
	}
	p.head.Outpaced()
	p.connect(t, 2)
	for !p.tail.Whole() {
		if p.tick(t); p.updates > 1 || p.now > 400*stepTime {
			t.Fatalf("at %d, %d steps are on their way", p.now, p.updates)
		}
	}
	for n := p.stable + 5; p.stable < n; {
		p.tick(t)
	}
}
