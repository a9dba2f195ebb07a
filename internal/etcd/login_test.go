package etcd

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/kintsugi-ml/kintsugi"
)

// guarded is an etcd that asks for users.
type guarded struct {
	*embed.Etcd
	config *embed.Config
}

// askForUsers starts an etcd with the users kin, who may use the keys of runs, and guest, who may use none.
func askForUsers(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{config: config(t.TempDir(), 0, Options{UnsafeNoFsync: true})}
	g.config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	g.config.BcryptCost = 4 // a login takes a tenth of a second by default
	g.start(t)
	t.Cleanup(func() { g.Close() })
	_, port, _ := net.SplitHostPort(g.Clients[0].Addr().String())
	g.config.ListenClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:" + port}}
	g.config.AdvertiseClientUrls = g.config.ListenClientUrls
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:" + port}, DialTimeout: limit, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := within(t)
	for _, user := range []string{"root", "kin", "guest"} {
		must(c.UserAdd(ctx, user, "secret"))
		must(c.RoleAdd(ctx, user))
		must(c.UserGrantRole(ctx, user, user))
	}
	must(c.RoleGrantPermission(ctx, "kin", root, clientv3.GetPrefixRangeEnd(root), clientv3.PermissionType(clientv3.PermReadWrite)))
	must(c.AuthEnable(ctx))
	return g
}

func (g *guarded) start(t *testing.T) {
	t.Helper()
	e, err := embed.StartEtcd(g.config)
	if err != nil {
		t.Fatal(err)
	}
	<-e.Server.ReadyNotify()
	g.Etcd = e
}

func (g *guarded) address() string { return g.Clients[0].Addr().String() }

func TestAnEtcdThatAsksForAUserSaysWhatIsWrong(t *testing.T) {
	g := askForUsers(t)
	for _, c := range []struct{ user, password, want string }{
		{"", "", "user name is empty. It asks for a user: set KINTSUGI_ETCD_USER and KINTSUGI_ETCD_PASSWORD"},
		{"kin", "guess", "invalid user ID or password: check KINTSUGI_ETCD_USER"},
		{"nobody", "secret", "invalid user ID or password: check KINTSUGI_ETCD_USER"},
		{"guest", "secret", "permission denied: give the user guest a role that may read and write keys with the prefix /kintsugi/"},
	} {
		_, err := Dial(within(t), []string{g.address()}, "test", WithLogin(c.user, c.password))
		if !strings.Contains(text(err), c.want) || !strings.Contains(text(err), "etcd at "+g.address()) {
			t.Errorf("%s with %s: %v, want %q", c.user, c.password, err, c.want)
		}
	}
}

// An etcd that comes later than a client is waited for, as without a login.
func TestALoginWaitsForEtcd(t *testing.T) {
	g := askForUsers(t)
	g.Close()
	begin := time.Now()
	_, err := Dial(within(t), []string{g.address()}, "test", WithLogin("kin", "secret"), WithTimeout(1500*time.Millisecond))
	if !strings.Contains(text(err), "did not answer within 1.5s") || time.Since(begin) < 1500*time.Millisecond {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
	dialed := make(chan error)
	at := g.address()
	go func() {
		c, err := Dial(within(t), []string{at}, "test", WithLogin("kin", "secret"), WithTimeout(limit))
		if err == nil {
			err = c.Close()
		}
		dialed <- err
	}()
	select {
	case err := <-dialed:
		t.Fatalf("without an etcd: %v", err)
	case <-time.After(1200 * time.Millisecond): // it tries again meanwhile
	}
	g.start(t)
	if err := <-dialed; err != nil {
		t.Error(err)
	}
}

// Everything that processes do in etcd goes on after it has forgotten who has logged in, as it does after some
// silence too.
func TestWhoHasLoggedInStays(t *testing.T) {
	g := askForUsers(t)
	ctx := within(t)
	dial := func(user string) *Client {
		c, err := Dial(ctx, []string{g.address()}, "test", WithLogin(user, "secret"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	mine, other, root := dial("kin"), dial("kin"), dial("root")
	const ttl = 4 * time.Second
	register(t, mine, Worker, 3, ttl)
	leads, err := mine.Campaign(ctx, "coordinator", ttl)
	if err != nil {
		t.Fatal(err)
	}
	servers := other.WatchMembers(ctx, Server)
	var want []string
	for i, forget := range []func(){
		func() {
			if _, err := root.etcd.UserChangePassword(ctx, "kin", "secret"); err != nil { // what it knows of the user is dropped
				t.Fatal(err)
			}
		},
		func() { g.Close(); g.start(t) },
	} {
		forget()
		register(t, mine, Server, uint32(i), time.Minute)
		want = append(want, fmt.Sprintf("server/%d@1", i))
		await(t, servers, fmt.Sprintf("%d servers", i+1), present(want...))
		if err := leads.PutWaits(ctx, fmt.Sprint(i)); err != nil {
			t.Error(err)
		}
		if f, err := mine.NextFence(ctx, 0); err != nil || f != kintsugi.Fence(i+1) {
			t.Errorf("fence %d, %v; want %d", f, err, i+1)
		}
	}
	select {
	case <-leads.Lost():
		t.Fatal("it no longer leads")
	case <-time.After(ttl + time.Second): // a lease that is not kept alive lapses
	}
	if ms, err := other.Members(ctx, Worker); err != nil || !slices.Equal(names(ms), []string{"worker/3@1"}) {
		t.Errorf("members %v, %v", ms, err)
	}
}
