package recovery

import (
	"context"
	"net"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/recovery/roster"
)

// body is a server as a coordinator observes it: a port that answers, or does not.
type body struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
	stop  func()
	place *etcd.Registration
}

func (b *body) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err == nil {
		b.mu.Lock()
		b.conns = append(b.conns, c)
		b.mu.Unlock()
	}
	return c, err
}

// breaks cuts all connections.
func (b *body) breaks() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		c.Close()
	}
	b.conns = nil
}

// live registers a server whose port can be reached; deaf: it listens and never answers.
func (c *cluster) live(i uint32, deaf bool) *body {
	c.t.Helper()
	lis, err := transport.Listen("127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	b := &body{Listener: lis, stop: func() { lis.Close() }}
	if !deaf {
		s := transport.NewServer(b, nil)
		served := make(chan error, 1)
		go func() { served <- s.Serve() }()
		b.stop = sync.OnceFunc(func() { s.Stop(); <-served })
	}
	c.t.Cleanup(b.stop)
	b.place, err = c.Register(c.ctx, etcd.Server, i, map[string]any{"address": lis.Addr().String()}, time.Minute)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { b.place.Close(context.Background()) })
	return b
}

// chains begins a run of as many servers as cfg says, with two replicas of each shard, and returns
// them when the first view is there.
func (c *cluster) chains(cfg roster.Config) (servers []*body, views <-chan kintsugi.View, first kintsugi.View) {
	c.t.Helper()
	cfg.Replicas = 2
	c.coordinate(Config{Roster: cfg})
	for i := range cfg.Servers {
		servers = append(servers, c.live(uint32(i), false))
	}
	views = c.WatchView(c.ctx)
	return servers, views, c.await(views, 1)
}

// says makes it report that it does not reach others.
func (b *body) says(c *cluster, apart ...kintsugi.Life) {
	c.t.Helper()
	if err := b.place.Tell(c.ctx, map[string]any{"address": b.Addr().String(), "apart": apart}); err != nil {
		c.t.Fatal(err)
	}
}

// The lease of a server that dies lasts for a minute, but the view without it comes at once. A
// connection that breaks is not a death: that server is still in the next view.
func TestAServerOfChainsThatDiesIsOutOfTheViewAtOnceAndABrokenConnectionIsNoDeath(t *testing.T) {
	c := newCluster(t)
	servers, views, first := c.chains(roster.Config{Servers: 3})
	servers[0].breaks()
	start := time.Now()
	servers[1].stop()
	v := c.await(views, 2)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if want := [][]kintsugi.ServerID{{0}, {2}, {2, 0}}; !reflect.DeepEqual(v.Chains, want) || v.Line != first.Line || v.Number != 2 {
		t.Errorf("view %+v, want chains %v", v, want)
	}
	c.live(1, false)
	v = c.await(views, 3)
	if want := [][]kintsugi.ServerID{{0, 1}, {2, 1}, {2, 0}}; !reflect.DeepEqual(v.Chains, want) || v.Servers[1].Since != 3 {
		t.Errorf("view %+v, want chains %v", v, want)
	}
}

// A server that the coordinator does not reach may still reach etcd, and report there which servers
// it does not reach, or that it reaches them all. It is not taken in for that.
func TestWhatADeadServerSaysDoesNotBringItBack(t *testing.T) {
	for _, all := range []bool{false, true} {
		c := newCluster(t)
		servers, views, _ := c.chains(roster.Config{Servers: 4})
		servers[1].stop()
		c.await(views, 2)
		servers[3].stop()
		c.await(views, 3)
		var apart []kintsugi.Life
		if !all {
			apart = append(apart, kintsugi.Life{Server: 0, Incarnation: servers[0].place.Incarnation()})
		}
		servers[1].says(c, apart...)
		c.live(3, false)
		v := c.await(views, 4)
		if want := [][]kintsugi.ServerID{{0}, {2}, {2, 3}, {0, 3}}; !reflect.DeepEqual(v.Chains, want) {
			t.Errorf("%+v, want chains %v", v, want)
		}
	}
}

// A server that could not be reached for a while comes in again, as the same life, and what it says
// from then on counts.
func TestAServerThatIsReachedAgainIsBelieved(t *testing.T) {
	c := newCluster(t)
	servers, views, _ := c.chains(roster.Config{Servers: 3})
	away := servers[1]
	away.stop()
	c.await(views, 2)
	lis, err := transport.Listen(away.Addr().String())
	if err != nil {
		t.Skipf("another process has taken its port meanwhile; run it again: %v", err)
	}
	again, served := transport.NewServer(lis, nil), make(chan error, 1)
	go func() { served <- again.Serve() }()
	t.Cleanup(func() { again.Stop(); <-served })
	v := c.await(views, 3)
	if want := [][]kintsugi.ServerID{{0, 1}, {2, 1}, {2, 0}}; !reflect.DeepEqual(v.Chains, want) || v.Servers[1].Incarnation != 1 {
		t.Errorf("view %+v, want chains %v and the same life", v, want)
	}
	if err := away.place.Tell(c.ctx, map[string]any{"address": away.Addr().String(), "leaving": true}); err != nil {
		t.Fatal(err)
	}
	if v = c.await(views, 4); slices.ContainsFunc(v.Chains, func(chain []kintsugi.ServerID) bool { return slices.Contains(chain, 1) }) {
		t.Errorf("it says that it leaves, and is in the chains of view %+v", v)
	}
}

// Two servers are alive and do not reach each other. One of them is left out until they do.
func TestOfTwoServersThatDoNotReachEachOtherOneIsOut(t *testing.T) {
	c := newCluster(t)
	servers, views, _ := c.chains(roster.Config{Servers: 3, Settle: 100 * time.Millisecond})
	servers[0].says(c, kintsugi.Life{Server: 2, Incarnation: servers[2].place.Incarnation()})
	if v, want := c.await(views, 2), [][]kintsugi.ServerID{{0, 1}, {1}, {0}}; !reflect.DeepEqual(v.Chains, want) {
		t.Errorf("%+v, want chains %v", v, want)
	}
	servers[0].says(c)
	if v, want := c.await(views, 3), [][]kintsugi.ServerID{{0, 1}, {1, 2}, {0, 2}}; !reflect.DeepEqual(v.Chains, want) {
		t.Errorf("%+v, want chains %v", v, want)
	}
}

// A server that listens and does not answer is taken for dead after a while.
func TestAServerOfChainsThatIsSilentIsOutOfTheView(t *testing.T) {
	c := newCluster(t)
	c.coordinate(Config{Roster: roster.Config{Servers: 2, Replicas: 2}})
	c.live(0, false)
	c.live(1, true)
	v := c.await(c.WatchView(c.ctx), 2)
	if slices.Contains(slices.Concat(v.Chains...), 1) || len(v.Chains[1]) != 1 {
		t.Errorf("%+v", v)
	}
}

// If a server refuses this coordinator's certificate, it has answered, so it is alive. A server
// whose own certificate is not trusted can be reached by nobody.
func TestACoordinatorThatIsRefusedTakesNobodyForDead(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, other} {
		var names []mtls.Name
		for _, r := range []mtls.Role{mtls.Server, mtls.Coordinator, mtls.Etcd} {
			names = append(names, mtls.Name{Domain: "run", Role: r, Index: mtls.Any})
		}
		if _, err := mtls.Make(d, mtls.Order{Names: names, Now: time.Now(), Life: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	open := func(dir string, r mtls.Role) *mtls.Credentials {
		c, err := mtls.Open(dir, r, mtls.Any, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	lis, err := transport.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := transport.NewServer(lis, nil, transport.ServeTLS(open(dir, mtls.Server)))
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() { s.Stop(); <-served })
	m := kintsugi.Member{Address: lis.Addr().String()}
	for what, x := range map[string]struct {
		as       *mtls.Credentials
		patience time.Duration
		alive    bool
	}{
		"the server lets nobody of this role in": {open(dir, mtls.Etcd), 1500 * time.Millisecond, true},
		"the server's authority is not believed": {open(other, mtls.Coordinator), 30 * time.Second, false},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), x.patience)
		if alive := newPulses(x.as).lives(ctx, m, true); alive != x.alive {
			t.Errorf("%s: alive %v, want %v", what, alive, x.alive)
		}
		cancel()
	}
}
