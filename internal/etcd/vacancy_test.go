package etcd

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// anyPlace registers in any of n places, in the background. The channel gets the registration.
func anyPlace(t *testing.T, c *Client, v Vacancy, ttl time.Duration) <-chan *Registration {
	t.Helper()
	v.Value = func(index uint32) any { return index }
	taken := make(chan *Registration, 1)
	ctx := within(t)
	go func() {
		defer close(taken)
		r, err := c.RegisterAny(ctx, Worker, v, ttl)
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return
		}
		taken <- r
	}()
	return taken
}

// placed returns what a call of anyPlace gets, and closes it with the test.
func placed(t *testing.T, taken <-chan *Registration) *Registration {
	t.Helper()
	r := <-taken
	if r == nil {
		t.Fatalf("no place within %v", limit)
	}
	t.Cleanup(func() { r.Close(context.Background()) })
	return r
}

// isFull waits until a process has found that all places are filled.
func isFull(t *testing.T, full <-chan bool) {
	t.Helper()
	await(t, full, "a process that finds all places filled", func(bool) bool { return true })
}

func TestEachEmptyPlaceIsFilledByOneProcess(t *testing.T) {
	t.Parallel()
	c := startEtcd(t).dial(t)
	const places, spare = 5, 3
	register(t, c, Worker, 2, time.Minute)
	got := make(chan *Registration, places+spare)
	full := make(chan bool, places+spare)
	waiting := func(want int) {
		t.Helper()
		for wait := within(t); ; pause(wait) {
			hosts, err := c.Waiting(wait, Worker)
			if err != nil {
				t.Fatal(err)
			}
			if len(hosts) == want && !slices.ContainsFunc(hosts, func(h string) bool { return h != "here" }) {
				return
			}
		}
	}
	for range places + spare {
		taken := anyPlace(t, c, Vacancy{Places: places, Host: "here", Full: func() { full <- true }}, time.Minute)
		go func() {
			if r := <-taken; r != nil {
				got <- r
			}
		}()
	}
	held := make(map[uint32]*Registration)
	next := func() *Registration {
		t.Helper()
		return await(t, got, "a process that gets a place", func(*Registration) bool { return true })
	}
	for range places - 1 {
		r := next()
		if held[r.Index()] != nil || r.Index() == 2 {
			t.Errorf("worker/%d has a second process", r.Index())
		}
		held[r.Index()] = r
	}
	for range spare + 1 {
		isFull(t, full)
	}
	waiting(spare + 1)
	await(t, c.WatchMembers(within(t), Worker), "all places", present("worker/0@1", "worker/1@1", "worker/2@1", "worker/3@1", "worker/4@1"))
	for _, leaves := range []uint32{3, 0, 4} {
		if err := held[leaves].Close(within(t)); err != nil {
			t.Fatal(err)
		}
		r := next()
		if r.Index() != leaves || r.Incarnation() != 2 {
			t.Errorf("worker/%d has left, and who waited becomes worker/%d in its life %d", leaves, r.Index(), r.Incarnation())
		}
		held[leaves] = r
	}
	waiting(1)
	members := await(t, c.WatchMembers(within(t), Worker), "the next lives", present("worker/0@2", "worker/1@1", "worker/2@1", "worker/3@2", "worker/4@2"))
	if string(members[4].Value) != "4" {
		t.Errorf("worker/4 says of itself %s", members[4].Value)
	}
	for _, r := range held {
		r.Close(context.Background())
	}
}

// Its lease has most of a minute left, and it need not wait for that.
func TestAProcessComesBackToItsPlaceAtOnce(t *testing.T) {
	t.Parallel()
	c := startEtcd(t).dial(t)
	first := placed(t, anyPlace(t, c, Vacancy{Places: 2}, time.Minute))
	second := placed(t, anyPlace(t, c, Vacancy{Places: 2}, time.Minute))
	again := placed(t, anyPlace(t, c, Vacancy{Places: 2, Before: second.Tenure()}, time.Minute))
	if again.Index() != second.Index() || again.Incarnation() != 2 {
		t.Errorf("worker/%d comes back as worker/%d, in its life %d", second.Index(), again.Index(), again.Incarnation())
	}
	await(t, second.Changes(), "the end of the life before", func(s Status) bool { return s.State == Superseded })

	// Once another process has had the place, it is that one's.
	third := register(t, c, Worker, 1, time.Minute)
	waits := anyPlace(t, c, Vacancy{Places: 2, Before: again.Tenure()}, time.Minute)
	if err := first.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	fourth := placed(t, waits)
	if fourth.Index() != 0 {
		t.Errorf("who had worker/1 before another one did comes back as worker/%d, want 0", fourth.Index())
	}
	select {
	case s := <-third.Changes():
		if s.State != Held {
			t.Errorf("who took worker/1 meanwhile is %v", s.State)
		}
	default:
	}

	// A run that has fewer places than before has none for who had the last one.
	full := make(chan bool, 1)
	fewer := anyPlace(t, c, Vacancy{Places: 1, Before: third.Tenure(), Full: func() { full <- true }}, time.Minute)
	isFull(t, full)
	if err := fourth.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if r := placed(t, fewer); r.Index() != 0 {
		t.Errorf("with one place there is worker/%d", r.Index())
	}
}

func TestAPlaceIsEmptyOnceItsLeaseHasLapsed(t *testing.T) {
	t.Parallel()
	c := startEtcd(t).dial(t)
	ctx, die := context.WithCancel(t.Context())
	dead, err := c.Register(ctx, Worker, 0, 0, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	full := make(chan bool, 1)
	waits := anyPlace(t, c, Vacancy{Places: 1, Grace: 200 * time.Millisecond, Full: func() { full <- true }}, time.Second)
	isFull(t, full)
	die()
	await(t, dead.Changes(), "the end of the dead", func(s Status) bool { return s.State == Closed })
	if r := placed(t, waits); r.Incarnation() != 2 {
		t.Errorf("who waited has life %d", r.Incarnation())
	}
}

// An etcd that was away for the time of a lease shows places as empty whose processes are alive. They
// come back to them, and spares must not have taken them: servers would lose what they hold.
func TestAPlaceThatMayOnlySeemEmptyIsLeftToItsProcess(t *testing.T) {
	t.Parallel()
	c := startEtcd(t).dial(t)
	first, full := register(t, c, Worker, 0, 3*time.Second), make(chan bool, 1)
	if r := placed(t, anyPlace(t, c, Vacancy{Places: 2, Grace: time.Minute}, time.Minute)); r.Index() != 1 {
		t.Errorf("beside worker/0 there is worker/%d", r.Index()) // where nobody ever was, at once
	}
	waits := anyPlace(t, c, Vacancy{Places: 2, Grace: time.Minute, Full: func() { full <- true }}, time.Minute)
	isFull(t, full)
	members := c.WatchMembers(within(t), Worker)
	await(t, members, "the first life", present("worker/0@1", "worker/1@1"))
	if _, err := c.etcd.Revoke(within(t), first.lease); err != nil { // as a lease that lapses
		t.Fatal(err)
	}
	back := await(t, first.Changes(), "its return", func(s Status) bool { return s.State == Held && s.Lapses == 1 })
	await(t, members, "the first life again", present("worker/0@1", "worker/1@1"))
	if err := first.Leave(within(t)); err != nil {
		t.Fatal(err)
	}
	if r := placed(t, waits); r.Incarnation() != 2 {
		t.Errorf("after %+v the place has life %d, want 2", back, r.Incarnation())
	}
}

func TestAPlaceIsEmptyForGoodAfterTheGrace(t *testing.T) {
	at, start := newEmptiness(4), time.Now()
	const grace = 10 * time.Second
	see := func(seconds int, filled ...uint32) {
		var members []Member
		for _, i := range filled {
			members = append(members, Member{Index: i})
		}
		at.see(members, start.Add(time.Duration(seconds)*time.Second))
	}
	see(0, 0, 1, 2, 3)
	if !at.full() {
		t.Error("four of four places are not full")
	}
	see(1, 0, 1, 2, 7) // the last one is of a run with more places
	see(3, 0, 1)
	see(5, 0, 1, 3)
	see(6, 0)
	for _, c := range []struct {
		second      int
		long, short []uint32
		next        time.Duration
	}{
		{6, nil, []uint32{1, 2, 3}, 7 * time.Second},
		{12, nil, []uint32{1, 2, 3}, time.Second},
		{13, []uint32{2}, []uint32{1, 3}, 3 * time.Second},
		{16, []uint32{1, 2, 3}, nil, 0},
	} {
		now := start.Add(time.Duration(c.second) * time.Second)
		next, ok := at.next(now, grace)
		if long, short := at.places(now, grace, true), at.places(now, grace, false); !slices.Equal(long, c.long) || !slices.Equal(short, c.short) || next != c.next || ok != (c.next > 0) || at.full() {
			t.Errorf("after %d s %v are empty for good and %v are empty; the next in %v (%v); want %+v", c.second, long, short, next, ok, c)
		}
	}
	if long := at.places(start.Add(6*time.Second), 0, true); !slices.Equal(long, []uint32{1, 2, 3}) {
		t.Errorf("without a grace %v are empty for good", long)
	}
}

func TestWhoWaitsForAPlaceCanBeEnded(t *testing.T) {
	t.Parallel()
	c := startEtcd(t).dial(t)
	register(t, c, Worker, 0, time.Minute)
	ctx, stop := context.WithCancelCause(t.Context())
	why := errors.New("why it ends")
	v := Vacancy{Places: 1, Value: func(uint32) any { return 0 }, Full: func() { stop(why) }}
	if _, err := c.RegisterAny(ctx, Worker, v, time.Minute); !errors.Is(err, why) {
		t.Errorf("the error is %v, want %v", err, why)
	}
	members, err := c.Members(within(t), Worker)
	if got := names(members); err != nil || !slices.Equal(got, []string{"worker/0@1"}) {
		t.Errorf("%v are there: %v", got, err)
	}
}
