package recovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/recovery/roster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit bounds every test.
const limit = 30 * time.Second

// cluster is a real etcd, with what a test does to it.
type cluster struct {
	t    *testing.T
	ctx  context.Context
	etcd *etcd.Embedded
	dir  string
	*etcd.Client
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	c := &cluster{t: t, ctx: ctx, dir: t.TempDir()}
	c.startEtcd()
	t.Cleanup(func() { c.etcd.Close() })
	c.Client = c.dial()
	return c
}

func (c *cluster) startEtcd() {
	c.t.Helper()
	e, err := etcd.Embed(c.ctx, c.dir, etcd.Options{UnsafeNoFsync: true})
	if err != nil {
		c.t.Fatal(err)
	}
	c.etcd = e
}

func (c *cluster) dial() *etcd.Client {
	c.t.Helper()
	client, err := etcd.Dial(c.ctx, []string{c.etcd.Endpoint()}, "run")
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { client.Close() })
	return client
}

// serve registers a life of server i. Its lease is long, so only Close or a later life ends it.
func (c *cluster) serve(i uint32) *etcd.Registration {
	c.t.Helper()
	r, err := c.Register(c.ctx, etcd.Server, i, map[string]string{"address": fmt.Sprintf("host%d:7000", i)}, time.Minute)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { r.Close(context.Background()) })
	return r
}

// coordinate runs a coordinator with its own connection until stop is called, which waits for its
// end.
func (c *cluster) coordinate(cfg Config) (stop func()) {
	c.t.Helper()
	cfg.Etcd = c.dial()
	if cfg.Newest == nil {
		cfg.Newest = NoCheckpoints
	}
	if cfg.Lease == 0 {
		cfg.Lease = time.Second
	}
	cfg.Retry = 10 * time.Millisecond
	co, err := NewCoordinator(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.ctx)
	var done sync.WaitGroup
	done.Go(func() {
		if err := co.Run(ctx); err != nil {
			c.t.Errorf("coordinator ended with %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	c.t.Cleanup(stop)
	return stop
}

// await returns the first view with at least that number.
func (c *cluster) await(views <-chan kintsugi.View, number kintsugi.ViewNumber) kintsugi.View {
	c.t.Helper()
	for v := range views {
		if v.Number >= number {
			return v
		}
	}
	c.t.Fatalf("view %d did not come within %v", number, limit)
	panic("unreachable")
}

// awaitWord returns once the run is told that the coordinator waits for this; empty: for nothing.
func (c *cluster) awaitWord(want string) {
	c.t.Helper()
	last := "?"
	for last = range c.WatchWaits(c.ctx) {
		if last == want {
			return
		}
	}
	c.t.Fatalf("the run was told last that the coordinator waits for %q, not %q", last, want)
}

// store is where checkpoints are found. Its methods are safe for concurrent use.
type store struct {
	mu     sync.Mutex
	newest roster.Checkpoint
	away   error
	asked  chan struct{} // holds a token after each question
}

func newStore() *store { return &store{asked: make(chan struct{}, 1)} }

func (s *store) save(manifest string, step kintsugi.Step, line kintsugi.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = roster.Checkpoint{Manifest: manifest, Step: step, Line: line}
}

func (s *store) goAway(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = err
}

func (s *store) find(context.Context, Asking) (string, kintsugi.Step, kintsugi.Line, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.asked <- struct{}{}:
	default:
	}
	return s.newest.Manifest, s.newest.Step, s.newest.Line, s.away
}

// journal collects log lines.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.b.String(), text)
}

// told sends log lines on.
type told chan string

func (l told) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func (l told) await(c *cluster, text string) {
	c.t.Helper()
	for {
		select {
		case line := <-l:
			if strings.Contains(line, text) {
				return
			}
		case <-c.ctx.Done():
			c.t.Fatalf("nobody says %q", text)
		}
	}
}

func TestTheFirstViewComesWhenAllServersHaveRegistered(t *testing.T) {
	c := newCluster(t)
	views := c.WatchView(c.ctx)
	c.coordinate(Config{Roster: roster.Config{Servers: 2}})
	first := c.serve(0)
	begin := time.Now()
	second := c.serve(1)
	v := c.await(views, 1)
	t.Logf("from the last Register to the first view: %v", time.Since(begin).Round(100*time.Microsecond))
	if v.Number != 1 || v.Line != 1 || v.Restore != "" || len(v.Chains) != 2 || v.Conductor != 0 {
		t.Errorf("first view %+v", v)
	}
	want := []kintsugi.Member{
		{Server: 0, Incarnation: first.Incarnation(), Address: "host0:7000"},
		{Server: 1, Incarnation: second.Incarnation(), Address: "host1:7000"},
	}
	for i, m := range v.Servers {
		if m != want[i] {
			t.Errorf("server %d is %+v, want %+v", i, m, want[i])
		}
	}
}

// Nothing more happens, and time passes: a server that stays away is left out. When it is back, it
// is sent its shard, and heads it again when it says that it has it.
func TestAServerThatStaysAwayIsLeftOutInTime(t *testing.T) {
	c := newCluster(t)
	views := c.WatchView(c.ctx)
	c.coordinate(Config{Roster: roster.Config{Servers: 2, Partial: true, MoveAfter: 20 * time.Millisecond}})
	first := c.serve(0)
	c.serve(1)
	c.await(views, 1)
	if err := first.Close(c.ctx); err != nil {
		t.Fatal(err)
	}
	expect := func(number kintsugi.ViewNumber, line kintsugi.Line, chains [][]kintsugi.ServerID) {
		t.Helper()
		if v := c.await(views, number); v.Line != line || !reflect.DeepEqual(v.Chains, chains) || v.Conductor != chains[0][0] {
			t.Errorf("%+v, want line %d and chains %v", v, line, chains)
		}
	}
	expect(2, 2, [][]kintsugi.ServerID{{1}, {1}})
	again := c.serve(0)
	expect(3, 2, [][]kintsugi.ServerID{{1, 0}, {1}})
	if err := again.Tell(c.ctx, map[string]any{"address": "host0:7000", "whole": 3}); err != nil {
		t.Fatal(err)
	}
	expect(4, 2, [][]kintsugi.ServerID{{0}, {1}})
}

func TestAServerThatDiesIsRestoredFromTheNewestCheckpoint(t *testing.T) {
	c := newCluster(t)
	views := c.WatchView(c.ctx)
	s, log := newStore(), &journal{}
	c.coordinate(Config{Roster: roster.Config{Servers: 2}, Newest: s.find, Log: slog.New(slog.NewTextHandler(log, nil))})
	c.serve(0)
	c.serve(1)
	before := c.await(views, 1)
	s.save("manifest/400-1", 400, 1)
	begin := time.Now()
	c.serve(0) // the next life takes the place over
	after := c.await(views, 2)
	t.Logf("from the Register of the next life to its view: %v", time.Since(begin).Round(100*time.Microsecond))
	if after.Line <= before.Line || after.Fence <= before.Fence || after.Restore != "manifest/400-1" || after.RestoreStep != 400 {
		t.Errorf("after %+v came %+v", before, after)
	}
	const reason = "server/0 came back as incarnation 2; its shard is lost: all shards restore step 400"
	if after.Reason != reason {
		t.Errorf("reason %q, want %q", after.Reason, reason)
	}
	c.serve(1)
	c.await(views, 3)
	if n := log.count(reason); n != 1 {
		t.Errorf("the reason was logged %d times:\n%s", n, log.b.String())
	}
}

func TestAServerThatIsAwayHoldsTheViewUpUntilItIsBack(t *testing.T) {
	c := newCluster(t)
	views := c.WatchView(c.ctx)
	c.coordinate(Config{Roster: roster.Config{Servers: 2}})
	c.serve(0)
	leaving := c.serve(1)
	c.await(views, 1)
	if err := leaving.Close(c.ctx); err != nil {
		t.Fatal(err)
	}
	c.serve(0) // this would lead to a view if all servers were there
	c.serve(1)
	if v := c.await(views, 2); v.Servers[0].Incarnation != 2 || v.Servers[1].Incarnation != 2 {
		t.Errorf("view %d names %+v", v.Number, v.Servers)
	}
}

// Only a run that begins takes the place of its checkpoints. A coordinator that is started again
// goes on under the same id.
func TestARunBeginsOnceUnderAnIDOfItsOwn(t *testing.T) {
	c := newCluster(t)
	views := c.WatchView(c.ctx)
	asked := make(chan Asking, 4)
	cfg := Config{Roster: roster.Config{Servers: 1}, Newest: func(_ context.Context, asks Asking) (string, kintsugi.Step, kintsugi.Line, error) {
		asked <- asks
		return "", 0, 0, nil
	}}
	stop := c.coordinate(cfg)
	c.serve(0)
	first := c.await(views, 1)
	if asks := <-asked; !asks.Begins || asks.Run == "" || asks.Run != first.Run {
		t.Errorf("%+v asked for view %+v", asks, first)
	}
	stop()
	c.coordinate(cfg)
	c.serve(0)
	second := c.await(views, 2)
	if asks := <-asked; asks.Begins || asks.Run != first.Run || second.Run != first.Run {
		t.Errorf("%+v asked for view %+v after %+v", asks, second, first)
	}
}

func TestTheFirstViewResumesFromTheConfiguredCheckpoint(t *testing.T) {
	c := newCluster(t)
	views := c.WatchView(c.ctx)
	s := newStore()
	s.save("manifest/900-7", 900, 2)
	from := roster.Checkpoint{Manifest: "manifest/500-3", Step: 500, Line: 1}
	c.coordinate(Config{Roster: roster.Config{Servers: 1, ResumeFrom: from}, Newest: s.find})
	c.serve(0)
	if v := c.await(views, 1); v.Restore != "manifest/500-3" || v.RestoreStep != 500 || v.Line != 3 {
		t.Errorf("first view %+v", v)
	}
	c.serve(0)
	if v := c.await(views, 2); v.Restore != "manifest/900-7" || v.Line != 4 {
		t.Errorf("second view %+v", v)
	}
}

func TestARestartedCoordinatorContinuesFromTheViewInEtcd(t *testing.T) {
	c := newCluster(t)
	views := c.WatchView(c.ctx)
	stop := c.coordinate(Config{Roster: roster.Config{Servers: 1}})
	c.serve(0)
	c.await(views, 1)
	stop()

	log := &journal{}
	c.coordinate(Config{Roster: roster.Config{Servers: 1}, Log: slog.New(slog.NewTextHandler(log, nil))})
	c.serve(0)
	if v := c.await(views, 2); v.Number != 2 || v.Line != 2 {
		t.Errorf("the next coordinator put %+v", v)
	}
}

func TestTheNextCoordinatorTakesOverAndSeesWhatItMissed(t *testing.T) {
	c := newCluster(t)
	views := c.WatchView(c.ctx)
	stop := c.coordinate(Config{ID: "first", Roster: roster.Config{Servers: 1}, Lease: time.Minute})
	c.serve(0)
	c.await(views, 1)
	c.coordinate(Config{ID: "second", Roster: roster.Config{Servers: 1}, Lease: time.Minute})
	stop()
	begin := time.Now()
	c.serve(0)
	c.await(views, 2)
	t.Logf("from the Register under no coordinator to the view of the next: %v", time.Since(begin).Round(100*time.Microsecond))
}

// A coordinator that is started again on its machine knows that the one before is dead.
func TestACoordinatorDoesNotWaitForADeadOne(t *testing.T) {
	c := newCluster(t)
	views := c.WatchView(c.ctx)
	if _, err := c.dial().Campaign(c.ctx, "dead", time.Hour); err != nil {
		t.Fatal(err)
	}
	c.coordinate(Config{Roster: roster.Config{Servers: 1}, Gone: func(id string) bool { return id == "dead" }})
	c.serve(0)
	c.await(views, 1)
}

// One that is not known to be dead leads until it goes, whoever else would lead.
func TestACoordinatorLeavesTheOthersAlone(t *testing.T) {
	c := newCluster(t)
	views := c.WatchView(c.ctx)
	lead, err := c.dial().Campaign(c.ctx, "alive", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 1)
	c.coordinate(Config{ID: "second", Roster: roster.Config{Servers: 1}, Lease: time.Hour, Gone: func(id string) bool {
		asked <- id
		return id == "second" // as is said of an earlier life of its own name
	}})
	if id := <-asked; id != "alive" {
		t.Errorf("it was asked whether %q is dead", id)
	}
	for range 100 { // each asks etcd, which has time to change its mind
		if leader, err := c.Leader(c.ctx); leader != "alive" || err != nil {
			t.Fatalf("%q leads (%v), although nobody said that the one before is dead", leader, err)
		}
	}
	select {
	case <-lead.Lost():
		t.Error("the leadership was lost")
	default:
	}
	c.serve(0)
	if err := lead.Resign(); err != nil {
		t.Error(err)
	}
	c.await(views, 1)
}

// A coordinator that another one takes for dead, and is not, is there when that one goes.
func TestACoordinatorThatWasTakenForDeadCampaignsAgain(t *testing.T) {
	c := newCluster(t)
	views := c.WatchView(c.ctx)
	c.coordinate(Config{ID: "first", Roster: roster.Config{Servers: 1}, Lease: time.Hour})
	c.serve(0)
	c.await(views, 1)
	stop := c.coordinate(Config{ID: "second", Roster: roster.Config{Servers: 1}, Lease: time.Hour, Gone: func(id string) bool { return id == "first" }})
	for leader := ""; leader != "second"; {
		var err error
		if leader, err = c.Leader(c.ctx); err != nil {
			t.Fatal(err)
		}
	}
	c.serve(0)
	c.await(views, 2)
	stop()
	c.serve(0)
	c.await(views, 3)
}

func TestTheCoordinatorOutlivesARestartOfEtcd(t *testing.T) {
	c := newCluster(t)
	views := c.WatchView(c.ctx)
	c.coordinate(Config{Roster: roster.Config{Servers: 1}, Lease: time.Second})
	c.serve(0)
	c.await(views, 1)
	c.etcd.Close()
	c.startEtcd()
	c.serve(0)
	if v := c.await(views, 2); v.Number != 2 {
		t.Errorf("after the restart: %+v", v)
	}
}

func TestAFailoverWaitsForTheStore(t *testing.T) {
	c := newCluster(t)
	views := c.WatchView(c.ctx)
	s, log := newStore(), &journal{}
	c.coordinate(Config{Roster: roster.Config{Servers: 1}, Newest: s.find, Log: slog.New(slog.NewTextHandler(log, nil))})
	c.serve(0)
	c.await(views, 1)
	<-s.asked
	s.goAway(errors.New("bucket runs: connection refused"))
	c.serve(0)
	for range 3 { // it asks again and again, and logs it once
		select {
		case <-s.asked:
		case <-c.ctx.Done():
			t.Fatal("the store is not asked again")
		}
	}
	if v, _, err := c.View(c.ctx); err != nil || v.Number != 1 {
		t.Errorf("view %+v, %v while the store is away", v, err)
	}
	if n := log.count("connection refused"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.b.String())
	}
	c.awaitWord("server/0 came back as incarnation 2; its shard is lost; looking for the newest checkpoint: find the newest checkpoint: bucket runs: connection refused")
	s.save("manifest/10-1", 10, 1)
	s.goAway(nil)
	if v := c.await(views, 2); v.RestoreStep != 10 {
		t.Errorf("view %+v", v)
	}
	c.awaitWord("")
}

// A slow etcd may not have taken the message that nothing is waited for. The next wait is reported
// nevertheless, since people would otherwise read the earlier one.
func TestWhatIsWaitedForIsToldWhereNobodyKnowsWhatWas(t *testing.T) {
	c := newCluster(t)
	lead, err := c.Campaign(c.ctx, "this", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer lead.Resign()
	if err := lead.PutWaits(c.ctx, "before"); err != nil {
		t.Fatal(err)
	}
	found := make(chan struct{})
	co, err := NewCoordinator(Config{
		Etcd: c.Client, Roster: roster.Config{Servers: 1}, Slow: time.Millisecond,
		Newest: func(ctx context.Context, _ Asking) (string, kintsugi.Step, kintsugi.Line, error) {
			<-found
			return "", 0, 0, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var looking sync.WaitGroup
	looking.Go(func() {
		x := &tenure{Coordinator: co, lead: lead, told: untold, run: "r"}
		if _, err := x.newest(c.ctx, "looking for it"); err != nil {
			t.Error(err)
		}
	})
	defer looking.Wait()
	defer close(found)
	c.awaitWord("looking for it")
}

// A large checkpoint on a slow store takes longer to read than etcd may take to answer. The view
// begins from it nevertheless. A coordinator that ends does not wait for it.
func TestACheckpointMayTakeLongToFind(t *testing.T) {
	c := newCluster(t)
	views := c.WatchView(c.ctx)
	const patience = 100 * time.Millisecond
	var hangs atomic.Bool
	asked := make(chan struct{}, 1)
	stop := c.coordinate(Config{Roster: roster.Config{Servers: 1}, Patience: patience, Slow: patience, Newest: func(ctx context.Context, _ Asking) (string, kintsugi.Step, kintsugi.Line, error) {
		var read <-chan time.Time
		if hangs.Load() {
			asked <- struct{}{}
		} else {
			read = time.After(3 * patience)
		}
		select {
		case <-ctx.Done():
			return "", 0, 0, context.Cause(ctx)
		case <-read:
			return "manifest/70-1", 70, 1, nil
		}
	}})
	c.serve(0)
	if v := c.await(views, 1); v.RestoreStep != 70 {
		t.Errorf("view %+v", v)
	}
	hangs.Store(true) // it asks no more before another server comes
	c.serve(0)
	<-asked
	const word = "server/0 came back as incarnation 2; its shard is lost; looking for the newest checkpoint"
	c.awaitWord(word)
	stop()
	hangs.Store(false)
	c.coordinate(Config{Roster: roster.Config{Servers: 1}, Newest: NoCheckpoints})
	c.await(views, 2)
	if got, err := c.Waits(c.ctx); err != nil || got != "" {
		t.Errorf("the next coordinator has put a view, and the run is told that it waits for %q, %v", got, err)
	}
}

func TestAServerWithoutAnAddressIsNotThere(t *testing.T) {
	c := newCluster(t)
	views := c.WatchView(c.ctx)
	c.coordinate(Config{Roster: roster.Config{Servers: 1}})
	r, err := c.Register(c.ctx, etcd.Server, 0, "nonsense", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.Background())
	c.serve(0)
	if v := c.await(views, 1); v.Servers[0].Incarnation != 2 || v.Servers[0].Address != "host0:7000" {
		t.Errorf("first view names %+v", v.Servers)
	}
}

// A process that cuts the parameters otherwise, or misreads messages, would be silent for ever, and
// so would those who wait for it.
func TestWhoHasOtherTermsIsNotTakenIn(t *testing.T) {
	mine := kintsugi.Terms{Protocol: 1, Model: 5}
	for _, other := range []kintsugi.Terms{{Protocol: 2, Model: 5}, {Protocol: 1, Model: 6}} {
		c := newCluster(t)
		views, said := c.WatchView(c.ctx), make(told, 64)
		stop := c.coordinate(Config{Roster: roster.Config{Servers: 1}, Terms: mine, Log: slog.New(slog.NewTextHandler(said, nil))})
		for _, terms := range []kintsugi.Terms{other, mine} {
			r, err := c.Register(c.ctx, etcd.Server, 0, map[string]any{"address": "host:7000", "terms": terms}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Close(context.Background()) })
			if terms == other {
				said.await(c, "a server cannot be taken in")
			}
		}
		if v := c.await(views, 1); v.Servers[0].Incarnation != 2 || v.Terms != mine {
			t.Errorf("the first view names %+v and has %+v", v.Servers, v.Terms)
		}
		stop()
		stop = c.coordinate(Config{Roster: roster.Config{Servers: 1}, Terms: other, Log: slog.New(slog.NewTextHandler(said, nil))})
		said.await(c, "the one that put view 1")
		stop()
	}
}

func TestACoordinatorEndsWithItsContextEvenWithoutEtcd(t *testing.T) {
	c := newCluster(t)
	leading := c.coordinate(Config{Roster: roster.Config{Servers: 1}})
	c.serve(0)
	c.await(c.WatchView(c.ctx), 1)
	waiting := c.coordinate(Config{Roster: roster.Config{Servers: 1}})
	c.etcd.Close()
	waiting()
	leading()
	if c.ctx.Err() != nil {
		t.Errorf("it took more than %v", limit)
	}
}

func TestSettingsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, cfg := range []Config{
		{},
		{Etcd: new(etcd.Client), Roster: roster.Config{Servers: 1}},
		{Etcd: new(etcd.Client), Newest: NoCheckpoints},
	} {
		if _, err := NewCoordinator(cfg); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%+v: %v, want ErrUsage", cfg, err)
		}
	}
}
