package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/role"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
)

// newEtcd starts an etcd that ends with the test.
func newEtcd(t *testing.T) (endpoint string, client *etcd.Client) {
	t.Helper()
	e, err := etcd.Embed(t.Context(), t.TempDir(), etcd.Options{UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if client, err = etcd.Dial(t.Context(), []string{e.Endpoint()}, "default"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return e.Endpoint(), client
}

// A process of another release, or with other settings, that is started by mistake takes no
// process's place.
func TestWhoHasOtherTermsTakesNoPlace(t *testing.T) {
	t.Parallel()
	endpoint, client := newEtcd(t)
	if _, err := client.PutView(t.Context(), 0, kintsugi.View{Number: 1, Terms: kintsugi.Terms{Protocol: kintsugi.ProtocolVersion, Model: 1}}); err != nil {
		t.Fatal(err)
	}
	for role, kind := range map[string]etcd.Kind{"server": etcd.Server, "worker": etcd.Worker} {
		r := kin(t, role, "--model", "qp", "--index", "0", "--etcd", endpoint)
		if r.status != exitConfig || !strings.Contains(r.stderr, "this "+role+" has a model with fingerprint") || !strings.Contains(r.stderr, "start all with the run's configuration") {
			t.Errorf("%s ends with status %d:\n%s", role, r.status, r.stderr)
		}
		if members := <-client.WatchMembers(t.Context(), kind); len(members) > 0 {
			t.Errorf("%v has registered", members)
		}
	}
}

// A process whose place another process has taken ends. Its exit status says not to start it again:
// it would only wait, or take the place back. Others dial the host name that was given, since a
// certificate may name only that host.
func TestAPlaceHasOneProcess(t *testing.T) {
	t.Parallel()
	endpoint, client := newEtcd(t)
	for kind, name := range map[etcd.Kind]string{etcd.Server: "server", etcd.Worker: "worker"} {
		args := []string{name, "--model", "qp", "--etcd", endpoint, "--index", "1"}
		if name == "server" {
			args = append(args, "--listen", "localhost:0")
		}
		lives := client.WatchMembers(t.Context(), kind)
		registered := func(life kintsugi.Incarnation) etcd.Member {
			for {
				select {
				case members := <-lives:
					if len(members) == 1 && members[0].Incarnation == life {
						return members[0]
					}
				case <-time.After(patience):
					t.Fatalf("life %d of %s/1 does not register", life, name)
				}
			}
		}
		first := start(t, args...)
		m := registered(1)
		var v role.ServerValue
		if err := json.Unmarshal(m.Value, &v); err != nil || name == "server" && !strings.HasPrefix(v.Address, "localhost:") {
			t.Errorf("%s registers as %s", name, m.Value)
		}
		start(t, args...)
		registered(2)
		if r := first.wait(); r.status != exitConfig || !strings.Contains(r.stderr, "a process that was started later has the place of this one") {
			t.Errorf("%s ends with status %d:\n%s", name, r.status, r.stderr)
		}
	}
}
