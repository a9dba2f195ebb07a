package etcd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
)

// certs makes certificates of all roles and of the given places. It returns a function that returns
// those of a place.
func certs(t *testing.T, places ...string) func(place string) *mtls.Credentials {
	t.Helper()
	o := mtls.Order{Hosts: []string{"etcd-a", "etcd-b"}, Now: time.Now(), Life: time.Hour}
	for _, r := range mtls.Roles() {
		places = append(places, string(r))
	}
	place := func(text string) mtls.Name {
		t.Helper()
		n, err := mtls.ParsePlace(text)
		if err != nil {
			t.Fatal(err)
		}
		n.Domain = "run"
		return n
	}
	for _, p := range places {
		o.Names = append(o.Names, place(p))
	}
	dir := t.TempDir()
	if _, err := mtls.Make(dir, o); err != nil {
		t.Fatal(err)
	}
	return func(text string) *mtls.Credentials {
		t.Helper()
		n := place(text)
		c, err := mtls.Open(dir, n.Role, n.Index, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// This is the table of docs/security.md. An unknown key is the operator's.
func TestEachKeyIsChangedByItsKeepers(t *testing.T) {
	everyone := []mtls.Name{
		{Role: mtls.Operator, Index: mtls.Any}, {Role: mtls.Coordinator, Index: mtls.Any}, {Role: mtls.Server, Index: mtls.Any}, {Role: mtls.Server, Index: 1},
		{Role: mtls.Worker, Index: mtls.Any}, {Role: mtls.Worker, Index: 1}, {Role: mtls.Etcd, Index: mtls.Any}, {Role: mtls.Memory, Index: mtls.Any}, {},
	}
	for key, keepers := range map[string]string{
		"/kintsugi/r/id":                            "operator coordinator",
		"/kintsugi/r/view":                          "operator coordinator",
		"/kintsugi/r/waits":                         "operator coordinator",
		"/kintsugi/r/election/coordinator/694d":     "operator coordinator",
		"/kintsugi/r/fence":                         "operator coordinator server server/1",
		"/kintsugi/r/standing":                      "operator server server/1",
		"/kintsugi/r/done":                          "operator server server/1",
		"/kintsugi/r/stop":                          "operator",
		"/kintsugi/r/life/server/1":                 "operator server server/1",
		"/kintsugi/r/member/server/1":               "operator server server/1",
		"/kintsugi/r/member/server/11":              "operator server",
		"/kintsugi/r/life/worker/0":                 "operator worker",
		"/kintsugi/r/member/worker/1":               "operator worker worker/1",
		"/kintsugi/r/left/server/1":                 "operator server server/1",
		"/kintsugi/r/left/worker/0":                 "operator worker",
		"/kintsugi/r/waiting/server/XY":             "operator server server/1",
		"/kintsugi/r/waiting/worker/XY":             "operator worker worker/1",
		"/kintsugi/r/viewer":                        "operator",
		"/kintsugi/r/fence/1":                       "operator",
		"/kintsugi/r":                               "operator",
		"/kintsugi/view":                            "operator",
		"view":                                      "operator",
		"r/view":                                    "operator",
		"/elsewhere/r/view":                         "operator",
		"/kintsugi/r/member/worker/1/../../../view": "operator worker",
		"": "operator",
	} {
		for _, who := range everyone {
			want := who.Role != "" && strings.Contains(" "+keepers+" ", " "+who.String()+" ")
			if got := mayChange(who, key); got != want {
				t.Errorf("%v may change %q: %v, want %v", who, key, got, want)
			}
		}
	}
}

// An etcd with TLS serves the processes of a run as one without does, each within its role.
func TestAnEtcdByTLSKnowsWhoCalls(t *testing.T) {
	as, others := certs(t, "worker/1"), certs(t)
	b := &bench{dir: t.TempDir(), tls: as("etcd")}
	b.start(t)
	t.Cleanup(func() { b.Close() })
	dial := func(place string) *Client {
		t.Helper()
		c, err := Dial(within(t), []string{b.Endpoint()}, "test", WithTLS(as(place)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	coordinator, server, worker, operator := dial("coordinator"), dial("server"), dial("worker/1"), dial("operator")
	register(t, server, Server, 0, time.Minute)
	register(t, worker, Worker, 1, time.Minute)
	lead, err := coordinator.Campaign(within(t), "c", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lead.Resign() })
	spare := make(chan error, 1)
	waiting, enough := context.WithCancel(within(t))
	go func() {
		_, err := server.RegisterAny(waiting, Server, Vacancy{Places: 1, Host: "h", Value: func(uint32) any { return "me" }}, time.Minute)
		spare <- err
	}()
	for there, ctx := 0, within(t); there == 0 && pause(ctx); {
		hosts, err := operator.Waiting(ctx, Server)
		if err != nil {
			t.Fatal(err)
		}
		there = len(hosts)
	}
	enough()
	if err := <-spare; !errors.Is(err, context.Canceled) {
		t.Errorf("a server that waits for a place: %v", err)
	}
	if _, err := lead.PutView(within(t), 0, kintsugi.View{Number: 1, Fence: 1}); err != nil {
		t.Error(err)
	}
	await(t, worker.WatchView(within(t)), "the view", func(v kintsugi.View) bool { return v.Number == 1 })
	if err := operator.PutStop(within(t), Stop{Reason: "enough"}); err != nil {
		t.Error(err)
	}
	if _, err := server.PutDone(within(t), kintsugi.Done{Reason: "enough"}); err != nil {
		t.Error(err)
	}
	if err := operator.Vacate(within(t), Worker, 1, func(Member) bool { return true }); err != nil {
		t.Error(err)
	}
	if err := coordinator.Depose(within(t), func(string) bool { return true }); err != nil {
		t.Error(err)
	}
	if err := operator.Reopen(within(t)); err != nil {
		t.Error(err)
	}
	everything := func(ctx context.Context, c *Client) error {
		_, err := c.etcd.Delete(ctx, c.prefix, clientv3.WithPrefix())
		return err
	}
	for what, do := range map[string]func(context.Context) error{
		"a server puts a view": func(ctx context.Context) error {
			_, err := server.PutView(ctx, 1, kintsugi.View{Number: 2, Fence: 2})
			return err
		},
		"a worker takes a fence": func(ctx context.Context) error { _, err := worker.NextFence(ctx, 0); return err },
		"a worker ends the run":  func(ctx context.Context) error { return worker.PutStop(ctx, Stop{}) },
		"a worker leads":         func(ctx context.Context) error { _, err := worker.Campaign(ctx, "w", time.Minute); return err },
		"worker/1 takes another place": func(ctx context.Context) error {
			_, err := worker.Register(ctx, Worker, 0, "me", time.Minute)
			return err
		},
		"worker/1 takes any place": func(ctx context.Context) error {
			_, err := worker.RegisterAny(ctx, Worker, Vacancy{Places: 1, Value: func(uint32) any { return "me" }}, time.Minute)
			return err
		},
		"a worker takes the place of a server": func(ctx context.Context) error {
			_, err := worker.Register(ctx, Server, 0, "me", time.Minute)
			return err
		},
		"the coordinator deletes everything": func(ctx context.Context) error { return everything(ctx, coordinator) },
		"a server asks who else keeps keys":  func(ctx context.Context) error { _, err := server.etcd.MemberList(ctx); return err },
		"a server takes a copy of all keys": func(ctx context.Context) error {
			r, err := server.etcd.Snapshot(ctx)
			if err == nil {
				_, err = r.Read(make([]byte, 1))
			}
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if err := do(ctx); status.Code(cause(err)) != codes.PermissionDenied && !strings.Contains(text(err), "may not do this in etcd") {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
	}
	if v, _, err := worker.View(within(t)); err != nil || v.Number != 1 {
		t.Errorf("after all that the view is %+v, %v", v, err)
	}
	for what, x := range map[string]struct {
		tls  *mtls.Credentials
		want string
	}{
		"a process without TLS":     {nil, "if it was started with --tls use --tls here too"},
		"one of another authority":  {others("worker"), "its certificate is not signed by an authority in ca.pem"},
		"one that has no business":  {as("memory"), "opens no etcd"},
		"another etcd, as a client": {as("etcd"), "opens no etcd"},
	} {
		if _, err := Dial(within(t), []string{b.Endpoint()}, "test", WithTLS(x.tls), WithTimeout(700*time.Millisecond)); !strings.Contains(text(err), x.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := everything(within(t), operator); err != nil {
		t.Error(err)
	}
}

func text(err error) string {
	if err == nil {
		return "nothing"
	}
	return err.Error()
}

// cause returns what gRPC said.
func cause(err error) error {
	for {
		inner, ok := err.(interface{ Unwrap() error })
		if !ok || inner.Unwrap() == nil {
			return err
		}
		err = inner.Unwrap()
	}
}

// The etcds of an ensemble also prove to one another who they are.
func TestAnEnsembleByTLSIsOneAmongItselfToo(t *testing.T) {
	as := certs(t)
	m := Ensemble{Name: "a", Peers: map[string]string{"a": "etcd-a:2380"}, Listen: ":2379"}
	cfg := m.config(t.TempDir(), Options{TLS: as("etcd")})
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	if cfg.ListenPeerUrls[0].Scheme != "https" || cfg.ListenClientUrls[0].Scheme != "https" || cfg.InitialCluster != "a=https://etcd-a:2380" {
		t.Errorf("%v, %v, %s", cfg.ListenPeerUrls, cfg.ListenClientUrls, cfg.InitialCluster)
	}
	// A certificate from another tool may have another common name, and then the others would not
	// let it in.
	dir := t.TempDir()
	worker := as("worker")
	if _, err := m.start(within(t), dir, Options{TLS: worker}); err == nil || !strings.Contains(err.Error(), "common name") {
		t.Errorf("with the common name of a worker: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
		t.Error("it has begun")
	}
}
